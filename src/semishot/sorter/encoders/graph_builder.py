"""ONNX graphs, written and read as protocol buffers: no other package is needed.

The numbers of fields and types are those of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from semishot import __version__
from semishot.errors import InputError

OPSET, IR_VERSION = 18, 8
OLDEST = 11
"""The first opset in which all operators of ours have the inputs that they are given."""
AXES_SINCE = {"ReduceSum": 13, "Squeeze": 13, "Unsqueeze": 13}
"""The opset from which on axes are an input, no attribute; of other reductions, 18."""
TYPES = {"float32": 1, "uint8": 2, "int64": 7, "float16": 10, "float64": 11}
"""NumPy's names of the element types."""
FLOAT, INT, INTS = 1, 2, 7
"""Types of attributes."""
MESSAGES = {
    "model": {7: "graph"},
    "graph": {1: "node", 5: "tensor", 11: "value", 12: "value"},
    "node": {1: "name", 2: "name", 5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
    "tensor": {8: "name"},
    "value": {1: "name"},
}
"""Kind of a message -> its fields that hold names of values or tensors -> their kinds."""
Content = bytes | memoryview
Shape = Sequence[int | str]
"""A word names an axis of any length."""


class OnnxGraph:
    """Nodes and constants; `add` and `constant` return the name of a new value."""

    def __init__(self) -> None:
        self.nodes: list[Content] = []
        self.constants: list[Content] = []
        self.functions: list[Content] = []
        self.opsets, self.ir_version = {"": OPSET}, IR_VERSION

    def add(self, operator: str, *inputs: Any, output: str = "", **attributes: Any) -> str:
        """A node with one output.

        Inputs are names of values, numbers, arrays, or lists of whole numbers such as axes.
        """
        output = output or f"x{len(self.nodes)}"
        return self.add_several(operator, inputs, [output], **attributes)[0]

    def add_several(
        self, operator: str, inputs: Sequence[Any], outputs: list[str], **attributes: Any
    ) -> list[str]:
        has_axes = operator.startswith("Reduce") or operator in AXES_SINCE
        if has_axes and self.opsets[""] < AXES_SINCE.get(operator, 18):
            *inputs, attributes["axes"] = inputs
        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        parts = [_field(1, name) for name in names] + [_field(2, name) for name in outputs]
        parts += [_field(4, operator)]
        parts += [_field(5, _attribute(name, value)) for name, value in attributes.items()]
        self.nodes.append(b"".join(parts))
        return outputs

    def constant(self, value: Any, dtype: type[np.generic] | None = None) -> str:
        """In float32, or int64 if it is a list."""
        usual = np.int64 if isinstance(value, list) else np.float32
        array, name = np.asarray(value, dtype or usual), f"w{len(self.constants)}"
        parts = [_field(1, length) for length in array.shape]
        parts += [_field(2, TYPES[array.dtype.name]), _field(8, name), _field(9, array.tobytes())]
        self.constants.append(b"".join(parts))
        return name

    def include(self, model: bytes, given: str, source: str, output: str) -> str:
        """Add another model, whose input `given` is the value `source`; the new name of its output.

        Nodes that are added later are of its opset.
        """

        def renamed(kind: str, content: Content) -> Content:
            return b"encoder/" + content if kind == "name" and content else content

        self.add("Identity", source, output=f"encoder/{given}")
        for number, value, raw in fields(model):
            if number == 1:
                self.ir_version = max(self.ir_version, value)
            if number == 8:
                about = {key: content for key, content, _ in fields(value)}
                self.opsets[str(about.get(1, b""), "utf-8")] = about[2]
            if number == 25:
                self.functions.append(raw)
            for key, content, _ in fields(value) if number == 7 else ():
                if key == 1:
                    self.nodes.append(rewritten(content, "node", renamed))
                if key == 5:
                    self.constants.append(rewritten(content, "tensor", renamed))
        if self.opsets[""] < OLDEST:
            raise InputError(f"its opset is {self.opsets['']}, older than {OLDEST}")
        return f"encoder/{output}"

    def model(
        self,
        inputs: Mapping[str, tuple[str, Shape]],
        outputs: Mapping[str, tuple[str, Shape]],
        metadata: Mapping[str, str] | None = None,
    ) -> bytes:
        """The serialized model; inputs and outputs by name: element type and shape."""
        graph: list[Content] = [part for node in self.nodes for part in (_head(1, node), node)]
        graph += [_field(2, "semishot")]
        graph += [part for each in self.constants for part in (_head(5, each), each)]
        graph += [_field(11, _value(name, *about)) for name, about in inputs.items()]
        graph += [_field(12, _value(name, *about)) for name, about in outputs.items()]
        whole: list[Content] = [_field(1, self.ir_version), _field(2, "semishot")]
        whole.append(_field(3, __version__))
        # joined once: weights may have hundreds of megabytes
        whole += [_varint(7 << 3 | 2), _varint(sum(map(len, graph))), *graph]
        for domain, version in self.opsets.items():
            whole.append(_field(8, _field(1, domain) + _field(2, version)))
        for key, text in (metadata or {}).items():
            whole.append(_field(14, _field(1, key) + _field(2, text)))
        return b"".join(whole + self.functions)


def rewritten(message: Content, kind: str, change: Callable[[str, Content], Content]) -> Content:
    """A message with a changed content of everything in `MESSAGES`, at any depth."""
    if kind not in MESSAGES:
        return message
    parts: list[Content] = []
    for number, value, raw in fields(message):
        parts.append(raw)
        if (inner := MESSAGES[kind].get(number)) is not None:
            parts[-1] = _field(number, change(inner, rewritten(value, inner, change)))
    return b"".join(parts)


def fields(content: Content) -> Iterator[tuple[int, Any, memoryview]]:
    """Number and value of each field, a number or bytes, and the bytes of all of it."""
    message, end = memoryview(content), 0
    while end < len(message):
        start = end
        key, end = _read_varint(message, end)
        if key & 7 == 0:
            value, end = _read_varint(message, end)
            yield key >> 3, value, message[start:end]
            continue
        length = {1: 8, 5: 4}.get(key & 7)
        if length is None:
            length, end = _read_varint(message, end)
        first, end = end, end + length
        if key & 7 not in (1, 2, 5) or end > len(message):
            raise ValueError("it is no protocol buffer, or cut off")
        yield key >> 3, message[first:end], message[start:end]


def _read_varint(message: memoryview, place: int) -> tuple[int, int]:
    """The number that begins there, and where it ends."""
    value = shift = 0
    while message[place] > 127:
        value |= (message[place] & 127) << shift
        place, shift = place + 1, shift + 7
    return value | message[place] << shift, place + 1


def with_raw_data(tensor: Content, data: bytes) -> bytes:
    """A tensor with its data inside instead of in another file."""
    kept = [raw for number, _, raw in fields(tensor) if number not in (9, 13, 14)]
    return b"".join([*kept, _field(9, data)])


def external_data(tensor: Content) -> dict[str, str]:
    """Where a tensor's data lie in another file: location, offset, length; nothing if they are inside."""
    found = list(fields(tensor))
    if (14, 1) not in [(number, value) for number, value, _ in found]:
        return {}
    entries = [[*fields(value)] for number, value, _ in found if number == 13]
    return {str(key[1], "utf-8"): str(value[1], "utf-8") for key, value in entries}


def _field(number: int, value: int | float | str | Content) -> bytes:
    """A field of a message: a number, or text and messages with their length before them."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    if isinstance(value, float):
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    content = value.encode() if isinstance(value, str) else value
    return _head(number, content) + content


def _head(number: int, content: Content) -> bytes:
    """What comes before the content of a field."""
    return _varint(number << 3 | 2) + _varint(len(content))


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
