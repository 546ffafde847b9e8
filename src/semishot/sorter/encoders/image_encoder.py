"""An image encoder: a framing and an ONNX graph, run by onnxruntime, and saved as just these.

Letters: B images, V views of an image, H x W pixels, C channels, D features.
"""

import hashlib
import importlib
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct, to_builtins
from numpy.typing import ArrayLike, NDArray

from semishot.data.framing import Both, Framing, Middle, Whole, to_json
from semishot.errors import InputError, reason_of
from semishot.sorter.boxes import Boxes, read_boxes
from semishot.sorter.encoders.names import DESCRIPTION, GRAPH, View
from semishot.system.files import read_regular, write_json, write_whole
from semishot.system.structs import read_struct

Pixels = NDArray[np.uint8]
Features = NDArray[np.float32]
NO_ENCODER = "features"
"""In place of an encoder's name: the classifier was given features."""
AGAIN = "run `semishot classify` again"
MOST_BYTES = 2**31 - 1
"""The most that one ONNX file can hold, weights included."""
BATCH_ON_GPU = 64
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


class EncoderDescription(Struct, omit_defaults=True):
    """The fields of `encoder.json`."""

    format: Literal[2]
    encoder: str
    identity: str = ""
    framing: Framing | None = None
    """None: there is no encoder, the classifier was given features."""
    features: int = 0
    batch: int | None = None
    notice: str = ""
    cropped: bool = False


@dataclass(frozen=True, eq=False)
class ImageEncoder:
    """An encoder: it turns opened images into features."""

    name: str
    """The name, as given to `--encoder`."""
    prepare: Framing
    """An opened image -> uint8 (H, W, C)."""
    features: int
    """D."""
    graph: bytes = field(repr=False)
    """ONNX: from single views, uint8 (B, H, W, C), to features (B, D)."""
    batch: int | None = None
    """The only number of views that its graph takes."""
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
    _sessions: dict[str, Any] = field(default_factory=dict, init=False, repr=False)
    _opening: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @cached_property
    def identity(self) -> str:
        """A digest of the graph and of how images are prepared: it changes if the features do."""
        return hashlib.sha256(to_json(self.prepare).encode() + self.graph).hexdigest()

    @property
    def cached_as(self) -> str:
        """Its identity, and which boxes it sees: features of others are others."""
        if self.boxes is None:
            return self.identity
        return hashlib.sha256(f"{self.identity} {self.boxes.digest}".encode()).hexdigest()

    @property
    def shape(self) -> tuple[int, int, int]:
        """H, W, C."""
        return self.prepare.height, self.prepare.width, self.prepare.channels

    @property
    def view_shape(self) -> tuple[int, int, int]:
        """H, W, C of one view; two of them lie above each other."""
        height, width, channels = self.shape
        return height // 2 if isinstance(self.prepare, Both) else height, width, channels

    def viewed(self, view: View) -> "ImageEncoder":
        """An encoder of the middle that sees the whole image instead, or both."""
        middle, (height, width, channels) = self.prepare, self.shape
        assert isinstance(middle, Middle)
        views: dict[View, Framing] = {
            "whole": Whole(height, width, channels, middle.bicubic),
            "middle": middle,
            "both": Both(height, width, middle.share, channels, middle.bicubic),
        }
        return replace(self, prepare=views[view])

    def with_boxes(self, crop: Path | None) -> "ImageEncoder":
        """An encoder that sees the boxes of a detector's file, if one is given."""
        return self if crop is None else replace(self, boxes=read_boxes(crop), cropped=True)

    def batch_size(self, device: str) -> int:
        """How many views are encoded at once. On a CPU each is encoded alone and on one core: its features
        are the same bits whatever is encoded beside it, and cores need not wait for each other."""
        return self.batch or (1 if providers(device) == [CPU] else BATCH_ON_GPU)

    def session(self, device: str) -> Any:
        """What runs the graph on a device, auto, cpu, cuda or cuda:N; opened when it is first used."""
        with self._opening:  # by the first thread; meanwhile, others decode
            if device not in self._sessions:
                self._sessions[device] = open_session(self.graph, device)
            return self._sessions[device]

    def encode(self, images: ArrayLike, device: str = "cpu") -> Features:
        """Prepared images, uint8 (B, H, W, C) -> features, float32 (B, D): the mean of their views."""
        pixels, batch = np.asarray(images, np.uint8), self.batch_size(device)
        views = pixels.reshape(-1, *self.view_shape)  # (B V, H, W, C)
        missing = -len(views) % batch
        filled = np.concatenate([views, *[views[-1:]] * missing]) if missing else views
        session = self.session(device)
        try:
            parts = np.split(filled, len(filled) // batch)
            rows = np.concatenate([session.run(None, {"images": each})[0] for each in parts])
        except Exception as error:  # onnxruntime's own types
            raise InputError(
                f"the encoder cannot be run on {batch} images at once ({reason_of(error)})"
            ) from error
        features: Features = rows[: len(views)].reshape(len(pixels), -1, rows.shape[1]).mean(1)
        return features


def save_encoder(encoder: ImageEncoder | None, folder: Path) -> None:
    """Write `encoder.json` and `encoder.onnx`: no other file is needed, not even a package with weights.

    None: there is no encoder, the classifier was given features.
    """
    saved = EncoderDescription(2, NO_ENCODER)
    if encoder is not None:
        about = encoder.name, encoder.identity, encoder.prepare, encoder.features, encoder.batch
        saved = EncoderDescription(2, *about, encoder.notice, encoder.cropped)
        write_whole(folder / GRAPH, encoder.graph)
    write_json(folder / DESCRIPTION, to_builtins(saved))


def load_encoder(folder: Path) -> ImageEncoder | None:
    """Read what `save_encoder` wrote; None if the model was given features. A changed graph is refused."""
    try:
        saved = read_struct(EncoderDescription, folder / DESCRIPTION)
        if saved.framing is None:
            return None
        graph = read_regular(folder / GRAPH, MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(
            f"no model in {folder}: `semishot classify` leaves one in OUT/model"
        ) from error
    except InputError as error:
        raise InputError(f"{error}; {AGAIN}") from error
    about = saved.encoder, saved.framing, saved.features, graph, saved.batch
    encoder = ImageEncoder(*about, notice=saved.notice, cropped=saved.cropped)
    if encoder.identity != saved.identity:
        raise InputError(f"{folder / GRAPH} is not the one of {folder / DESCRIPTION}; {AGAIN}")
    return encoder


def open_session(graph: bytes, device: str = "cpu") -> Any:
    """A session of onnxruntime with one thread, on the GPU if its CUDA provider is installed.

    device: auto, cpu, cuda or cuda:N.
    """
    onnxruntime = runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # the thread that asks is the one that works
    options.log_severity_level = 4  # errors are raised; they need not be printed too
    try:
        return onnxruntime.InferenceSession(graph, options, providers=providers(device))
    except Exception as error:  # its own types
        raise InputError(f"onnxruntime cannot open the graph ({reason_of(error)})") from error


def runtime() -> Any:
    """onnxruntime, which would leave files for its telemetry as soon as it is imported."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    return importlib.import_module("onnxruntime")


def providers(device: str) -> list[Any]:
    """Of onnxruntime, the best first."""
    onnxruntime = runtime()
    if device != "cpu" and CUDA in onnxruntime.get_available_providers():
        return [(CUDA, {"device_id": device.partition(":")[2] or "0"}), CPU]
    if device.startswith("cuda"):
        raise InputError(
            f"--device {device}: onnxruntime is installed without CUDA (onnxruntime-gpu)"
        )
    return [CPU]
