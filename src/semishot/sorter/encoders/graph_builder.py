"""ONNX graphs, written node by node as protocol buffers: no other package is needed.

The numbers of fields and types are those of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from semishot import __version__

OPSET, IR_VERSION = 18, 8
TYPES = {"float32": 1, "uint8": 2, "int64": 7, "float16": 10, "float64": 11}
"""NumPy's names of the element types."""
FLOAT, INT, INTS = 1, 2, 7
"""Types of attributes."""
Shape = Sequence[int | str]
"""A word names an axis of any length."""


class OnnxGraph:
    """Nodes and constants; `add` and `constant` return the name of a new value."""

    def __init__(self) -> None:
        self.nodes: list[bytes] = []
        self.constants: list[bytes] = []
        self.opsets, self.ir_version = {"": OPSET}, IR_VERSION

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """A node with one output."""
        output = output or f"x{len(self.nodes)}"
        return self.add_several(operator, inputs, [output], **attributes)[0]

    def add_several(
        self, operator: str, inputs: Sequence[str], outputs: list[str], **attributes: Any
    ) -> list[str]:
        parts = [_field(1, name) for name in inputs] + [_field(2, name) for name in outputs]
        parts += [_field(4, operator)]
        parts += [_field(5, _attribute(name, value)) for name, value in attributes.items()]
        self.nodes.append(b"".join(parts))
        return outputs

    def constant(self, value: Any, dtype: type[np.generic] = np.float32) -> str:
        array, name = np.asarray(value, dtype), f"w{len(self.constants)}"
        parts = [_field(1, length) for length in array.shape]
        parts += [_field(2, TYPES[array.dtype.name]), _field(8, name), _field(9, array.tobytes())]
        self.constants.append(b"".join(parts))
        return name

    def integers(self, *values: int) -> str:
        """A constant, such as axes."""
        return self.constant(values, np.int64)

    def model(
        self,
        inputs: Mapping[str, tuple[str, Shape]],
        outputs: Mapping[str, tuple[str, Shape]],
        metadata: Mapping[str, str] | None = None,
    ) -> bytes:
        """The serialized model; inputs and outputs by name: element type and shape."""
        graph = [_field(1, node) for node in self.nodes] + [_field(2, "semishot")]
        graph += [_field(5, constant) for constant in self.constants]
        graph += [_field(11, _value(name, *about)) for name, about in inputs.items()]
        graph += [_field(12, _value(name, *about)) for name, about in outputs.items()]
        whole = [_field(1, self.ir_version), _field(2, "semishot"), _field(3, __version__)]
        whole.append(_field(7, b"".join(graph)))
        for domain, version in self.opsets.items():
            whole.append(_field(8, _field(1, domain) + _field(2, version)))
        for key, text in (metadata or {}).items():
            whole.append(_field(14, _field(1, key) + _field(2, text)))
        return b"".join(whole)


def _field(number: int, value: int | float | str | bytes) -> bytes:
    """A field of a message: a number, or text and messages with their length before them."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    if isinstance(value, float):
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    content = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Seven bits to a byte, the lowest first; negative numbers as 64 bits."""
    value, digits = value & 2**64 - 1, bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def _attribute(name: str, value: float | int | Sequence[int]) -> bytes:
    if isinstance(value, float):
        return _field(1, name) + _field(2, value) + _field(20, FLOAT)
    if isinstance(value, int):
        return _field(1, name) + _field(3, value) + _field(20, INT)
    return _field(1, name) + b"".join(_field(8, each) for each in value) + _field(20, INTS)


def _value(name: str, dtype: str, shape: Shape) -> bytes:
    axes = (_field(1, axis) if isinstance(axis, int) else _field(2, axis) for axis in shape)
    lengths = b"".join(_field(1, axis) for axis in axes)
    tensor = _field(1, TYPES[dtype]) + _field(2, lengths)
    return _field(1, name) + _field(2, _field(1, tensor))
