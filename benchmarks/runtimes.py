"""Encoding photographs on a CPU: images per second by torch, onnxruntime and OpenVINO.

    pip install --no-deps openvino    # if it is to be measured, too
    python benchmarks/runtimes.py

EfficientNet-Lite0 and Lite2 in float32, batches of 1 to 16, on one thread and on two. The contenders take
turns; a number is the best of the rounds, as others may use the machine. "one by one" is what `classify`
does: each thread encodes single images of its own.
"""

import importlib
import io
import os
import queue
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch

from measurement import command, result
from semishot.sorter.encoders.image_encoder import ImageEncoder, open_encoder
from semishot.sorter.encoders.photo_graphs import graph_of

ENCODERS, BATCHES, THREADS = ("photos-lite0", "photos-lite2"), (1, 4, 16), (1, 2)
Pixels = np.ndarray[Any, np.dtype[np.uint8]]
Encode = Callable[[Pixels], np.ndarray[Any, np.dtype[np.float32]]]


def by_torch(encoder: ImageEncoder, threads: int) -> Encode:
    def encode(pixels: Pixels) -> Any:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            return encoder.module(torch.from_numpy(pixels)).numpy()

    return encode


def by_onnxruntime(graph: bytes, threads: int) -> Encode:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda pixels: session.run(None, {name: pixels})[0]


def by_openvino(openvino: Any, graph: bytes, threads: int, shape: tuple[int, ...]) -> Encode:
    model = openvino.Core().read_model(io.BytesIO(graph))
    model.reshape(list(shape))
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
    }
    free: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for _ in range(max(THREADS)):  # a model of its own is run by the thread that asks
        compiled = openvino.Core().compile_model(model, "CPU", settings)
        free.put(compiled.create_infer_request())

    def encode(pixels: Pixels) -> Any:
        request = free.get()
        try:
            return request.infer([pixels])[0].copy()
        finally:
            free.put(request)

    return encode


def imported_openvino() -> Any:
    """None if it is not installed. Its telemetry would report the import to a server: it is not loaded."""
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    try:
        return importlib.import_module("openvino")
    except ImportError:
        return None


def one_by_one(encode: Encode, threads: int) -> Encode:
    """Single images, each in one of several threads."""
    pool = ThreadPoolExecutor(threads)
    return lambda pixels: np.concatenate(list(pool.map(encode, pixels[:, None])))


def measure(device: torch.device, quick: bool) -> dict[str, Any]:
    """On the CPU, wherever the others are."""
    rounds, batches, openvino = (1, (1, 2), None) if quick else (5, BATCHES, imported_openvino())
    rows: list[dict[str, Any]] = []
    load = os.getloadavg()[0]
    for name in ENCODERS[:1] if quick else ENCODERS:
        encoder = open_encoder(name)
        shape = (max(batches), encoder.height, encoder.width, 3)
        images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        truth = by_torch(encoder, 1)(images)
        graph = graph_of(onnx, encoder.module, *shape[1:3], encoder.features)
        for threads in THREADS:
            for batch in batches:
                works = {
                    "torch": by_torch(encoder, threads),
                    "onnxruntime": by_onnxruntime(graph, threads),
                }
                if openvino is not None:
                    works["OpenVINO"] = by_openvino(openvino, graph, threads, (batch, *shape[1:]))
                if batch == max(batches):
                    alone = {"torch": by_torch(encoder, 1), "onnxruntime": by_onnxruntime(graph, 1)}
                    if openvino is not None:
                        alone["OpenVINO"] = by_openvino(openvino, graph, 1, (1, *shape[1:]))
                    for who, encode in alone.items():
                        works[f"{who}, one by one"] = one_by_one(encode, threads)
                for who, seconds in best_of(works, images[:batch], rounds).items():
                    found = works[who](images[:batch])
                    row = {"encoder": name, "threads": threads, "batch": batch, "runtime": who}
                    row["images_per_second"] = round(batch / seconds, 1)
                    row["difference"] = float(np.abs(found - truth[:batch]).max())
                    rows.append(row)
    found_versions = {"onnxruntime": onnxruntime, "OpenVINO": openvino}
    settings = {
        "rounds": rounds,
        "runtimes": {
            who: one.__version__.partition("-")[0] for who, one in found_versions.items() if one
        },
        "load_average_before": load,
    }
    return result("runtimes", torch.device("cpu"), quick, settings, rows)


def best_of(works: dict[str, Encode], images: Pixels, rounds: int) -> dict[str, float]:
    best = dict.fromkeys(works, float("inf"))
    for place in range(rounds + 1):
        for who, work in works.items():
            begun = time.perf_counter()
            work(images)
            if place:  # the first is a warm-up
                best[who] = min(best[who], time.perf_counter() - begun)
    return best


if __name__ == "__main__":
    command("runtimes", measure)
