"""`--encoder onnx:FILE`: any image model as an encoder.

Layout and type of its input are read from the file; size and scale of images come from flags, or from a
rule. No library of custom operators is loaded.
Letters: B images, H x W pixels, C channels, T tokens, D features.
"""

from pathlib import Path
from typing import Any

import numpy as np

from semishot.data.framing import MOST_SIDE, Middle
from semishot.errors import InputError, reason_of
from semishot.sorter.encoders.graph import (
    FEATURES,
    IMAGES,
    TYPES,
    Model,
    OnnxGraph,
    all_graphs,
    node,
)
from semishot.sorter.encoders.image_encoder import MOST_BYTES, ImageEncoder, open_session
from semishot.sorter.encoders.names import OnnxOptions
from semishot.system.files import read_regular, real_path

FLOATS = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64"}
UINT8 = "tensor(uint8)"
POOLED = ("image_embeds", "pooler_output", "image_features", "embedding", "embeddings", "features")
"""Outputs that are taken for the features, the first of these that a file has."""
IMAGENET = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])
"""Mean and std."""
CROP = 0.875
ASSUMED_SCALE = (
    "pixels were scaled by ImageNet's mean and std: --encoder-mean and --encoder-std change it"
)


def open_onnx(name: str, path: Path, options: OnnxOptions) -> ImageEncoder:
    """The encoder of a file, seeing the middle."""
    data = read_onnx(path)
    try:
        session, graph = open_session(data), OnnxGraph()
        inputs, outputs = session.get_inputs(), session.get_outputs()
        order, lengths = layout_of(inputs, options.encoder_size)
        given, batch = inputs[0], lengths.get("B")
        height, width, channels = (lengths[axis] for axis in "HWC")
        pixels = graph.input(IMAGES, "uint8", batch or "batch", height, width, channels)
        if (scale := scale_of(given.type, channels, options)) is not None:
            pixels = (node("Cast", pixels, to=TYPES["float32"]) - scale[0]) / scale[1]
            pixels = node("Cast", pixels, to=TYPES[FLOATS[given.type]])
        pixels = node("Transpose", pixels, perm=["BHWC".index(axis) for axis in order])
        output = output_of(outputs, options.encoder_output)
        shape = shape_of(session, output, given, [lengths.get(axis, 1) for axis in order])
        values = graph.include(data, pixels, given.name, output)
    except ValueError as error:  # an InputError, or a name in it is not UTF-8
        raise InputError(f"{path}: {reason_of(error)}") from error
    values, features = node("Cast", values, to=TYPES["float32"]), shape[-1]
    if len(shape) == 4:
        features = shape[order.index("C")]
        maps = [order.index("H"), order.index("W")]
        values = node("ReduceMean", values, maps, keepdims=0)
    elif len(shape) == 3 and options.encoder_tokens == "mean":
        values = node("ReduceMean", values, [1], keepdims=0)
    elif len(shape) == 3:
        values = node("Gather", values, 0, axis=1)
    graph.output(FEATURES, values, "float32", batch or "batch", features)
    share, bicubic = options.encoder_crop or CROP, not options.encoder_bilinear
    framing = Middle(height, width, share, channels, bicubic)
    notes = () if given.type == UINT8 or options.encoder_mean is not None else (ASSUMED_SCALE,)
    return ImageEncoder(name, framing, features, graph.serialized(), batch, notes)


