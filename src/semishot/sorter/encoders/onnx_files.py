"""A user's ONNX file -> the bytes of one graph that refers to no other file.

The file is not trusted: it is parsed as data, weights in other files are read only from its own folder, and
no library of custom operators is loaded.
"""

import importlib
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from semishot.errors import InputError, reason_of
from semishot.system.files import open_regular, read_regular

MOST_BYTES = 2**31 - 1
"""The most that one ONNX file can hold, weights included."""


def imported(name: str, purpose: str = "export") -> Any:
    """A module of the extra `onnx`; the telemetry of onnxruntime is switched off."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"{purpose} needs {name}: pip install 'semishot[onnx]'") from error


def cpu_session(graph: bytes, threads: int, purpose: str) -> Any:
    """A graph in onnxruntime, on the CPU; its threads do not spin while they wait."""
    runtime = imported("onnxruntime", purpose)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # errors are raised; they need not be printed too
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return runtime.InferenceSession(
        graph, options, providers=["CPUExecutionProvider"], enable_fallback=0
    )


def parsed(data: bytes, name: object) -> Any:
    """An onnx.ModelProto; InputError if the bytes are something else."""
    model = imported("onnx", "an ONNX encoder").ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's errors depend on how it was built
        raise InputError(f"{name} is not an ONNX file ({reason_of(error)})") from error
    if model.ir_version < 1 or not model.graph.output:
        raise InputError(f"{name} is not an ONNX file (it holds no graph)")
    return model


def read_onnx(path: Path, alone: bool = False) -> bytes:
    """The graph with its weights inside. `alone`: weights in other files are refused."""
    try:
        data = read_regular(path, MOST_BYTES)
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    model = parsed(data, path)
    outside = [tensor for tensor in tensors(model) if tensor.data_location or tensor.external_data]
    if not outside:
        return data
    if alone:
        raise InputError(f"{path} refers to other files: run `semishot classify` again")
    total = len(data)
    for tensor in outside:
        weights = weights_beside(path, tensor)
        total += len(weights)
        if total > MOST_BYTES:
            raise InputError(f"{path} and its weights have more than {MOST_BYTES:,} bytes")
        tensor.raw_data = weights
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
    whole: bytes = model.SerializeToString(deterministic=True)
    return whole


def tensors(message: Any) -> Iterator[Any]:
    """Every TensorProto in a message: in graphs, attributes, functions and training information."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for one in [value] if hasattr(value, "ListFields") else value:
            yield from tensors(one)


def weights_beside(path: Path, tensor: Any) -> bytes:
    """The bytes of a tensor that is kept in a file of the same folder."""
    told = {entry.key: entry.value for entry in tensor.external_data}
    name = told.get("location", "")
    plain = name == PurePosixPath(name).name == PureWindowsPath(name).name and "\0" not in name
    if not plain or name in ("", "..") or (path.parent / name).is_symlink():
        raise InputError(
            f"{path}: its weights are in {name!r:.80}, which is not a file of the same folder; save it "
            "as one file"
        )
    try:
        offset, length = int(told.get("offset", "0")), int(told.get("length", "-1"))
        with open_regular(path.parent / name) as file:
            size = os.fstat(file.fileno()).st_size
            length = size - offset if length < 0 else length
            if not 0 <= offset <= offset + length <= size or length > MOST_BYTES:
                raise ValueError(f"{size:,} bytes")
            file.seek(offset)
            return file.read(length)
    except FileNotFoundError as error:
        raise InputError(
            f"{path} keeps its weights in {name!r:.80}, which is missing: put it beside, or save the "
            "model as one file"
        ) from error
    except ValueError as error:
        raise InputError(
            f"{path}: {name!r:.80} does not hold its weights ({reason_of(error)}); export it again"
        ) from error
