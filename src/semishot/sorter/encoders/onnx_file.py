"""`--encoder onnx:FILE`: any image model as an encoder.

Layout and type of its input are read from the file; size and scale of images come from flags, from the
file's metadata, or from a rule. No library of custom operators is loaded.
Letters: B images, H x W pixels, C channels, T tokens, D features.
"""

import hashlib
import importlib
import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from semishot.data.framing import MOST_SIDE, Middle
from semishot.errors import InputError, needing_extra, reason_of
from semishot.sorter.encoders.encoder_options import GRAPH, OnnxOptions
from semishot.sorter.encoders.networks import (
    BATCH_ON_GPU,
    CUDA,
    Features,
    ImageEncoder,
    Network,
    Pixels,
    open_session,
)
from semishot.system.files import read_regular, write_whole
from semishot.system.structs import from_json

MOST_BYTES = 2**31 - 1
"""The most that one ONNX file can hold, weights included."""
FLOATS = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
}
UINT8 = "tensor(uint8)"
POOLED = ("image_embeds", "pooler_output", "image_features", "embedding", "embeddings", "features")
"""Outputs that are taken for the features, the first of these that a file has."""
MOST_AT_ONCE = 1024
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CROP = 0.875
ASSUMED_SCALE = (
    "pixels were scaled by ImageNet's mean and std: --encoder-mean and --encoder-std change it"
)


