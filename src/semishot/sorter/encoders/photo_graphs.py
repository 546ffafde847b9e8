"""EfficientNet-Lite as an ONNX graph, made from the modules that torch runs, batch norm folded in.

Letters: B images, H x W pixels, D features.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from semishot.sorter.encoders.photo_networks import LastMapsMean, PixelEncoder

OPSET, IR = 17, 8
PIXELS, FEATURES = "pixels", "features"
MOST = 6.0
"""Where ReLU6 ends."""


def has_graph(module: nn.Module) -> bool:
    """Whether `graph_of` knows this encoder."""
    return isinstance(module, PixelEncoder) and isinstance(module.network, LastMapsMean)


def graph_of(onnx: Any, module: nn.Module, height: int, width: int, features: int) -> bytes:
    """uint8 (B, H, W, 3) -> float32 (B, D), serialized. `onnx` is the package."""
    assert isinstance(module, PixelEncoder)
    assert isinstance(module.network, LastMapsMean)
    graph = Graph(onnx)
    floats = graph.add("Cast", PIXELS, to=onnx.TensorProto.FLOAT)
    pixels = graph.add("Transpose", floats, perm=[0, 3, 1, 2])
    moved = graph.add("Sub", pixels, graph.constant(single(module.mean)[None]))
    scaled = graph.add("Div", moved, graph.constant(single(module.std)[None]))
    maps = graph.last_maps(module.network.network, scaled)  # (B, D, H / 32, W / 32)
    mean = graph.add("GlobalAveragePool", maps)
    graph.nodes.append(onnx.helper.make_node("Flatten", [mean], [FEATURES]))
    types, info = onnx.TensorProto, onnx.helper.make_tensor_value_info
    takes = info(PIXELS, types.UINT8, ["images", height, width, 3])
    gives = info(FEATURES, types.FLOAT, ["images", features])
    whole = onnx.helper.make_graph(graph.nodes, "encoder", [takes], [gives], graph.constants)
    opset = onnx.helper.make_opsetid("", OPSET)
    model = onnx.helper.make_model(whole, opset_imports=[opset], ir_version=IR)
    data: bytes = model.SerializeToString()
    return data


class Graph:
    """The parts of the network, in the order in which `extract_features` runs them."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.bounds = [self.constant(np.float32(bound)) for bound in (0.0, MOST)]

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """The name of the output of a new node."""
        name = f"x{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def constant(self, value: Any) -> str:
        name = f"w{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def last_maps(self, network: Any, pixels: str) -> str:
        x = self.bounded(self.convolution(network._conv_stem, network._bn0, pixels))
        for block in network._blocks:
            x = self.block(block, x)
        return self.bounded(self.convolution(network._conv_head, network._bn1, x))

    def block(self, block: Any, inputs: str) -> str:
        x, about = inputs, block._block_args
        if about.expand_ratio != 1:
            x = self.bounded(self.convolution(block._expand_conv, block._bn0, x))
        x = self.bounded(self.convolution(block._depthwise_conv, block._bn1, x))
        x = self.convolution(block._project_conv, block._bn2, x)
        same = about.stride == 1 and about.input_filters == about.output_filters
        return self.add("Add", x, inputs) if block.id_skip and same else x

    def bounded(self, x: str) -> str:
        return self.add("Clip", x, *self.bounds)

    def convolution(self, layer: Any, norm: nn.BatchNorm2d, x: str) -> str:
        """Batch norm with known statistics is affine: it becomes part of the weights, and a bias."""
        assert norm.running_mean is not None
        assert norm.running_var is not None
        gain = double(norm.weight) / np.sqrt(double(norm.running_var) + norm.eps)
        shift = double(norm.bias) - double(norm.running_mean) * gain
        weights = double(layer.weight) * gain[:, None, None, None]
        left, right, top, bottom = getattr(layer.static_padding, "padding", (0, 0, 0, 0))
        return self.add(
            "Conv",
            x,
            self.constant(np.ascontiguousarray(weights, np.float32)),
            self.constant(shift.astype(np.float32)),
            strides=list(layer.stride),
            pads=[top, left, bottom, right],
            group=layer.groups,
        )


def single(tensor: Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = tensor.detach().cpu().numpy()
    return found


def double(tensor: Tensor) -> NDArray[np.float64]:
    found: NDArray[np.float64] = tensor.detach().cpu().double().numpy()
    return found
