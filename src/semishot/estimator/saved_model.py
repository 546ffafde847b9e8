"""A fitted classifier as one safetensors file: arrays, and everything else as JSON in the metadata.

Letters: N classes, D features, L rows of the graph, W coordinates in the space, K pivots.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from semishot.errors import InputError, reason_of
from semishot.estimator.fitted_model import FittedModel, Parameters
from semishot.estimator.models import AnyModel, GraphModel, HeldOut, Learned, PrototypeModel
from semishot.estimator.spaces import NORMALIZATIONS, AnySpace, Array, GaussianSpace, Space
from semishot.estimator.strangers import Members, Positive, StrangerCount, Strangers
from semishot.system.structs import from_json
from semishot.system.tensor_files import read_arrays, write_arrays

FORMAT = "semishot.PrototypeClassifier"
LEARNED = ("members", "strangers", "count", "pile_helps", "message", "held_out")
"""What is saved of `Learned` as it is, beside the model."""


class GraphNumbers(msgspec.Struct):
    graph_weight: Positive
    pull: Annotated[float, msgspec.Meta(ge=0)]
    share: Annotated[float, msgspec.Meta(ge=0, le=1)]


class SavedModel(msgspec.Struct):
    """The metadata of the file."""

    parameters: dict[str, Any]
    classes: Annotated[list[str | int | float], msgspec.Meta(min_length=1)]
    classes_dtype: Annotated[str, msgspec.Meta(pattern="^[<>|=]?[UbiufO]")]
    stranger_label: str | int | float
    normalization: str
    length: Positive
    width: Positive | None  # of the Gaussian kernel
    graph: GraphNumbers | None
    members: Members | None
    strangers: Strangers | None
    count: StrangerCount | None
    pile_helps: bool | None
    message: str
    held_out: HeldOut | None
    feature_names: list[str]


def write_model(path: Path, fitted: FittedModel) -> None:
    """Write everything that prediction needs."""
    if not isinstance(fitted.parameters.refiner, str | None):
        raise InputError("a refiner is saved by its name; this one is a module")
    learned, model, space = fitted.learned, fitted.learned.model, fitted.learned.model.space
    graph = None
    if isinstance(model, GraphModel):
        graph = GraphNumbers(model.graph_weight, model.pull, model.share)
    about = SavedModel(
        parameters=asdict(fitted.parameters),
        classes=fitted.classes.tolist(),
        classes_dtype=fitted.classes.dtype.str,
        stranger_label=fitted.stranger_label,
        normalization=space.normalization,
        length=space.length,
        width=getattr(space, "width", None),
        graph=graph,
        feature_names=list(fitted.feature_names),
        **{name: getattr(learned, name) for name in LEARNED},
    )
    parts = {**vars(model), **vars(space)}
    arrays = {name: part for name, part in parts.items() if isinstance(part, np.ndarray)}
    builtins = msgspec.to_builtins(about, enc_hook=lambda number: number.item())
    write_arrays(path, arrays, {FORMAT: json.dumps(builtins)})  # a name may hold lone surrogates


def read_model(path: Path) -> FittedModel:
    """Read a file of `write_model`; InputError for the first field that is wrong."""
    try:
        arrays, metadata = read_arrays(path)
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    where = f"{path} was not written by PrototypeClassifier.save"
    if FORMAT not in metadata or "prototypes" not in arrays:
        raise InputError(f"{where}: {FORMAT} or its prototypes are missing")
    try:
        value = json.loads(metadata[FORMAT], parse_constant=str)  # NaN is not a number here
        about = from_json(SavedModel, value, "its metadata")
        parameters = Parameters(**about.parameters)
        learned = _learned(about, arrays)
        classes = np.array(about.classes, _dtype_of_classes(about.classes_dtype))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{where}: {reason_of(error)}") from error
    names = tuple(about.feature_names)
    if names and len(names) != len(learned.model.space.center):
        raise InputError(f"{where}: feature_names must be none or one for each feature")
    return FittedModel(parameters, classes, about.stranger_label, learned, names)


def _dtype_of_classes(saved: str) -> Any:
    """The size of strings is not used, since it is not trusted."""
    dtype = np.dtype(saved)
    return {"O": object, "U": None}.get(dtype.kind, dtype)


def _learned(about: SavedModel, arrays: Mapping[str, Array]) -> Learned:
    def size(name: str, axis: int) -> int:
        shape = arrays[name].shape if name in arrays else ()
        return shape[axis] if len(shape) > axis else 0

    classes, width, count = len(about.classes), size("prototypes", 1), size("rows", 0)  # N, W, L
    features = width if about.width is None else size("center", 0)  # D
    shapes: dict[str, tuple[int, ...]] = {"prototypes": (classes, width), "center": (features,)}
    if about.width is not None:
        shapes |= {"pivots": (width - 1, features), "mix": (width - 1, width - 1)}
    if about.graph is not None:
        each = count, classes + 1
        shapes |= {"rows": (count, width), "passed": each, "best": (count,), "answers": each}
        shapes["scoring"] = classes, width
    if about.normalization not in NORMALIZATIONS:
        raise InputError(f"normalization must be one of {', '.join(NORMALIZATIONS)}")
    for name, shape in shapes.items():
        _check(name, arrays.get(name), shape, arrays["prototypes"].dtype)
    space: AnySpace = Space(about.normalization, arrays["center"], about.length)
    if about.width is not None:
        space = GaussianSpace(arrays["center"], arrays["pivots"], arrays["mix"], about.width)
    model: AnyModel = PrototypeModel(space, arrays["prototypes"])
    if about.graph is not None:
        names = ("rows", "passed", "best", "answers", "scoring", "prototypes")
        parts: dict[str, Any] = {name: arrays[name] for name in names}
        model = GraphModel(space, **parts, **msgspec.structs.asdict(about.graph))
    if about.members and list(about.members.held_out) != sorted(about.members.held_out):
        raise InputError("members.held_out must be ascending")
    return Learned(model, **{name: getattr(about, name) for name in LEARNED})


def _check(name: str, array: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if array is None:
        raise InputError(f"{name} is missing")
    if dtype not in (np.float32, np.float64) or not np.isfinite(array).all():
        raise InputError(f"{name} must be finite float32 or float64")
    if array.shape != shape or array.dtype != dtype or 0 in shape:
        raise InputError(f"{name} must be {dtype} {shape}, not {array.dtype} {array.shape}")
