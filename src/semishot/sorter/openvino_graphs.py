"""EfficientNet-Lite as a graph of OpenVINO, made from the modules that torch runs, batch norm folded in.

Letters: H x W pixels, D features.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from semishot.sorter.photo_encoders import LastMapsMean, PixelEncoder

__all__ = ["graph_of", "has_graph"]

Values = NDArray[np.float32]
MOST = 6.0
"""Where ReLU6 ends."""


def has_graph(module: nn.Module) -> bool:
    """Whether `graph_of` knows this encoder."""
    return isinstance(module, PixelEncoder) and isinstance(module.network, LastMapsMean)


def graph_of(runtime: Any, module: nn.Module, height: int, width: int) -> Any:
    """uint8 (1, H, W, 3) -> float32 (1, D): an openvino.Model.

    One image at a time: on a core this is as fast as any batch, and the features of an image do not depend
    on others.
    """
    assert isinstance(module, PixelEncoder)
    assert isinstance(module.network, LastMapsMean)
    graph = Graph(runtime.opset13)
    images = graph.op.parameter([1, height, width, 3], np.uint8)
    pixels = graph.op.transpose(graph.op.convert(images, "f32"), np.array([0, 3, 1, 2]))
    scaled = graph.op.divide(
        graph.op.subtract(pixels, values(module.mean)[None]), values(module.std)[None]
    )
    maps = graph.last_maps(module.network.network, scaled)  # (1, D, H / 32, W / 32)
    return runtime.Model([graph.op.reduce_mean(maps, np.array([2, 3]), False)], [images])


class Graph:
    """The parts of the network, in the order in which `extract_features` runs them."""

    def __init__(self, op: Any) -> None:
        self.op = op

    def last_maps(self, network: Any, pixels: Any) -> Any:
        x = self.bounded(self.convolution(network._conv_stem, network._bn0, pixels))
        for block in network._blocks:
            x = self.block(block, x)
        return self.bounded(self.convolution(network._conv_head, network._bn1, x))

    def block(self, block: Any, inputs: Any) -> Any:
        x, about = inputs, block._block_args
        if about.expand_ratio != 1:
            x = self.bounded(self.convolution(block._expand_conv, block._bn0, x))
        x = self.bounded(self.convolution(block._depthwise_conv, block._bn1, x))
        x = self.convolution(block._project_conv, block._bn2, x)
        same = about.stride == 1 and about.input_filters == about.output_filters
        return self.op.add(x, inputs) if block.id_skip and same else x

    def bounded(self, x: Any) -> Any:
        return self.op.clamp(x, 0.0, MOST)

    def convolution(self, layer: Any, norm: nn.BatchNorm2d, x: Any) -> Any:
        """Batch norm with known statistics is affine: it becomes part of the weights, and a bias."""
        assert norm.running_mean is not None
        assert norm.running_var is not None
        gain = double(norm.weight) / np.sqrt(double(norm.running_var) + norm.eps)
        shift = double(norm.bias) - double(norm.running_mean) * gain
        weights = (double(layer.weight) * gain[:, None, None, None]).astype(np.float32)
        left, right, top, bottom = getattr(layer.static_padding, "padding", (0, 0, 0, 0))
        rest = (list(layer.stride), [top, left], [bottom, right], list(layer.dilation))
        if layer.groups == 1:
            found = self.op.convolution(x, weights, *rest)
        else:
            each = len(weights) // layer.groups
            grouped = weights.reshape(layer.groups, each, *weights.shape[1:])
            found = self.op.group_convolution(x, grouped, *rest)
        return self.op.add(found, shift.astype(np.float32)[None, :, None, None])


def values(tensor: Tensor) -> Values:
    found: Values = tensor.detach().numpy()
    return found


def double(tensor: Tensor) -> NDArray[np.float64]:
    found: NDArray[np.float64] = tensor.detach().double().numpy()
    return found
