"""`--encoder onnx:FILE`: any image model as an encoder.

Layout and type of its input are read from the file; size and scale of images come from flags, or from a
rule. No library of custom operators is loaded.
Letters: B images, H x W pixels, C channels, T tokens, D features.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from semishot.data.framing import MOST_SIDE, Middle, to_json
from semishot.errors import InputError, reason_of
from semishot.sorter.encoders.encoder_options import GRAPH, OnnxOptions
from semishot.sorter.encoders.graph_builder import (
    TYPES,
    Content,
    OnnxGraph,
    external_data,
    rewritten,
    with_raw_data,
)
from semishot.sorter.encoders.networks import ImageEncoder, loader, open_session
from semishot.system.files import read_regular, real_path, write_whole

MOST_BYTES = 2**31 - 1
"""The most that one ONNX file can hold, weights included."""
FLOATS = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64"}
UINT8 = "tensor(uint8)"
POOLED = ("image_embeds", "pooler_output", "image_features", "embedding", "embeddings", "features")
"""Outputs that are taken for the features, the first of these that a file has."""
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CROP = 0.875
ASSUMED_SCALE = (
    "pixels were scaled by ImageNet's mean and std: --encoder-mean and --encoder-std change it"
)
EXPORT_AGAIN = "export the encoder again with opset 18 or later and a dynamic batch"


def open_onnx(name: str, path: Path, options: OnnxOptions) -> ImageEncoder:
    """The encoder of a file."""
    data = read_onnx(path)
    file = OnnxFile(data, str(path), options)
    height, width, channels = file.shape
    share = options.encoder_crop or CROP
    framing = Middle(height, width, share, channels, not options.encoder_bilinear)
    settings = [to_json(framing), file.mean, file.std, file.output, file.tokens]
    identity = hashlib.sha256(data + json.dumps(settings).encode()).hexdigest()
    load = loader(file.draw, file.shape, file.batch)
    features = load("cpu")(np.zeros((1, *file.shape), np.uint8)).shape[1]

    def draw(graph: OnnxGraph, images: str) -> str:
        if file.batch is not None:
            raise InputError(
                f"{path} takes {file.batch} image(s) at once, and the exported file would too: "
                f"{EXPORT_AGAIN}"
            )
        return file.draw(graph, images)

    def save(folder: Path) -> dict[str, Any]:
        write_whole(folder / GRAPH, data)
        return {"onnx": asdict(options)}

    is_scale_known = file.type == UINT8 or options.encoder_mean is not None
    notes = () if is_scale_known else (ASSUMED_SCALE,)
    return ImageEncoder(name, framing, features, identity, load, draw, file.batch, save, notes)


class OnnxFile:
    """What a file takes and gives; `draw` adds it to a graph. It is tried on noise."""

    batch: int | None
    """The only number of images that it takes."""
    shape: tuple[int, int, int]
    """H, W, C."""

    def __init__(self, data: bytes, name: str, options: OnnxOptions) -> None:
        self.data, self.name = data, name
        try:
            session = open_session(data)
            inputs = session.get_inputs()
            outputs = {value.name: value for value in session.get_outputs()}
        except ValueError as error:  # it cannot be opened, or a name in it is not UTF-8
            raise InputError(f"{name}: {reason_of(error)}") from error
        self._take_input(inputs, options.encoder_size)
        self.tokens = options.encoder_tokens or "first"
        self.mean, self.std = self._scale(options)
        self.output = self._output(outputs, options.encoder_output)
        self.axes = self._tried(session)

    def _take_input(self, inputs: list[Any], wanted: int | None) -> None:
        """Layout, type and shape of the only input."""
        found = ", ".join(f"{each.name} {each.type} {each.shape}" for each in inputs)[:200]
        one = inputs[0] if len(inputs) == 1 else None
        is_image = one is not None and one.type in (UINT8, *FLOATS) and len(one.shape) == 4
        batch, first, second, last = one.shape if one is not None and is_image else [0] * 4
        self.channels_last = first not in (1, 3) and (
            last in (1, 3) or "channel" in str(last).lower()
        )
        channels = last if self.channels_last else first
        if one is None or not is_image or (isinstance(channels, int) and channels not in (1, 3)):
            raise InputError(
                f"{self.name} takes {found or 'nothing'}, not one input of float or uint8 images, (images, "
                "channels, height, width) or (images, height, width, channels), of 1 or 3 channels"
            )
        self.input, self.type = one.name, one.type
        self.batch = batch if isinstance(batch, int) else None
        sides = (first, second) if self.channels_last else (second, last)
        height, width = (side if isinstance(side, int) else wanted for side in sides)
        if height is None or width is None:
            raise InputError(f"{self.name} takes images of any size: pass --encoder-size PIXELS")
        if wanted is not None and (height, width) != (wanted, wanted):
            raise InputError(
                f"{self.name} takes images of {height} x {width} pixels, not {wanted}: drop --encoder-size"
            )
        if not 1 <= min(height, width) <= max(height, width) <= MOST_SIDE:
            raise InputError(
                f"{self.name} takes images of {height:,} x {width:,} pixels, not 1 to {MOST_SIDE:,} a side"
            )
        self.shape = height, width, channels if isinstance(channels, int) else 3

    def _scale(self, options: OnnxOptions) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and std of each channel on the scale of 0 to 1; empty if the file takes uint8 pixels."""
        given, channels = (options.encoder_mean, options.encoder_std), self.shape[2]
        if self.type == UINT8:
            if any(given):
                raise InputError(
                    f"{self.name} takes uint8 pixels: drop --encoder-mean and --encoder-std"
                )
            return (), ()
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

    def _output(self, outputs: dict[str, Any], wanted: str | None) -> str:
        """The output with the features: by name, the only one, or the only one with two axes."""
        floats = [name for name, value in outputs.items() if value.type in FLOATS]
        pooled = [name for name in POOLED if name in floats][:1]
        flat = [name for name in floats if len(outputs[name].shape or ()) == 2]
        choices = floats if len(outputs) == 1 else pooled or flat
        if wanted is not None:
            choices = [name for name in floats if name == wanted]
        if len(choices) != 1:
            listed = ", ".join(f"{name} {value.type}" for name, value in outputs.items())[:200]
            raise InputError(
                f"{self.name} has the outputs {listed}: name the one with the features, of a float type, by "
                "--encoder-output"
            )
        return choices[0]

    def _tried(self, session: Any) -> int:
        """The number of axes of the output for noise."""
        height, width, channels = self.shape
        sides = (height, width, channels) if self.channels_last else (channels, height, width)
        shape = (self.batch or 1, *sides)
        noise = np.random.default_rng(0).integers(0, 256, shape)
        try:
            given = noise.astype(FLOATS.get(self.type, "uint8"))
            found = np.shape(session.run([self.output], {self.input: given})[0])
        except Exception as error:  # onnxruntime's own types
            raise InputError(
                f"{self.name} cannot be run on images {shape} ({reason_of(error)})"
            ) from error
        if len(found) not in (2, 3, 4) or found[0] != shape[0] or 0 in found:
            raise InputError(
                f"{self.name}: its output {self.output!r} has the shape {found} for {shape[0]} images, not "
                "(images, features); name another with --encoder-output"
            )
        return len(found)

    def draw(self, graph: OnnxGraph, pixels: str) -> str:
        """From uint8 (B, H, W, C) to float32 (B, D).

        An output (B, D) is taken as it is; of (B, T, D) the first token or the mean over tokens; of maps the
        mean over each.
        """
        if self.mean:
            mean, std = ([255 * value for value in each] for each in (self.mean, self.std))
            pixels = graph.add("Cast", pixels, to=TYPES["float32"])
            pixels = graph.add("Div", graph.add("Sub", pixels, np.array(mean)), np.array(std))
            pixels = graph.add("Cast", pixels, to=TYPES[FLOATS[self.type]])
        if not self.channels_last:
            pixels = graph.add("Transpose", pixels, perm=[0, 3, 1, 2])
        try:
            values = graph.include(self.data, self.input, pixels, self.output)
        except ValueError as error:
            raise InputError(f"{self.name}: {reason_of(error)}; {EXPORT_AGAIN}") from error
        values = graph.add("Cast", values, to=TYPES["float32"])
        if self.axes == 3 and self.tokens == "first":
            return graph.add("Gather", values, graph.constant(0, np.int64), axis=1)
        if self.axes == 2:
            return values
        pooled = [1] if self.axes == 3 else [1, 2] if self.channels_last else [2, 3]
        return graph.add("ReduceMean", values, pooled, keepdims=0)


def read_onnx(path: Path) -> bytes:
    """The graph with its weights inside; those in other files are read from the same folder only."""
    try:
        data = read_regular(path, MOST_BYTES)
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    if b"location" not in data:  # the key of a tensor that lies in another file
        return data
    files: dict[str, bytes] = {}

    def taken_in(kind: str, content: Content) -> Content:
        place = external_data(content) if kind == "tensor" else {}
        if not place:
            return content
        name = place["location"]
        if name not in files:
            other = path.parent / name
            beside = {real_path(path.parent), real_path(path).parent}  # the hub's cache has links
            if real_path(other).parent not in beside:
                raise ValueError(f"{name} is not beside it")
            files[name] = read_regular(other, MOST_BYTES)
        start = int(place.get("offset", 0))
        end = start + int(place["length"]) if "length" in place else len(files[name])
        if end > len(files[name]):
            raise ValueError(f"{name} ends too early")
        return with_raw_data(content, files[name][start:end])

    try:
        return bytes(rewritten(data, "model", taken_in))
    except Exception as error:  # a missing file, one outside the folder, damaged content
        raise InputError(
            f"cannot read {path} with its weights ({reason_of(error)}); put them beside it, or save the "
            "model as one file"
        ) from error
