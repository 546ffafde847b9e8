"""`--encoder onnx:FILE`: any image model as an encoder.

Layout and type of its input are read from the file; size and scale of images come from flags, or from a
rule. No library of custom operators is loaded.
Letters: B images, H x W pixels, C channels, T tokens, D features.
"""

import hashlib
import importlib
import json
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.data.framing import MOST_SIDE, Middle, to_json
from semishot.errors import InputError, needing_extra, reason_of
from semishot.sorter.encoders.encoder_options import GRAPH, OnnxOptions
from semishot.sorter.encoders.graph_builder import OPSET, TYPES, OnnxGraph
from semishot.sorter.encoders.networks import (
    BATCH_ON_GPU,
    CUDA,
    Features,
    ImageEncoder,
    Pixels,
    open_session,
)
from semishot.system.files import read_regular, write_whole

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
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CROP = 0.875
ASSUMED_SCALE = (
    "pixels were scaled by ImageNet's mean and std: --encoder-mean and --encoder-std change it"
)
EXPORT_AGAIN = "export the encoder again with opset 18 or later and a dynamic batch"


def open_onnx(name: str, path: Path, options: OnnxOptions) -> ImageEncoder:
    """The encoder of a file."""
    data = read_onnx(path)
    load = cache(partial(OnnxNetwork, data, str(path), options))
    network = load("cpu")
    height, width, channels = network.shape
    framing = Middle(
        height, width, options.encoder_crop or CROP, channels, not options.encoder_bilinear
    )
    settings = [to_json(framing), network.mean, network.std, network.output, network.tokens]
    identity = hashlib.sha256(data + json.dumps(settings).encode()).hexdigest()

    def save(folder: Path) -> dict[str, Any]:
        write_whole(folder / GRAPH, data)
        return {"onnx": asdict(options)}

    is_scale_known = network.input.type == UINT8 or options.encoder_mean is not None
    notes = () if is_scale_known else (ASSUMED_SCALE,)
    return ImageEncoder(name, framing, network.features, identity, load, network.draw, save, notes)