@dataclass(frozen=True)
class OnnxPreparation:
    """How an image becomes the input of an ONNX file, and which of its outputs are the features."""

    height: int
    width: int
    channels: int
    crop: float
    mean: tuple[float, ...]
    """Of each channel, on the scale of 0 to 1; empty if the file takes uint8 pixels."""
    std: tuple[float, ...]
    output: str
    tokens: Literal["first", "mean"]

    def __post_init__(self) -> None:
        if not all(1 <= side <= MOST_SIDE for side in (self.height, self.width)):
            raise InputError(
                f"the size must be 1 to {MOST_SIDE} pixels, not {self.height} x {self.width}"
            )
        if self.channels not in (1, 3):
            raise InputError(f"images have 1 or 3 channels, not {self.channels}")
        if not 0 < self.crop <= 1:
            raise InputError(f"the crop must be above 0 and at most 1, not {self.crop}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (0, self.channels) or not np.isfinite(values).all():
                raise InputError(f"the {name} must be {self.channels} numbers, not {values}")
        if len(self.mean) != len(self.std) or any(value <= 0 for value in self.std):
            raise InputError(f"the std must be positive, not {self.std}")

    @property
    def framing(self) -> Middle:
        return Middle(self.height, self.width, self.crop, self.channels)


class OnnxNetwork:
    """uint8 (B, H, W, C) -> float32 (B, D), by the user's graph."""

    def __init__(self, data: bytes, name: str, device: str = "cpu") -> None:
        self.data, self.name = data, name
        try:
            self.session = open_session(data, device)
            self.metadata = self.session.get_modelmeta().custom_metadata_map
            inputs = self.session.get_inputs()
            self.outputs = {value.name: value for value in self.session.get_outputs()}
            self.on_gpu = CUDA in self.session.get_providers()
        except UnicodeDecodeError as error:
            raise InputError(f"onnxruntime cannot open {name} ({reason_of(error)})") from error
        except InputError as error:
            raise InputError(f"{name}: {error}") from error
        self.input = _checked_input(inputs, name)
        self.shape = list(self.input.shape)
        self.channels_last = _channels_last(self.shape, name)
        fixed = self.fixed_batch = isinstance(self.shape[0], int)
        self.batch = self.shape[0] if fixed else BATCH_ON_GPU if self.on_gpu else 1
        if not 1 <= self.batch <= MOST_AT_ONCE:
            raise InputError(f"{name} takes {self.batch:,} images at once, not 1 to {MOST_AT_ONCE}")

    def prepare(self, preparation: OnnxPreparation) -> int:
        """Set how images are prepared, and try it on noise; returns D."""
        self.preparation = preparation
        if bool(preparation.mean) == (self.input.type == UINT8):
            raise InputError(
                f"{self.name} takes {self.input.type}, which contradicts its mean and std"
            )
        _chosen_output(self, preparation.output)
        shape = (self.batch, preparation.height, preparation.width, preparation.channels)
        return int(self(np.random.default_rng(0).integers(0, 256, shape, np.uint8)).shape[1])

    def __call__(self, images: Pixels) -> Features:
        return self.pooled(self.run(self.scaled(images)))

    def scaled(self, images: Pixels) -> NDArray[Any]:
        """uint8 (B, H, W, C) -> what the file takes: scaled, in its layout and type."""
        values: NDArray[Any] = images
        if self.preparation.mean:
            mean, std = (
                np.array([255 * value for value in values], np.float32)
                for values in (self.preparation.mean, self.preparation.std)
            )
            values = ((images - mean) / std).astype(FLOATS[self.input.type])
        return np.ascontiguousarray(values if self.channels_last else values.transpose(0, 3, 1, 2))

    def run(self, images: NDArray[Any]) -> NDArray[Any]:
        """The output of one batch, before pooling."""
        name = self.preparation.output
        try:
            values = np.asarray(self.session.run([name], {self.input.name: images})[0])
        except Exception as error:  # onnxruntime's own types
            raise InputError(
                f"{self.name} cannot be run on images {images.shape} ({reason_of(error)})"
            ) from error
        if values.ndim not in (2, 3, 4) or len(values) != len(images) or 0 in values.shape:
            raise InputError(
                f"{self.name}: its output {name!r} has the shape {values.shape} for {len(images)} images, "
                "not (images, features); name another with --encoder-output"
            )
        return values

    def pooled(self, values: NDArray[Any]) -> Features:
        """(B, D) as it is; (B, T, D): the first token or the mean over tokens; maps: the mean over each."""
        values = values.astype(np.float32)
        if values.ndim == 4:
            values = values.mean((1, 2) if self.channels_last else (2, 3))
        elif values.ndim == 3:
            values = values[:, 0] if self.preparation.tokens == "first" else values.mean(1)
        return values


def open_onnx(name: str, path: Path, how: OnnxOptions | OnnxPreparation) -> ImageEncoder:
    """The encoder of a file, prepared by options or as it was saved."""
    data, notes = read_onnx(path), list[str]()
    on_cpu = OnnxNetwork(data, str(path))
    if isinstance(how, OnnxPreparation):
        preparation = how
    else:
        preparation, notes = choose_preparation(on_cpu, how)
    features = on_cpu.prepare(preparation)

    @cache
    def load(device: str) -> Network:
        network = on_cpu if device == "cpu" else OnnxNetwork(data, str(path), device)
        network.prepare(preparation)
        return network

    def save(folder: Path) -> dict[str, Any]:
        write_whole(folder / GRAPH, data)
        return {"onnx": asdict(preparation)}

    whole = hashlib.sha256(data)
    whole.update(json.dumps(asdict(preparation), sort_keys=True).encode())
    framing, identity = preparation.framing, whole.hexdigest()
    return ImageEncoder(name, framing, features, identity, load, save, tuple(notes))


def choose_preparation(
    network: OnnxNetwork, options: OnnxOptions
) -> tuple[OnnxPreparation, list[str]]:
    """The preparation by flags, by the file's metadata, or by rule; and what was assumed."""
    chosen = _with_metadata(network, options)
    _, *axes = network.shape
    height, width, channels = axes if network.channels_last else (axes[1], axes[2], axes[0])
    channels = channels if isinstance(channels, int) else 3
    height, width = (_side(network, side, chosen.encoder_size) for side in (height, width))
    mean, std, notes = _scale(network, chosen, channels)
    crop = CROP if chosen.encoder_crop is None else chosen.encoder_crop
    output = _chosen_output(network, chosen.encoder_output)
    tokens = chosen.encoder_tokens or "first"
    return OnnxPreparation(height, width, channels, crop, mean, std, output, tokens), notes


def _with_metadata(network: OnnxNetwork, options: OnnxOptions) -> OnnxOptions:
    """The options, completed by the file's metadata of the same names, each a value as JSON."""
    given: dict[str, Any] = asdict(options)
    for name in [name for name, value in given.items() if value is None]:
        if (text := network.metadata.get(name)) is not None:
            try:
                value = json.loads(text)
            except ValueError:  # a bare word
                value = text
            scale = name in ("encoder_mean", "encoder_std") and not isinstance(value, list)
            given[name] = [value] if scale else value
    return from_json(OnnxOptions, given, f"{network.name}: its metadata")


def _side(network: OnnxNetwork, side: int | str | None, wanted: int | None) -> int:
    """The height or width: the file's, if it is fixed there."""
    if isinstance(side, int):
        if wanted not in (None, side):
            raise InputError(
                f"{network.name} takes images of {side} pixels, not {wanted}: drop --encoder-size"
            )
        return side
    if wanted is None:
        raise InputError(f"{network.name} takes images of any size: pass --encoder-size PIXELS")
    return wanted


def _scale(
    network: OnnxNetwork, options: OnnxOptions, channels: int
) -> tuple[tuple[float, ...], tuple[float, ...], list[str]]:
    """Mean and std of each channel; and what was assumed."""
    mean, std = options.encoder_mean, options.encoder_std
    if network.input.type == UINT8:
        if mean or std:
            raise InputError(
                f"{network.name} takes uint8 pixels: drop --encoder-mean and --encoder-std"
            )
        return (), (), []
    if (mean is None) != (std is None):
        raise InputError("pass both --encoder-mean and --encoder-std, or neither")
    if mean is None or std is None:
        if channels == 1:
            return (sum(IMAGENET_MEAN) / 3,), (sum(IMAGENET_STD) / 3,), [ASSUMED_SCALE]
        return IMAGENET_MEAN, IMAGENET_STD, [ASSUMED_SCALE]
    mean, std = (values * channels if len(values) == 1 else values for values in (mean, std))
    return mean, std, []


def _checked_input(inputs: list[Any], name: str) -> Any:
    if len(inputs) != 1:
        names = ", ".join(value.name for value in inputs)[:120] or "none"
        raise InputError(
            f"{name} has {len(inputs)} inputs ({names}), not one: export the part that takes images"
        )
    (value,) = inputs
    if len(value.shape) != 4:
        raise InputError(
            f"{name}: its input {value.name!r} has {len(value.shape)} axes, not 4: (images, channels, "
            "height, width) or (images, height, width, channels)"
        )
    if value.type != UINT8 and value.type not in FLOATS:
        raise InputError(f"{name}: its input {value.name!r} is {value.type}, not float or uint8")
    return value


def _channels_last(shape: list[Any], name: str) -> bool:
    """Where the channels are: 1 or 3 fixed, first axis before last; by name otherwise, or first."""
    if shape[1] in (1, 3):
        return False
    if shape[3] in (1, 3):
        return True
    if isinstance(shape[1], int):
        raise InputError(f"{name} takes images {shape}, without an axis of 1 or 3 channels")
    return "channel" in str(shape[3]).lower()


def _chosen_output(network: OnnxNetwork, wanted: str | None) -> str:
    """The output with the features."""
    outputs, name = network.outputs, wanted
    listed = ", ".join(outputs)[:200]
    if wanted is not None and wanted not in outputs:
        raise InputError(f"{network.name} has no output {wanted!r:.80}, but {listed}")
    if name is None and len(outputs) > 1:
        flat = [name for name, value in outputs.items() if len(value.shape or ()) == 2]
        pooled = [name for name in POOLED if name in outputs]
        name = next(iter(pooled or (flat if len(flat) == 1 else [])), None)
        if name is None:
            raise InputError(
                f"{network.name} has {len(outputs)} outputs: name the one with the features, "
                f"--encoder-output {listed}"
            )
    name = name or next(iter(outputs))
    if outputs[name].type not in FLOATS:
        raise InputError(f"{network.name}: its output {name!r} is {outputs[name].type}, not float")
    return name


def onnx_package(name: str, purpose: str) -> Any:
    """A module of the extra `onnx`."""
    with needing_extra(purpose):
        return importlib.import_module(name)


def read_onnx(path: Path) -> bytes:
    """The graph with its weights inside; those in other files are read from the same folder only."""
    try:
        data = read_regular(path, MOST_BYTES)
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    if b"location" not in data:  # the key of a tensor that lies in another file
        return data
    onnx = onnx_package("onnx", "an ONNX file with weights in other files")
    try:
        model = onnx.load_model_from_string(data)
        onnx.load_external_data_for_model(model, str(path.parent))
        whole: bytes = model.SerializeToString(deterministic=True)
    except Exception as error:  # a missing file, one outside the folder, damaged content
        raise InputError(
            f"cannot read {path} with its weights ({reason_of(error)}); put them beside it, or save the "
            "model as one file"
        ) from error
    return whole
