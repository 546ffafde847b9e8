"""What runs an encoder: onnxruntime, for everything that is a graph. Torch's networks have the same form.

Letters: B images, H x W pixels, C channels, D features.
"""

import os
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from semishot.errors import InputError, reason_of

Pixels = NDArray[np.uint8]
Features = NDArray[np.float32]
BATCH_ON_GPU = 64
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


class Network(Protocol):
    """Images (B, H, W, C) -> features (B, D)."""

    batch: int
    """Images to be given at once. 1: single images, in any number of threads."""

    def __call__(self, images: Pixels) -> Features: ...


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


class Batches:
    """Images one by one -> features, in batches of the size that a network takes.

    The last batch is filled up: of another size, features would be rounded differently.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.waiting: dict[bytes, Pixels] = {}

    def take(self, digest: bytes, pixels: Pixels) -> dict[bytes, Features]:
        """The features of a full batch, once there is one."""
        self.waiting[digest] = pixels
        return self.rest() if len(self.waiting) == self.network.batch else {}

    def rest(self) -> dict[bytes, Features]:
        """The features of the images that still wait."""
        images, self.waiting = self.waiting, {}
        if not images:
            return {}
        pixels = list(images.values())
        filled = np.stack(pixels + pixels[-1:] * (self.network.batch - len(pixels)))
        return dict(zip(images, self.network(filled), strict=False))


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
