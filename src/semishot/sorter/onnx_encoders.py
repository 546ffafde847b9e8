"""`--encoder onnx:FILE`: any image model as an encoder, run by onnxruntime on the CPU.

The layout and type of the input are read from the file; size, scale and output from flags, from the file's
metadata, or by rule. Letters: B images, H x W pixels, C channels, T tokens, D features.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from semishot.data.framing import MOST_SIDE, Middle
from semishot.errors import InputError
from semishot.sorter.onnx_files import imported, one_line
from semishot.sorter.requests import OnnxOptions

__all__ = ["OnnxModule", "Preparation", "chosen", "framing_of", "open_onnx"]

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CROP = 0.875
FLOATS = {
    "tensor(float)": torch.float32,
    "tensor(float16)": torch.float16,
    "tensor(double)": torch.float64,
}
PIXELS = "tensor(uint8)"
POOLED = ("image_embeds", "pooler_output", "image_features", "embedding", "embeddings", "features")
"""Outputs that are taken for the features, the first of these that a file has."""
MOST_AT_ONCE = 1024
PURPOSE = "an ONNX encoder"


@dataclass(frozen=True)
class Preparation:
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


class Scaling(nn.Module):
    """uint8 (B, H, W, C) -> what the file takes: scaled, in its layout."""

    def __init__(self, preparation: Preparation, dtype: torch.dtype, channels_last: bool) -> None:
        super().__init__()
        self.dtype, self.channels_last = dtype, channels_last
        self.mean = [255 * value for value in preparation.mean]
        self.std = [255 * value for value in preparation.std]

    def forward(self, images: Tensor) -> Tensor:
        if self.mean:
            images = (images.float() - torch.tensor(self.mean)) / torch.tensor(self.std)
        images = images.to(self.dtype)
        return images if self.channels_last else images.permute(0, 3, 1, 2)


class Pooling(nn.Module):
    """(B, D) as it is; (B, T, D): the first token or the mean over tokens; maps: the mean over each."""

    def __init__(self, tokens: str, channels_last: bool) -> None:
        super().__init__()
        self.tokens, self.channels_last = tokens, channels_last

    def forward(self, found: Tensor) -> Tensor:
        found = found.float()
        if found.ndim == 4:
            return found.mean((1, 2) if self.channels_last else (2, 3))
        if found.ndim == 3:
            return found[:, 0] if self.tokens == "first" else found.mean(1)
        return found


class OnnxModule(nn.Module):
    """uint8 (B, H, W, C) -> float32 (B, D), by onnxruntime. `prepare` completes it."""

    preparation: Preparation
    features: int

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__()
        self.data, self.name = data, name
        self.session = session_of(data, name)
        self.takes = single_input(self.session, name)
        first = self.takes.shape[0]
        self.batch: int | None = first if isinstance(first, int) else None
        if self.batch is not None and not 1 <= self.batch <= MOST_AT_ONCE:
            raise InputError(f"{name} takes {first:,} images at once, not 1 to {MOST_AT_ONCE}")
        self.channels_last = is_channels_last(self.takes.shape, name)

    def prepare(self, preparation: Preparation) -> None:
        """Set how images are prepared, and try it on noise."""
        self.preparation = preparation
        dtype = FLOATS.get(self.takes.type, torch.uint8)
        self.scaling = Scaling(preparation, dtype, self.channels_last)
        self.pooling = Pooling(preparation.tokens, self.channels_last)
        shape = (2, preparation.height, preparation.width, preparation.channels)
        noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        found = self(torch.from_numpy(noise))
        self.features = int(found.shape[1])
        if not found.isfinite().all():
            raise InputError(
                f"{self.name}: its output {preparation.output!r} is not finite for an image of noise; "
                "check --encoder-mean and --encoder-std"
            )

    def forward(self, images: Tensor) -> Tensor:
        scaled = self.scaling(images.cpu()).contiguous().numpy()
        size = self.batch or len(scaled)
        parts = []
        for start in range(0, len(scaled), size):
            part = scaled[start : start + size]
            filled = np.concatenate([part, *[part[-1:]] * (size - len(part))])  # a fixed batch
            parts.append(self.run(filled)[: len(part)])
        features: Tensor = self.pooling(torch.from_numpy(np.concatenate(parts)))
        return features.to(images.device)

    def run(self, given: NDArray[Any]) -> NDArray[Any]:
        """The output of one batch, before pooling."""
        name = self.preparation.output
        try:
            found = np.asarray(self.session.run([name], {self.takes.name: given})[0])
        except Exception as error:  # onnxruntime's own types
            raise InputError(
                f"{self.name} cannot be run on images {given.shape} ({one_line(error)})"
            ) from error
        if found.ndim not in (2, 3, 4) or len(found) != len(given) or 0 in found.shape:
            raise InputError(
                f"{self.name}: its output {name!r} has the shape {found.shape} for {len(given)} images, "
                "not (images, features); name another with --encoder-output"
            )
        return found


def session_of(data: bytes, name: str) -> Any:
    """onnxruntime on the CPU, with as many threads as torch has, which do not spin while they wait."""
    runtime = imported("onnxruntime", PURPOSE)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # errors are raised; they need not be printed too
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = runtime.InferenceSession(
            data, options, providers=["CPUExecutionProvider"], enable_fallback=0
        )
        read_names(session)
        return session
    except Exception as error:
        raise InputError(f"onnxruntime cannot open {name} ({one_line(error)})") from error


def read_names(session: Any) -> list[Any]:
    """All that is read later: names that are not UTF-8 are an error now."""
    about = session.get_modelmeta().custom_metadata_map
    return [about, *((o.name, o.shape) for o in (*session.get_inputs(), *session.get_outputs()))]


def single_input(session: Any, name: str) -> Any:
    inputs = session.get_inputs()
    if len(inputs) != 1:
        found = ", ".join(one.name for one in inputs)[:120] or "none"
        raise InputError(
            f"{name} has {len(inputs)} inputs ({found}), not one: export the part that takes images"
        )
    (takes,) = inputs
    if len(takes.shape) != 4:
        raise InputError(
            f"{name}: its input {takes.name!r} has {len(takes.shape)} axes, not 4: (images, channels, "
            "height, width) or (images, height, width, channels)"
        )
    if takes.type != PIXELS and takes.type not in FLOATS:
        raise InputError(f"{name}: its input {takes.name!r} is {takes.type}, not float or uint8")
    return takes


def is_channels_last(shape: list[Any], name: str) -> bool:
    """Where the channels are: 1 or 3 fixed, first place before last; by name otherwise, or first."""
    if shape[1] in (1, 3):
        return False
    if shape[3] in (1, 3):
        return True
    if isinstance(shape[1], int):
        raise InputError(f"{name} takes images {shape}, without an axis of 1 or 3 channels")
    return "channel" in str(shape[3]).lower()


def chosen(module: OnnxModule, options: OnnxOptions) -> tuple[Preparation, list[str]]:
    """The preparation by flags, the file's metadata, or rule; and what was assumed."""
    told = metadata(module, options)
    last = module.channels_last
    _, *axes = module.takes.shape
    height, width, channels = axes if last else (axes[1], axes[2], axes[0])
    channels = channels if isinstance(channels, int) else 3
    height, width = (side_of(module, side, told.encoder_size) for side in (height, width))
    mean, std, assumed = scale_of(module, told, channels)
    output = output_of(module, told.encoder_output)
    tokens = told.encoder_tokens or "first"
    crop = CROP if told.encoder_crop is None else told.encoder_crop
    found = Preparation(height, width, channels, crop, mean, std, output, tokens)
    return found, assumed