class OnnxNetwork:
    """uint8 (B, H, W, C) -> float32 (B, D), by the user's graph. It is tried on noise."""

    batch: int

    def __init__(self, data: bytes, name: str, options: OnnxOptions, device: str) -> None:
        self.data, self.name = data, name
        try:
            self.session = open_session(data, device)
            inputs = self.session.get_inputs()
            outputs = {value.name: value for value in self.session.get_outputs()}
        except ValueError as error:  # it cannot be opened, or a name in it is not UTF-8
            raise InputError(f"{name}: {reason_of(error)}") from error
        height, width, channels = self._take_input(inputs)
        sides = (self._side(side, options.encoder_size) for side in (height, width))
        self.shape = (*sides, channels if isinstance(channels, int) else 3)
        self.tokens = options.encoder_tokens or "first"
        self.mean, self.std = self._scale(options)
        self.output = _output(outputs, options.encoder_output, name)
        noise = np.random.default_rng(0).integers(0, 256, (self.batch, *self.shape), np.uint8)
        self.axes = self.run(noise).ndim
        self.features = int(self(noise).shape[1])

    def _take_input(self, inputs: list[Any]) -> tuple[Any, Any, Any]:
        """H, W and C of the only input, as far as the file fixes them."""
        if len(inputs) != 1:
            names = ", ".join(value.name for value in inputs)[:120] or "none"
            raise InputError(
                f"{self.name} has {len(inputs)} inputs ({names}), not one: export the part that takes images"
            )
        (self.input,) = inputs
        its = f"{self.name}: its input {self.input.name!r}"
        if len(self.input.shape) != 4:
            raise InputError(
                f"{its} has {len(self.input.shape)} axes, not 4: (images, channels, height, width) or "
                "(images, height, width, channels)"
            )
        if self.input.type != UINT8 and self.input.type not in FLOATS:
            raise InputError(f"{its} is {self.input.type}, not float or uint8")
        batch, first, second, last = self.input.shape
        if isinstance(first, int) and first not in (1, 3) and last not in (1, 3):
            raise InputError(f"{its} has no axis of 1 or 3 channels: {self.input.shape}")
        by_name = "channel" in str(last).lower()
        self.channels_last = first not in (1, 3) and (last in (1, 3) or by_name)
        self.fixed_batch = isinstance(batch, int)
        on_gpu = CUDA in self.session.get_providers()
        self.batch = batch if self.fixed_batch else BATCH_ON_GPU if on_gpu else 1
        return (first, second, last) if self.channels_last else (second, last, first)

    def _side(self, side: int | str | None, wanted: int | None) -> int:
        """The height or width: the file's, if it is fixed there."""
        fixed = isinstance(side, int)
        if fixed and wanted not in (None, side):
            raise InputError(
                f"{self.name} takes images of {side} pixels, not {wanted}: drop --encoder-size"
            )
        if not fixed and wanted is None:
            raise InputError(f"{self.name} takes images of any size: pass --encoder-size PIXELS")
        pixels = int(side if fixed else wanted)  # type: ignore[arg-type]
        if not 1 <= pixels <= MOST_SIDE:
            raise InputError(f"{self.name} takes images of {pixels:,} pixels, not 1 to {MOST_SIDE}")
        return pixels

    def _scale(self, options: OnnxOptions) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and std of each channel on the scale of 0 to 1; empty if the file takes uint8 pixels."""
        mean, std, channels = options.encoder_mean, options.encoder_std, self.shape[2]
        if self.input.type == UINT8:
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

    def __call__(self, images: Pixels) -> Features:
        """(B, D) as it is; (B, T, D): the first token or the mean over tokens; maps: the mean over each."""
        values = self.run(images).astype(np.float32)
        if values.ndim == 3 and self.tokens == "first":
            return values[:, 0]
        features: Features = values.mean(self._pooled(values.ndim))
        return features

    def _pooled(self, axes: int) -> tuple[int, ...]:
        """The axes of tokens or maps."""
        return {2: (), 3: (1,), 4: (1, 2) if self.channels_last else (2, 3)}[axes]

    def run(self, images: Pixels) -> NDArray[Any]:
        """The output of one batch, before pooling."""
        pixels: NDArray[Any] = images
        if self.mean:
            mean, std = (np.array(values, np.float32) for values in self.scale_255())
            pixels = ((images - mean) / std).astype(FLOATS[self.input.type])
        if not self.channels_last:
            pixels = pixels.transpose(0, 3, 1, 2)
        try:
            given = {self.input.name: np.ascontiguousarray(pixels)}
            values = np.asarray(self.session.run([self.output], given)[0])
        except Exception as error:  # onnxruntime's own types
            raise InputError(
                f"{self.name} cannot be run on images {pixels.shape} ({reason_of(error)})"
            ) from error
        if values.ndim not in (2, 3, 4) or len(values) != len(images) or 0 in values.shape:
            raise InputError(
                f"{self.name}: its output {self.output!r} has the shape {values.shape} for {len(images)} "
                "images, not (images, features); name another with --encoder-output"
            )
        return values

    def scale_255(self) -> tuple[list[float], list[float]]:
        """Mean and std on the scale of 0 to 255."""
        return [255 * value for value in self.mean], [255 * value for value in self.std]

    def draw(self, graph: OnnxGraph, pixels: str) -> str:
        """Add nodes that do what a call does."""
        if self.fixed_batch:
            raise InputError(
                f"{self.name} takes {self.batch} image(s) at once, and the exported file would too: "
                f"{EXPORT_AGAIN}"
            )
        if self.mean:
            mean, std = (graph.constant(values) for values in self.scale_255())
            pixels = graph.add("Cast", pixels, to=TYPES["float32"])
            pixels = graph.add("Div", graph.add("Sub", pixels, mean), std)
            pixels = graph.add("Cast", pixels, to=TYPES[np.dtype(FLOATS[self.input.type]).name])
        if not self.channels_last:
            pixels = graph.add("Transpose", pixels, perm=[0, 3, 1, 2])
        values = draw_model(graph, self.data, pixels, self.output, self.name)
        values = graph.add("Cast", values, to=TYPES["float32"])
        if self.axes == 3 and self.tokens == "first":
            return graph.add("Gather", values, graph.constant(0, np.int64), axis=1)
        pooled = self._pooled(self.axes)
        if not pooled:
            return values
        return graph.add("ReduceMean", values, graph.integers(*pooled), keepdims=0)


def draw_model(graph: OnnxGraph, data: bytes, source: str, output: str, name: str) -> str:
    """Add the nodes of another model of one input; returns the new name of this output."""
    onnx = onnx_package("export with this encoder")
    try:
        model = onnx.load_model_from_string(data)
        versions = {each.domain: each.version for each in model.opset_import}
        if versions.get("", 1) < OPSET:
            model = onnx.version_converter.convert_version(model, OPSET)
        model = onnx.compose.add_prefix(onnx.inliner.inline_local_functions(model), "encoder/")
    except Exception as error:  # onnx raises many types for graphs that it cannot change
        raise InputError(
            f"{name} cannot be joined with the classifier ({reason_of(error)}): {EXPORT_AGAIN}"
        ) from error
    initial = {tensor.name for tensor in model.graph.initializer}
    (given,) = (value.name for value in model.graph.input if value.name not in initial)
    graph.add("Identity", source, output=given)
    graph.nodes += [node.SerializeToString() for node in model.graph.node]
    graph.constants += [tensor.SerializeToString() for tensor in model.graph.initializer]
    graph.opsets |= versions | {"": max(OPSET, versions.get("", 1))}
    graph.ir_version = max(graph.ir_version, model.ir_version)
    return f"encoder/{output}"


def _output(outputs: dict[str, Any], wanted: str | None, name: str) -> str:
    """The output with the features: by name, the only one, or the only one with two axes."""
    names, listed = list(outputs), ", ".join(outputs)[:200]
    if wanted is not None and wanted not in outputs:
        raise InputError(f"{name} has no output {wanted!r:.80}, but {listed}")
    pooled = [each for each in POOLED if each in outputs][:1]
    flat = [each for each, value in outputs.items() if len(value.shape or ()) == 2]
    choices = [wanted] if wanted else names if len(names) == 1 else pooled or flat
    if len(choices) != 1:
        raise InputError(
            f"{name} has {len(names)} outputs: name the one with the features, --encoder-output {listed}"
        )
    if (kind := outputs[choices[0]].type) not in FLOATS:
        raise InputError(f"{name}: its output {choices[0]!r} is {kind}, not float")
    return choices[0]


def onnx_package(purpose: str) -> Any:
    """The extra `onnx`."""
    with needing_extra(purpose):
        for part in ("version_converter", "inliner", "compose"):
            importlib.import_module(f"onnx.{part}")
        return importlib.import_module("onnx")


def read_onnx(path: Path) -> bytes:
    """The graph with its weights inside; those in other files are read from the same folder only."""
    try:
        data = read_regular(path, MOST_BYTES)
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    if b"location" not in data:  # the key of a tensor that lies in another file
        return data
    onnx = onnx_package("an ONNX file with weights in other files")
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
