"""A fitted classifier as one safetensors file: arrays, and everything else as JSON in the metadata."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from semishot.errors import InputError, reason_of
from semishot.estimator.fitted_model import FittedModel
from semishot.estimator.spaces import Array
from semishot.system.tensor_files import read_arrays, write_arrays

FORMAT = "semishot.PrototypeClassifier"


def write_model(path: Path, fitted: FittedModel) -> None:
    """Write everything that prediction needs."""
    if not isinstance(fitted.parameters.refiner, str | None):
        raise InputError("a refiner is saved by its name; this one is a module")
    arrays: dict[str, Array] = {}

    def plain(value: Any) -> Any:
        """A NumPy number as Python's; the classes as a list; the name of any other array."""
        if not isinstance(value, np.ndarray):
            return value.item()
        if value is fitted.classes:
            return [value.dtype.str, *value.tolist()]
        name = f"array {len(arrays)}"
        arrays[name] = value
        return name

    saved = replace(fitted, learned=replace(fitted.learned, answer=None, doubts=[]))
    value = msgspec.to_builtins(saved, enc_hook=plain)
    write_arrays(path, arrays, {FORMAT: json.dumps(value)})  # a name may hold lone surrogates


def read_model(path: Path) -> FittedModel:
    """Read a file of `write_model`; InputError for the first field that is wrong."""
    try:
        arrays, metadata = read_arrays(path)
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    where = f"{path} was not written by PrototypeClassifier.save"
    if FORMAT not in metadata:
        raise InputError(f"{where}: {FORMAT} is missing")

    def array_of(_: type, value: Any) -> Array:
        if isinstance(value, list):
            dtype = np.dtype(value[0])  # the size of strings is not trusted
            return np.array(value[1:], dtype if dtype.kind in "iuf" else None)
        if value not in arrays:
            raise ValueError(f"no array {value!r:.40}")
        array = arrays[value]
        if array.dtype.char not in "fd" or not np.isfinite(array).all():
            raise ValueError("expected finite float32 or float64 numbers")
        return array

    try:
        value = json.loads(metadata[FORMAT], parse_constant=str)  # NaN is not a number here
        fitted = msgspec.convert(value, FittedModel, dec_hook=array_of)
        fitted.check()
    except (IndexError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{where}: {reason_of(error)}") from error
    return fitted