def side_of(module: OnnxModule, side: int | str | None, wanted: int | None) -> int:
    """The height or width: the file's, if it is fixed there."""
    if isinstance(side, int):
        if wanted not in (None, side):
            raise InputError(
                f"{module.name} takes images of {side} pixels, not {wanted}: leave --encoder-size"
            )
        return side
    if wanted is None:
        raise InputError(f"{module.name} takes images of any size: pass --encoder-size PIXELS")
    return wanted


def scale_of(
    module: OnnxModule, told: OnnxOptions, channels: int
) -> tuple[tuple[float, ...], tuple[float, ...], list[str]]:
    """Mean and std of each channel; and what was assumed."""
    mean, std = told.encoder_mean, told.encoder_std
    if module.takes.type == PIXELS:
        if mean or std:
            raise InputError(
                f"{module.name} takes uint8 pixels: leave --encoder-mean and --encoder-std"
            )
        return (), (), []
    if (mean is None) != (std is None):
        raise InputError("pass both --encoder-mean and --encoder-std, or neither")
    if mean is None or std is None:
        said = "pixels were scaled by ImageNet's mean and std: --encoder-mean and --encoder-std change it"
        if channels == 1:
            return (sum(IMAGENET_MEAN) / 3,), (sum(IMAGENET_STD) / 3,), [said]
        return IMAGENET_MEAN, IMAGENET_STD, [said]
    each = [values * channels if len(values) == 1 else values for values in (mean, std)]
    return tuple(each[0]), tuple(each[1]), []


def output_of(module: OnnxModule, wanted: str | None) -> str:
    """The output with the features."""
    outputs = {one.name: one for one in module.session.get_outputs()}
    listed = ", ".join(outputs)[:200]
    flat = [name for name, one in outputs.items() if len(one.shape or ()) == 2]
    if wanted is not None and wanted not in outputs:
        raise InputError(f"{module.name} has no output {wanted!r:.80}, but {listed}")
    named = [name for name in POOLED if name in outputs]
    if wanted is not None:
        name = wanted
    elif len(outputs) == 1:
        (name,) = outputs
    elif named:
        name = named[0]
    elif len(flat) == 1:
        (name,) = flat
    else:
        raise InputError(
            f"{module.name} has {len(outputs)} outputs: name the one with the features, "
            f"--encoder-output {listed}"
        )
    if outputs[name].type not in FLOATS:
        raise InputError(f"{module.name}: its output {name!r} is {outputs[name].type}, not float")
    return str(name)


def metadata(module: OnnxModule, options: OnnxOptions) -> OnnxOptions:
    """The options, completed by the file's metadata of the same names, each a value as JSON."""
    stored = module.session.get_modelmeta().custom_metadata_map
    found: dict[str, Any] = {}
    for name, given in asdict(options).items():
        if given is not None or name not in stored:
            found[name] = given
            continue
        try:
            value = json.loads(stored[name])
        except ValueError:  # a bare word
            value = stored[name]
        if name in ("encoder_mean", "encoder_std"):
            value = tuple(value) if isinstance(value, list) else (value,)
        found[name] = value
    try:
        return OnnxOptions(**found)
    except InputError as error:
        raise InputError(f"{module.name}: in its metadata, {error}") from error


def framing_of(preparation: Preparation) -> Middle:
    p = preparation
    return Middle(p.height, p.width, p.crop, p.channels)


def open_onnx(path: Path, data: bytes, preparation: Preparation) -> OnnxModule:
    """The module of a saved encoder; its description may contradict the file."""
    module = OnnxModule(data, str(path))
    output_of(module, preparation.output)
    if bool(preparation.mean) == (module.takes.type == PIXELS):
        raise InputError(f"{path} takes {module.takes.type}, which contradicts its mean and std")
    module.prepare(preparation)
    return module
