"""`--encoder onnx:FILE`: any image model as an encoder.

Layout and type of its input are read from the file; size and scale of images come from flags, or from a
rule. No library of custom operators is loaded.
Letters: B images, H x W pixels, C channels, T tokens, D features.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from semishot.data.framing import MOST_SIDE, Middle
from semishot.errors import InputError, reason_of
from semishot.sorter.encoders.graph import (
    FEATURES,
    IMAGES,
    TYPES,
    OnnxGraph,
    Value,
    node,
    read_model,
    tensors,
)
from semishot.sorter.encoders.image_encoder import (
    MOST_BYTES,
    ImageEncoder,
    Sessions,
    open_session,
)
from semishot.sorter.encoders.names import OnnxOptions
from semishot.system.files import read_regular, real_path

FLOATS = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64"}
UINT8 = "tensor(uint8)"
POOLED = ("image_embeds", "pooler_output", "image_features", "embedding", "embeddings", "features")
"""Outputs that are taken for the features, the first of these that a file has."""
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CROP = 0.875
ASSUMED_SCALE = (
    "pixels were scaled by ImageNet's mean and std: --encoder-mean and --encoder-std change it"
)
Scale = tuple[float, ...]
"""One number per channel."""


class ImageInput(NamedTuple):
    """What a file takes."""

    name: str
    type: str
    batch: int | None
    """The only number of images that it takes."""
    height: int
    width: int
    channels: int
    channels_last: bool

    def shape(self, batch: int) -> tuple[int, ...]:
        """Of an array for it."""
        sides = (self.height, self.width)
        return (
            (batch, *sides, self.channels) if self.channels_last else (batch, self.channels, *sides)
        )


def open_onnx(name: str, path: Path, options: OnnxOptions) -> ImageEncoder:
    """The encoder of a file, seeing the middle. The file is tried on noise."""
    data = read_onnx(path)
    try:
        session = open_session(data)
        image = image_input(session.get_inputs(), options.encoder_size)
        scale = scale_of(image, options)
        output = output_of(session.get_outputs(), options.encoder_output)
        shape = output_shape(session, image, output)
        graph = OnnxGraph()
        batch = image.batch or "batch"
        images = graph.input(IMAGES, "uint8", batch, *image[3:6])
        values = graph.include(data, pixels_of(images, image, scale), image.name, output)
    except ValueError as error:  # an InputError, or a name in it is not UTF-8
        raise InputError(f"{path}: {reason_of(error)}") from error
    values, count = node("Cast", values, to=TYPES["float32"]), shape[-1]
    if len(shape) == 3 and options.encoder_tokens == "mean":
        values = node("ReduceMean", values, [1], keepdims=0)
    elif len(shape) == 3:
        values = node("Gather", values, 0, axis=1)
    elif len(shape) == 4:
        values = node("ReduceMean", values, [1, 2] if image.channels_last else [2, 3], keepdims=0)
        count = shape[3] if image.channels_last else shape[1]
    graph.output(FEATURES, values, "float32", batch, count)
    share, bicubic = options.encoder_crop or CROP, not options.encoder_bilinear
    framing = Middle(image.height, image.width, share, image.channels, bicubic)
    notes = () if image.type == UINT8 or options.encoder_mean is not None else (ASSUMED_SCALE,)
    return ImageEncoder(name, framing, count, Sessions(graph.serialized()), image.batch, notes)


def image_input(inputs: list[Any], wanted: int | None) -> ImageInput:
    """Layout, type and shape of the only input."""
    found = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs)[:200]
    refused = InputError(
        f"it takes {found or 'nothing'}, not one input of float or uint8 images, (images, channels, height, "
        "width) or (images, height, width, channels), of 1 or 3 channels"
    )
    if len(inputs) != 1 or inputs[0].type not in (UINT8, *FLOATS) or len(inputs[0].shape) != 4:
        raise refused
    batch, first, second, last = inputs[0].shape
    channels_last = first not in (1, 3) and (last in (1, 3) or "channel" in str(last).lower())
    channels, *sides = (last, first, second) if channels_last else (first, second, last)
    if isinstance(channels, int) and channels not in (1, 3):
        raise refused
    height, width = (side if isinstance(side, int) else wanted for side in sides)
    if height is None or width is None:
        raise InputError("it takes images of any size: pass --encoder-size PIXELS")
    takes = f"it takes images of {height:,} x {width:,} pixels"
    if wanted is not None and (height, width) != (wanted, wanted):
        raise InputError(f"{takes}, not {wanted}: drop --encoder-size")
    if not 1 <= min(height, width) <= max(height, width) <= MOST_SIDE:
        raise InputError(f"{takes}, not 1 to {MOST_SIDE:,} a side")
    fixed = batch if isinstance(batch, int) else None
    channels = channels if isinstance(channels, int) else 3
    return ImageInput(inputs[0].name, inputs[0].type, fixed, height, width, channels, channels_last)


def scale_of(image: ImageInput, options: OnnxOptions) -> tuple[Scale, Scale] | None:
    """Mean and std of each channel on the scale of 0 to 1; None if the file takes uint8 pixels."""
    given, channels = (options.encoder_mean, options.encoder_std), image.channels
    if image.type == UINT8:
        if any(given):
            raise InputError("it takes uint8 pixels: drop --encoder-mean and --encoder-std")
        return None
    if (given[0] is None) != (given[1] is None):
        raise InputError("pass both --encoder-mean and --encoder-std, or neither")
    usual = IMAGENET if channels == 3 else [(sum(each) / 3,) for each in IMAGENET]
    mean, std = (
        one * channels if len(one) == 1 else one
        for one in (own or default for own, default in zip(given, usual, strict=True))
    )
    if not len(mean) == len(std) == channels or min(std) <= 0:
        raise InputError(
            f"--encoder-mean and --encoder-std must be {channels} numbers each, std above 0, not {mean} "
            f"and {std}"
        )
    return mean, std


def output_of(outputs: list[Any], wanted: str | None) -> str:
    """The output with the features: by name, the only one, or the only one with two axes."""
    floats = {each.name: each.shape or () for each in outputs if each.type in FLOATS}
    pooled = [name for name in POOLED if name in floats][:1]
    flat = [name for name, shape in floats.items() if len(shape) == 2]
    choices = [*floats] if len(outputs) == 1 else pooled or flat
    if wanted is not None:
        choices = [wanted] if wanted in floats else []
    if len(choices) != 1:
        listed = ", ".join(f"{each.name} {each.type}" for each in outputs)[:200]
        raise InputError(
            f"it has the outputs {listed}: name the one with the features, of a float type, by "
            "--encoder-output"
        )
    return choices[0]


def output_shape(session: Any, image: ImageInput, output: str) -> tuple[int, ...]:
    """The shape of the output for noise."""
    shape = image.shape(image.batch or 1)
    noise = np.random.default_rng(0).integers(0, 256, shape)
    try:
        given = noise.astype(FLOATS.get(image.type, "uint8"))
        found: tuple[int, ...] = session.run([output], {image.name: given})[0].shape
    except Exception as error:  # onnxruntime's own types
        raise InputError(f"it cannot be run on images {shape} ({reason_of(error)})") from error
    if len(found) not in (2, 3, 4) or found[0] != shape[0] or 0 in found:
        raise InputError(
            f"its output {output!r} has the shape {found} for {shape[0]} images, not (images, features); "
            "name another with --encoder-output"
        )
    return found


def pixels_of(images: Value, image: ImageInput, scale: tuple[Scale, Scale] | None) -> Value:
    """From uint8 (B, H, W, C) to what the file takes."""
    if scale is not None:
        mean, std = (np.array([255 * value for value in each]) for each in scale)
        images = (node("Cast", images, to=TYPES["float32"]) - mean) / std
        images = node("Cast", images, to=TYPES[FLOATS[image.type]])
    return images if image.channels_last else node("Transpose", images, perm=[0, 3, 1, 2])


def read_onnx(path: Path) -> bytes:
    """The graph with its weights inside; those in other files are read from the same folder only."""
    try:
        data = read_regular(path, MOST_BYTES)
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    if b"location" not in data:  # the key of a tensor that lies in another file
        return data
    files: dict[str, bytes] = {}
    try:
        model = read_model(data)
        for tensor in tensors(model.graph):
            if not tensor.data_location:  # 1: in another file
                continue
            about = {entry.key: entry.value for entry in tensor.external_data}
            name = about["location"]
            if name not in files:
                other = path.parent / name
                beside = {
                    real_path(path.parent),
                    real_path(path).parent,
                }  # the hub's cache has links
                if real_path(other).parent not in beside:
                    raise ValueError(f"{name} is not beside it")
                files[name] = read_regular(other, MOST_BYTES)
            start = int(about.get("offset", 0))
            end = start + int(about.get("length", len(files[name])))
            tensor.raw_data = files[name][start:end]
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
        return bytes(model.SerializeToString())
    except Exception as error:  # a missing file, one outside the folder, damaged content
        raise InputError(
            f"cannot read {path} with its weights ({reason_of(error)}); put them beside it, or save the "
            "model as one file"
        ) from error
