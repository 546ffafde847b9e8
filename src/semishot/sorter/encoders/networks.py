"""An encoder, and the session of onnxruntime that runs it.

Letters: B images, H x W pixels, C channels, D features.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

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


class Network(Protocol):
    """Images (B, H, W, C) -> features (B, D)."""

    batch: int
    """B. 1: single images, in any number of threads."""

    def __call__(self, images: Pixels) -> Features: ...


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
        given, network = np.asarray(images, np.uint8), self.network("cpu")
        starts = range(0, len(given), network.batch)
        return np.concatenate(
            [encode_batch(network, given[start : start + network.batch]) for start in starts]
        )


def viewed(encoder: ImageEncoder, view: View) -> ImageEncoder:
    """An encoder of the middle that sees the whole image instead, or both: the mean of their features."""
    middle = encoder.prepare
    assert isinstance(middle, Middle)
    height, width, channels = encoder.shape
    framing: Framing = middle
    changed: dict[str, Any] = {}
    if view == "whole":
        framing = Whole(height, width, channels, middle.bicubic)
    elif view == "both":
        framing = Both(height, width, middle.share, channels, middle.bicubic)

        def draw(graph: OnnxGraph, images: str) -> str:
            views = graph.add("Reshape", images, graph.integers(-1, height, width, channels))
            features = graph.integers(-1, 2, encoder.features)
            pairs = graph.add("Reshape", encoder.draw(graph, views), features)
            return graph.add("ReduceMean", pairs, graph.integers(1), keepdims=0)

        def load(device: str) -> Network:
            return BothNetwork(encoder.network(device), (-1, height, width, channels))

        changed |= {"network": load, "draw": draw}
    identity = hashlib.sha256(f"{encoder.identity} {to_json(framing)}".encode()).hexdigest()
    changed["save"] = lambda folder: {"view": view, **encoder.save(folder)}
    return replace(encoder, prepare=framing, identity=identity, **changed)


class BothNetwork:
    """Images (B, 2 H, W, C), two views one above the other -> the mean of their features (B, D)."""

    def __init__(self, network: Network, view: tuple[int, ...]) -> None:
        self.network, self.view, self.batch = network, view, network.batch

    def __call__(self, images: Pixels) -> Features:
        views = images.reshape(self.view)  # (2 B, H, W, C)
        halves = np.concatenate([self.network(part) for part in np.split(views, 2)])  # (2 B, D)
        features: Features = halves.reshape(len(images), 2, -1).mean(1)
        return features


def encode_batch(network: Network, images: Pixels) -> Features:
    """At most as many images as the network takes; filled up, as in another size rounding differs."""
    missing = network.batch - len(images)
    filled = np.concatenate([images, *[images[-1:]] * missing]) if missing else images
    return network(filled)[: len(images)]


class GraphNetwork:
    """A graph of ours, from pixels to features.

    On a CPU, each image is encoded alone and on one core: its features are the same bits whatever is encoded
    beside it, and cores need not wait for each other.
    """

    def __init__(self, graph: bytes, device: str) -> None:
        self.session = open_session(graph, device)
        self.batch = BATCH_ON_GPU if CUDA in self.session.get_providers() else 1
        self.input = self.session.get_inputs()[0].name

    def __call__(self, images: Pixels) -> Features:
        features: Features = self.session.run(None, {self.input: images})[0]
        return features


def open_session(graph: bytes, device: str = "cpu") -> Any:
    """A session of onnxruntime with one thread, on the GPU if its CUDA provider is installed.

    device: auto, cpu, cuda or cuda:N.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    providers: list[Any] = [CPU]
    if device != "cpu" and CUDA in onnxruntime.get_available_providers():
        number = device.partition(":")[2] or "0"
        providers = [(CUDA, {"device_id": number}), CPU]
    elif device.startswith("cuda"):
        raise InputError(
            f"--device {device}: onnxruntime is installed without CUDA (onnxruntime-gpu)"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # the thread that asks is the one that works
    options.log_severity_level = 4  # errors are raised; they need not be printed too
    try:
        return onnxruntime.InferenceSession(graph, options, providers=providers)
    except Exception as error:  # its own types
        raise InputError(f"onnxruntime cannot open the graph ({reason_of(error)})") from error