def layout_of(inputs: list[Any], wanted: int | None) -> tuple[str, dict[str, int]]:
    """The order of axes of the only input, BCHW or BHWC, and their lengths; B is left out if any will do."""
    found = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs)[:200]
    refused = InputError(
        f"it takes {found or 'nothing'}, not one input of float or uint8 images, (images, channels, height, "
        "width) or (images, height, width, channels), of 1 or 3 channels"
    )
    if len(inputs) != 1 or inputs[0].type not in (UINT8, *FLOATS) or len(inputs[0].shape) != 4:
        raise refused
    _, first, _, last = inputs[0].shape
    is_last = first not in (1, 3) and (last in (1, 3) or "channel" in str(last).lower())
    order = "BHWC" if is_last else "BCHW"
    pairs = zip(order, inputs[0].shape, strict=True)
    fixed = {axis: length for axis, length in pairs if isinstance(length, int)}
    usual = {"C": 3} if wanted is None else {"H": wanted, "W": wanted, "C": 3}
    lengths = usual | fixed
    if lengths["C"] not in (1, 3):
        raise refused
    if not {"H", "W"} <= lengths.keys():
        raise InputError("it takes images of any size: pass --encoder-size PIXELS")
    takes = f"it takes images of {lengths['H']:,} x {lengths['W']:,} pixels"
    if wanted is not None and not lengths["H"] == lengths["W"] == wanted:
        raise InputError(f"{takes}, not {wanted}: drop --encoder-size")
    if not all(1 <= lengths[axis] <= MOST_SIDE for axis in "HW"):
        raise InputError(f"{takes}, not 1 to {MOST_SIDE:,} a side")
    return order, lengths


def scale_of(kind: str, channels: int, options: OnnxOptions) -> Any:
    """Mean and std of each channel (2, C) of pixels of 0 to 255; None if the file takes uint8 pixels."""
    mean, std = options.encoder_mean, options.encoder_std
    if kind == UINT8:
        if mean or std:
            raise InputError("it takes uint8 pixels: drop --encoder-mean and --encoder-std")
        return None
    if (mean is None) != (std is None):
        raise InputError("pass both --encoder-mean and --encoder-std, or neither")
    if mean is None or std is None:
        return 255 * (IMAGENET if channels == 3 else IMAGENET.mean(1, keepdims=True))
    if not {len(mean), len(std)} <= {1, channels} or min(std) <= 0:
        raise InputError(
            f"--encoder-mean and --encoder-std must be {channels} numbers each, std above 0, not {mean} "
            f"and {std}"
        )
    return 255 * np.array([np.broadcast_to(each, channels) for each in (mean, std)])


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


def shape_of(session: Any, output: str, given: Any, shape: list[int]) -> tuple[int, ...]:
    """The shape of the output for noise of this shape."""
    noise = np.random.default_rng(0).integers(0, 256, shape)
    try:
        images = noise.astype(FLOATS.get(given.type, "uint8"))
        found: tuple[int, ...] = session.run([output], {given.name: images})[0].shape
    except Exception as error:  # onnxruntime's own types
        raise InputError(
            f"it cannot be run on images {noise.shape} ({reason_of(error)})"
        ) from error
    if len(found) not in (2, 3, 4) or found[0] != shape[0] or 0 in found:
        raise InputError(
            f"its output {output!r} has the shape {found} for {shape[0]} images, not (images, features); "
            "name another with --encoder-output"
        )
    return found


def read_onnx(path: Path) -> bytes:
    """The graph with its weights inside; those in other files are read from the same folder only."""
    try:
        data = read_regular(path, MOST_BYTES)
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    if b"location" not in data:  # the key of a tensor that lies in another file
        return data
    files: dict[str, bytes] = {}
    beside = {real_path(path.parent), real_path(path).parent}  # the hub's cache has links
    try:
        model = Model.FromString(data)
        for tensor in (each for part in all_graphs(model.graph) for each in part.initializer):
            if tensor.data_location:  # 1: in another file
                about = {entry.key: entry.value for entry in tensor.external_data}
                name = about["location"]
                if real_path(path.parent / name).parent not in beside:
                    raise ValueError(f"{name} is not beside it")
                if name not in files:
                    files[name] = read_regular(path.parent / name, MOST_BYTES)
                content = files[name]
                start = int(about.get("offset", 0))
                tensor.raw_data = content[start : start + int(about.get("length", len(content)))]
                tensor.ClearField("external_data")
                tensor.ClearField("data_location")
        return bytes(model.SerializeToString())
    except Exception as error:  # a missing file, one outside the folder, damaged content
        raise InputError(
            f"cannot read {path} with its weights ({reason_of(error)}); put them beside it, or save the "
            "model as one file"
        ) from error
