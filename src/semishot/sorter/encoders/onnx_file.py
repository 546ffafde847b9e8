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
        if len(inputs) != 1:
            names = ", ".join(value.name for value in inputs)[:120] or "none"
            raise InputError(
                f"{self.name} has {len(inputs)} inputs ({names}), not one: export the part that takes images"
            )
        self.input, self.type, shape = inputs[0].name, inputs[0].type, inputs[0].shape
        its = f"{self.name}: its input {self.input!r}"
        if len(shape) != 4:
            raise InputError(
                f"{its} has {len(shape)} axes, not 4: (images, channels, height, width) or (images, height, "
                "width, channels)"
            )
        if self.type != UINT8 and self.type not in FLOATS:
            raise InputError(f"{its} is {self.type}, not float or uint8")
        batch, first, second, last = shape
        if isinstance(first, int) and first not in (1, 3) and last not in (1, 3):
            raise InputError(f"{its} has no axis of 1 or 3 channels: {shape}")
        by_name = "channel" in str(last).lower()
        self.channels_last = first not in (1, 3) and (last in (1, 3) or by_name)
        self.batch = batch if isinstance(batch, int) else None
        height, width, channels = (
            (first, second, last) if self.channels_last else (second, last, first)
        )
        sides = self._side(height, wanted), self._side(width, wanted)
        self.shape = (*sides, channels if isinstance(channels, int) else 3)

    def _side(self, side: int | str | None, wanted: int | None) -> int:
        """The height or width: the file's, if it is fixed there."""
        if not isinstance(side, int):
            if wanted is None:
                raise InputError(
                    f"{self.name} takes images of any size: pass --encoder-size PIXELS"
                )
            side = wanted
        if wanted not in (None, side):
            raise InputError(
                f"{self.name} takes images of {side} pixels, not {wanted}: drop --encoder-size"
            )
        if not 1 <= side <= MOST_SIDE:
            raise InputError(f"{self.name} takes images of {side:,} pixels, not 1 to {MOST_SIDE}")
        return side

    def _scale(self, options: OnnxOptions) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and std of each channel on the scale of 0 to 1; empty if the file takes uint8 pixels."""
        mean, std, channels = options.encoder_mean, options.encoder_std, self.shape[2]
        if self.type == UINT8:
            if mean or std:
                raise InputError(
                    f"{self.name} takes uint8 pixels: drop --encoder-mean and --encoder-std"
                )
            return (), ()
        if (mean is None) != (std is None):
            raise InputError("pass both --encoder-mean and --encoder-std, or neither")
        if mean is None or std is None:
            mean, std = IMAGENET if channels == 3 else [(sum(each) / 3,) for each in IMAGENET]
        mean, std = (values * channels if len(values) == 1 else values for values in (mean, std))
        for flag, values in (("mean", mean), ("std", std)):
            if len(values) != channels or min(std) <= 0:
                raise InputError(
                    f"--encoder-{flag} must be {channels} numbers, std above 0, not {values}"
                )
        return mean, std

    def _output(self, outputs: dict[str, Any], wanted: str | None) -> str:
        """The output with the features: by name, the only one, or the only one with two axes."""
        names, listed = list(outputs), ", ".join(outputs)[:200]
        if wanted is not None and wanted not in outputs:
            raise InputError(f"{self.name} has no output {wanted!r:.80}, but {listed}")
        pooled = [each for each in POOLED if each in outputs][:1]
        flat = [each for each, value in outputs.items() if len(value.shape or ()) == 2]
        choices = [wanted] if wanted else names if len(names) == 1 else pooled or flat
        if len(choices) != 1:
            raise InputError(
                f"{self.name} has {len(names)} outputs: name the one with the features, "
                f"--encoder-output {listed}"
            )
        if (kind := outputs[choices[0]].type) not in FLOATS:
            raise InputError(f"{self.name}: its output {choices[0]!r} is {kind}, not float")
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
