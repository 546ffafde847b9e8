"""ONNX graphs: arithmetic with their values adds nodes, and other graphs are taken in."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SCHEMA = {
    "Model": "int64 ir_version 1, string producer_name 2, Graph graph 7, Opset* opset_import 8, "
    "Entry* metadata_props 14, bytes* functions 25",
    "Graph": "Node* node 1, string name 2, Tensor* initializer 5, Named* input 11, Named* output 12",
    "Node": "string* input 1, string* output 2, string op_type 4, Attribute* attribute 5",
    "Attribute": "string name 1, float f 2, int64 i 3, bytes s 4, Graph g 6, int64* ints 8, "
    "Graph* graphs 11, int32 type 20",
    "Tensor": "int64* dims 1, int32 data_type 2, string name 8, bytes raw_data 9, "
    "Entry* external_data 13, int32 data_location 14",
    "Named": "string name 1, Type type 2",
    "Type": "Array tensor_type 1",
    "Array": "int32 elem_type 1, Shape shape 2",
    "Shape": "Axis* dim 1",
    "Axis": "int64 dim_value 1, string dim_param 2",
    "Opset": "string domain 1, int64 version 2",
    "Entry": "string key 1, string value 2",
}
"""What is used of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto: type, name and number of fields;
those with * are repeated. Other fields of a file are kept as they are."""
TYPES = {"float32": 1, "uint8": 2, "int64": 7, "float16": 10, "float64": 11}
"""NumPy's names of the element types."""
ATTRIBUTES = {float: ("f", 1), int: ("i", 2), bytes: ("s", 3), list: ("ints", 7)}
"""The field and the type of an attribute."""
OPSET, IR_VERSION = 18, 8
AXES_SINCE = {"ReduceSum": 13, "Squeeze": 13, "Unsqueeze": 13}
"""The opset from which on axes are an input, no attribute; of other reductions, 18."""
IMAGES, FEATURES = "images", "features"
"""Input and output of an encoder."""


def _model_class() -> Any:
    """The class of a model, from `SCHEMA`."""
    file = descriptor_pb2.FileDescriptorProto(name="onnx.proto", package="onnx")
    for message, fields in SCHEMA.items():
        described = file.message_type.add(name=message)
        for kind, name, number in (each.split() for each in fields.split(", ")):
            field = described.field.add(name=name, number=int(number))
            field.label = field.LABEL_REPEATED if "*" in kind else field.LABEL_OPTIONAL
            if (kind := kind.removesuffix("*")) in SCHEMA:
                field.type_name = f".onnx.{kind}"
            else:
                field.type = field.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("onnx.Model"))


Model = _model_class()


def _operator(name: str) -> Callable[["Value", Any], "Value"]:
    return lambda value, other: node(name, value, other)


@dataclass(frozen=True)
class Value:
    """A value in a graph. Arithmetic with it, as with an array, adds a node."""

    graph: "OnnxGraph"
    name: str
    __array_ufunc__ = None  # NumPy leaves `array - value` to it
    __add__ = _operator("Add")
    __sub__ = _operator("Sub")
    __mul__ = _operator("Mul")
    __truediv__ = _operator("Div")
    __matmul__ = _operator("MatMul")
    __gt__ = _operator("Greater")

    def __rsub__(self, other: Any) -> "Value":
        return node("Sub", other, self)


def node(operator: str, *inputs: Any, **attributes: Any) -> Value:
    """A node with one output, in the graph of its inputs."""
    graph: OnnxGraph = next(each.graph for each in inputs if isinstance(each, Value))
    return graph.add(operator, *inputs, **attributes)[0]


class OnnxGraph:
    """A graph that grows: inputs, nodes and outputs. In a shape, a word names an axis of any length."""

    def __init__(self) -> None:
        self.model = Model(ir_version=IR_VERSION, producer_name="semishot")
        self.model.graph.name = "semishot"
        self.nodes, self.constants = self.model.graph.node, self.model.graph.initializer
        self.opsets = {"": OPSET}

    def input(self, name: str, dtype: str, *shape: int | str) -> Value:
        """Declare an input."""
        _declare(self.model.graph.input, name, dtype, shape)
        return Value(self, name)

    def output(self, name: str, value: Value, dtype: str, *shape: int | str) -> None:
        """Declare that a value is an output."""
        self.nodes.add(op_type="Identity", input=[value.name], output=[name])
        _declare(self.model.graph.output, name, dtype, shape)

    def add(self, operator: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> list[Value]:
        """Add a node. Its inputs are values or constants: whole numbers are int64, others float32."""
        has_axes = operator.startswith("Reduce") or operator in AXES_SINCE
        if has_axes and self.opsets[""] < AXES_SINCE.get(operator, 18):
            inputs, attributes["axes"] = inputs[:-1], inputs[-1]
        names = [each.name if isinstance(each, Value) else self._constant(each) for each in inputs]
        made = [f"x{len(self.nodes)}.{number}" for number in range(outputs)]
        added = self.nodes.add(op_type=operator, input=names, output=made)
        for key, value in attributes.items():
            field, kind = ATTRIBUTES[type(value)]
            added.attribute.add(name=key, type=kind, **{field: value})
        return [Value(self, name) for name in made]

    def _constant(self, value: Any) -> str:
        array = np.asarray(value)
        array = array.astype(np.int64 if array.dtype.kind == "i" else np.float32)
        kind, name = TYPES[array.dtype.name], f"w{len(self.constants)}"
        self.constants.add(dims=array.shape, data_type=kind, name=name, raw_data=array.tobytes())
        return name

    def include(
        self, content: bytes, source: Value, given: str = IMAGES, output: str = FEATURES
    ) -> Value:
        """Add another model, whose input `given` is the value `source`; its value `output`.

        Nodes that are added later are of its opset.
        """
        other = Model.FromString(content)
        for part in all_graphs(other.graph):
            for each in part.node:  # an empty name is that of an input that is left out
                each.input[:] = [name and f"encoder/{name}" for name in each.input]
                each.output[:] = [name and f"encoder/{name}" for name in each.output]
            for named in (*part.initializer, *part.input, *part.output):
                named.name = f"encoder/{named.name}"
        self.nodes.add(op_type="Identity", input=[source.name], output=[f"encoder/{given}"])
        self.nodes.extend(other.graph.node)
        self.constants.extend(other.graph.initializer)
        self.model.functions.extend(other.functions)
        self.model.ir_version = max(self.model.ir_version, other.ir_version)
        self.opsets |= {opset.domain: opset.version for opset in other.opset_import}
        return Value(self, f"encoder/{output}")

    def serialized(self, **metadata: str) -> bytes:
        """The content of a file."""
        for domain, version in self.opsets.items():
            self.model.opset_import.add(domain=domain, version=version)
        for key, text in metadata.items():
            self.model.metadata_props.add(key=key, value=text)
        return bytes(self.model.SerializeToString())


def all_graphs(graph: Any) -> Iterator[Any]:
    """A graph, and those in attributes of its nodes, such as the bodies of loops."""
    yield graph
    for attribute in (attribute for each in graph.node for attribute in each.attribute):
        for inner in (attribute.g, *attribute.graphs):
            yield from all_graphs(inner)


def _declare(where: Any, name: str, dtype: str, shape: tuple[int | str, ...]) -> None:
    array = where.add(name=name).type.tensor_type
    array.elem_type = TYPES[dtype]
    for axis in shape:
        array.shape.dim.add(**{"dim_value" if isinstance(axis, int) else "dim_param": axis})
