"""The preparation of an ONNX file's images, chosen by flags, by the file's metadata, or by rule."""

import json
from dataclasses import asdict
from typing import Any

from semishot.errors import InputError
from semishot.sorter.encoders.onnx_module import UINT8, OnnxModule, output_of
from semishot.sorter.encoders.onnx_options import OnnxOptions
from semishot.sorter.encoders.onnx_preparation import Preparation

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CROP = 0.875


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
                f"{module.name} takes images of {side} pixels, not {wanted}: drop --encoder-size"
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
    if module.takes.type == UINT8:
        if mean or std:
            raise InputError(
                f"{module.name} takes uint8 pixels: drop --encoder-mean and --encoder-std"
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
