"""An encoder, and the session of onnxruntime that runs it.

Letters: B images, V views of an image, H x W pixels, C channels, D features.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semishot.data.framing import Both, Framing, Middle, Whole, to_json
from semishot.errors import InputError, reason_of
from semishot.sorter.boxes import Boxes
from semishot.sorter.encoders.encoder_options import View
from semishot.sorter.encoders.graph_builder import OnnxGraph

Pixels = NDArray[np.uint8]
Features = NDArray[np.float32]
BATCH_ON_GPU = 64
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


Network = Callable[[Pixels], Features]
"""Images (B, V H, W, C), one view above the other -> features (B, D), their mean; in any thread."""


@dataclass(frozen=True)
class ImageEncoder:
    """An encoder: it turns opened images into features."""

    name: str
    """The name, as given to `--encoder`."""
    prepare: Framing
    """An opened image -> uint8 (H, W, C)."""
    features: int
    """D."""
    identity: str
    """A digest of the weights and of how images are prepared: it changes if the features do."""
    network: Callable[[str], Network]
    """What runs it on a device: auto, cpu, cuda or cuda:N. The first call loads it."""
    draw: Callable[[OnnxGraph, str], str]
    """Adds it to a graph: from images, uint8 (B, H, W, C), to features (B, D)."""
    batch: int | None = None
    """The only number of images that its graph takes."""
    save: Callable[[Path], dict[str, Any]] = lambda folder: {}
    """Writes weights that do not come with a package to a folder; returns fields of `encoder.json`."""
    notes: tuple[str, ...] = ()
    """What was assumed about it, for the user."""
    notice: str = ""
    """The license of its weights."""
    boxes: Boxes | None = None
    """What is seen of each file instead of the frame."""
    cropped: bool = False
    """Whether its features were made with boxes, also if it was loaded without them."""
    embed_names: Callable[[Sequence[str]], Features] | None = None
    """Names of classes -> (N, D), if it was trained with texts."""

    @property
    def cached_as(self) -> str:
        """Its identity, and which boxes it sees: features of others are others."""
        seen = f"{self.identity} {self.boxes.digest}" if self.boxes is not None else ""
        return hashlib.sha256(seen.encode()).hexdigest() if seen else self.identity

    @property
    def shape(self) -> tuple[int, int, int]:
        """H, W, C."""
        return self.prepare.height, self.prepare.width, self.prepare.channels

    def encode(self, images: ArrayLike) -> Features:
        """Prepared images, uint8 (B, H, W, C) -> features, float32 (B, D), on the CPU."""
        return self.network("cpu")(np.asarray(images, np.uint8))


def viewed(encoder: ImageEncoder, view: View) -> ImageEncoder:
    """An encoder of the middle that sees the whole image instead, or both: the mean of their features."""
    middle, draw = encoder.prepare, encoder.draw
    assert isinstance(middle, Middle)
    height, width, channels = encoder.shape
    framing: Framing = middle
    if view == "whole":
        framing = Whole(height, width, channels, middle.bicubic)
    elif view == "both":
        framing = Both(height, width, middle.share, channels, middle.bicubic)

        def draw(graph: OnnxGraph, images: str) -> str:
            views = graph.add("Reshape", images, [-1, height, width, channels])
            pairs = graph.add("Reshape", encoder.draw(graph, views), [-1, 2, encoder.features])
            return graph.add("ReduceMean", pairs, [1], keepdims=0)

    return replace(
        encoder,
        prepare=framing,
        identity=hashlib.sha256(f"{encoder.identity} {to_json(framing)}".encode()).hexdigest(),
        draw=draw,
        save=lambda folder: {"view": view, **encoder.save(folder)},
    )


def loader(
    draw: Callable[[OnnxGraph, str], str], shape: Sequence[int], batch: int | None = None
) -> Callable[[str], Network]:
    """What runs a graph from images of this shape (H, W, C) on a device; the graph is drawn once.

    batch: the only number of images that it takes.
    """
    loading = threading.Lock()

    @cache
    def load(device: str) -> Network:
        graph = OnnxGraph()
        output = draw(graph, "images")
        inputs = {"images": ("uint8", (batch or "batch", *shape))}
        return GraphNetwork(
            graph.model(inputs, {output: ("float32", ("batch", "features"))}), device
        )

    def network(device: str) -> Network:
        with loading:  # the first thread loads it; meanwhile, others decode
            return load(device)

    return network


class GraphNetwork:
    """A graph from single views to features.

    On a CPU, each view is encoded alone and on one core: its features are the same bits whatever is encoded
    beside it, and cores need not wait for each other.
    """

    def __init__(self, graph: bytes, device: str) -> None:
        self.session = open_session(graph, device)
        batch, *self.shape = self.session.get_inputs()[0].shape
        self.batch = batch if isinstance(batch, int) else usual_batch(device)

    def __call__(self, images: Pixels) -> Features:
        views = images.reshape(-1, *self.shape)  # (B V, H, W, C)
        missing = -len(views) % self.batch
        filled = np.concatenate([views, *[views[-1:]] * missing]) if missing else views
        parts = np.split(filled, len(filled) // self.batch)
        try:
            rows = np.concatenate([self.session.run(None, {"images": each})[0] for each in parts])
        except Exception as error:  # onnxruntime's own types
            raise InputError(
                f"the encoder cannot be run on {self.batch} images at once ({reason_of(error)})"
            ) from error
        features: Features = rows[: len(views)].reshape(len(images), -1, rows.shape[1]).mean(1)
        return features


def usual_batch(device: str) -> int:
    """How many images are encoded at once on a device."""
    return BATCH_ON_GPU if CUDA in providers(device) else 1


def providers(device: str) -> list[str]:
    """Of onnxruntime, the best first."""
    import onnxruntime

    if device != "cpu" and CUDA in onnxruntime.get_available_providers():
        return [CUDA, CPU]
    if device.startswith("cuda"):
        raise InputError(
            f"--device {device}: onnxruntime is installed without CUDA (onnxruntime-gpu)"
        )
    return [CPU]


def open_session(graph: bytes, device: str = "cpu") -> Any:
    """A session of onnxruntime with one thread, on the GPU if its CUDA provider is installed.

    device: auto, cpu, cuda or cuda:N.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    number = {"device_id": device.partition(":")[2] or "0"}
    wanted = [(CUDA, number) if name == CUDA else name for name in providers(device)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # the thread that asks is the one that works
    options.log_severity_level = 4  # errors are raised; they need not be printed too
    try:
        return onnxruntime.InferenceSession(graph, options, providers=wanted)
    except Exception as error:  # its own types
        raise InputError(f"onnxruntime cannot open the graph ({reason_of(error)})") from error
