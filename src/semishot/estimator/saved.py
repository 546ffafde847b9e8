"""A fitted classifier as one safetensors file: written, and read back with every field checked.

Letters: N classes, D features.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from semishot.errors import InputError, reason_of
from semishot.estimator.blocks import NORMALIZATIONS, Space
from semishot.estimator.fitted import HeldOut
from semishot.estimator.lift import Lift
from semishot.estimator.models import Model, NearestPrototypes, OffTheGraph
from semishot.estimator.strangers import Members, StrangerCount, Strangers
from semishot.system.tensor_files import read_tensors, write_tensors

FORMAT = "semishot.PrototypeClassifier"
GRAPH = ("rows", "passed", "best", "answers", "scoring")
"""Tensors of a graph, beside its prototypes."""


@dataclass(frozen=True)
class Saved:
    """What `fit` has learned, as far as prediction needs it."""

    classes: NDArray[Any]  # (N,)
    stranger_label: Any
    model: Model
    members: Members | None
    strangers: Strangers | None
    count: StrangerCount | None
    pile_helps: bool | None
    message: str
    held_out: HeldOut | None
    feature_names: list[str]
    """Empty, or D names."""


def write_saved(path: Path, parameters: Mapping[str, Any], saved: Saved) -> None:
    """Tensors, and everything else as JSON in the metadata."""
    model, space = saved.model, saved.model.space
    about = {
        "parameters": parameters,
        "classes": saved.classes.tolist(),
        "classes_dtype": saved.classes.dtype.str,
        "stranger_label": saved.stranger_label,
        "normalization": space.normalization,
        "length": space.length,
        "member_scores": saved.members and asdict(saved.members),
        "strangers": saved.strangers and saved.strangers._asdict(),
        "count": saved.count and saved.count._asdict(),
        "pile_helps": saved.pile_helps,
        "held_out": saved.held_out and saved.held_out._asdict(),
        "message": saved.message,
        "feature_names": saved.feature_names,
    }
    tensors = {"prototypes": model.prototypes, "center": space.center}
    if isinstance(model, OffTheGraph):
        about |= {"graph_weight": model.graph_weight, "pull": model.pull, "share": model.share}
        tensors |= {name: getattr(model, name) for name in GRAPH}
    if isinstance(space, Lift):
        about["width"] = space.width
        tensors |= {"pivots": space.pivots, "mix": space.mix}
    try:
        text = json.dumps(about)
    except TypeError as error:
        raise InputError(f"labels are saved as JSON: strings or numbers ({error})") from error
    write_tensors(path, tensors, {FORMAT: text})


def read_saved(path: Path) -> tuple[dict[str, Any], Saved]:
    """The estimator's parameters, not yet checked, and what it had learned."""
    try:
        tensors, metadata = read_tensors(path)
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    try:
        about = json.loads(metadata[FORMAT])
        return field(about, "parameters", "an object", is_a(dict)), _saved(about, tensors)
    except Exception as error:  # a file may hold anything
        raise not_saved(path, error) from error


def not_saved(path: object, error: Exception) -> InputError:
    return InputError(f"{path} was not written by PrototypeClassifier.save: {reason_of(error)}")


def _saved(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Saved:
    classes = _classes(
        field(about, "classes", "a list of strings or numbers", is_list_of(str, int, float)),
        field(about, "classes_dtype", "a string", is_a(str)),
    )
    model = _model(about, tensors, len(classes))
    features = len(model.space.center)
    names = field(about, "feature_names", "a list of strings", is_list_of(str))
    if len(names) not in (0, features):
        raise InputError(f"feature_names must be none, or {features}, not {len(names)}")
    label = "stranger" if classes.dtype.kind in "OU" else -1  # 0.1 did not write it
    if "stranger_label" in about:
        label = field(about, "stranger_label", "a string or a number", is_a(str, int, float))
    return Saved(
        classes,
        label,
        model,
        _members(about),
        _strangers(about.get("strangers")),
        _count(about.get("count")),
        field(about, "pile_helps", "true, false or null", is_a(bool, NoneType)),
        field(about, "message", "a string", is_a(str)),
        _held_out(about.get("held_out")),  # 0.1.0 did not write it at first
        names,
    )


def _model(about: Mapping[str, Any], tensors: Mapping[str, Tensor], classes: int) -> Model:
    prototypes = _tensor(tensors, "prototypes")
    if prototypes.ndim != 2 or len(prototypes) != classes or not prototypes.numel():
        raise InputError(
            f"prototypes must be ({classes} classes, features), not {tuple(prototypes.shape)}"
        )
    width = prototypes.shape[1]
    space = _space(about, tensors, width)
    if "graph_weight" not in about:
        if isinstance(space, Lift):
            raise InputError("pivots belong to a graph")
        return NearestPrototypes(space, prototypes)
    rows = _tensor(tensors, "rows")
    if rows.ndim != 2 or not len(rows):
        raise InputError(f"rows must be (rows, features), not {tuple(rows.shape)}")
    count = len(rows)
    each = (count, classes + 1)
    shapes = ((count, width), each, (count,), each, (classes, width))
    named = zip(GRAPH, shapes, strict=True)
    rows, passed, best, answers, scoring = (_shaped(tensors, name, shape) for name, shape in named)
    return OffTheGraph(
        space,
        rows,
        passed,
        best,
        answers,
        scoring,
        prototypes,
        number(about, "graph_weight", "a positive number", is_positive),
        number(about, "pull", "a number from 0", lambda n: is_number(n) and n >= 0),
        number(about, "share", "a number from 0 to 1", lambda n: is_number(n) and 0 <= n <= 1),
    )


def _space(about: Mapping[str, Any], tensors: Mapping[str, Tensor], width: int) -> Space | Lift:
    """`width`: the number of coordinates in the space."""
    choices = f"one of {', '.join(NORMALIZATIONS)}"
    normalization = field(about, "normalization", choices, NORMALIZATIONS.__contains__)
    length = number(about, "length", "a positive number", is_positive)
    if "width" not in about:
        return Space(normalization, _shaped(tensors, "center", (width,)), length)
    center = _tensor(tensors, "center")
    if center.ndim != 1 or not len(center):
        raise InputError(f"center must be (features,), not {tuple(center.shape)}")
    return Lift(
        center,
        _shaped(tensors, "pivots", (width - 1, len(center))),
        _shaped(tensors, "mix", (width - 1, width - 1)),
        number(about, "width", "a positive number", is_positive),
    )


def _members(about: Mapping[str, Any]) -> Members | None:
    """Version 0.1 wrote squared distances, which are minus the scores."""
    key = "member_scores" if "member_scores" in about else "members"
    if (saved := about.get(key)) is None:
        return None
    mean = number(saved, "mean", "a number", is_number, key)
    spread = number(saved, "spread", "a positive number", is_positive, key)
    freedom = number(saved, "freedom", "a positive number", is_positive, key)
    if key == "members":
        return Members(-mean, spread, freedom)
    skew = number(saved, "skew", "a positive number", is_positive, key)
    held_out = field(saved, "held_out", "a list of numbers", is_list_of(int, float), key)
    if not all(is_number(each) for each in held_out) or sorted(held_out) != held_out:
        raise InputError(f"{key}.held_out must be ascending numbers")
    return Members(mean, spread, freedom, skew, tuple(map(float, held_out)))


def _strangers(saved: Any) -> Strangers | None:
    if saved is None:
        return None
    return Strangers(
        number(saved, "mean", "a number", is_number, "strangers"),
        number(saved, "variance", "a positive number", is_positive, "strangers"),
        number(saved, "share", "between 0 and 1", lambda n: is_share(n) and 0 < n < 1, "strangers"),
    )


def _count(saved: Any) -> StrangerCount | None:
    if saved is None:
        return None
    return StrangerCount(
        *(number(saved, name, "a number", is_number, "count") for name in StrangerCount._fields)
    )


def _held_out(saved: Any) -> HeldOut | None:
    if saved is None:
        return None
    return HeldOut(
        field(saved, "examples", "a count", lambda n: type(n) is int and n > 0, "held_out"),
        number(saved, "accuracy", "from 0 to 1", is_share, "held_out"),
        number(saved, "probability", "from 0 to 1", is_share, "held_out"),
    )


def _classes(values: list[Any], kind: str) -> NDArray[Any]:
    """Labels with their original type. The size in `kind` is not used, since it is not trusted."""
    try:
        dtype = np.dtype(kind)
    except TypeError as error:
        raise InputError(f"classes_dtype must be a type of labels, not {kind!r:.40}") from error
    if dtype.kind not in "OUbiuf":
        raise InputError(f"classes_dtype must be a type of labels, not {kind!r:.40}")
    wanted = {"O": object, "U": None}.get(dtype.kind, dtype)
    return np.array(values, wanted)


def _tensor(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    if (found := tensors.get(name)) is None:
        raise InputError(f"{name} is missing")
    if found.dtype not in (torch.float32, torch.float64) or not found.isfinite().all():
        raise InputError(f"{name} must be finite float32 or float64")
    return found


def _shaped(tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...]) -> Tensor:
    found, like = _tensor(tensors, name), _tensor(tensors, "prototypes")
    if found.shape != shape or found.dtype != like.dtype:
        raise InputError(
            f"{name} must be {like.dtype} {shape}, not {found.dtype} {tuple(found.shape)}"
        )
    return found


def field(
    saved: Any, name: str, must: str, is_valid: Callable[[Any], bool], within: str = ""
) -> Any:
    """A value of a JSON object, or an InputError that names it."""
    shown = f"{within}.{name}" if within else name
    if not isinstance(saved, dict):
        raise InputError(f"{within or 'its metadata'} must be an object, not {saved!r:.40}")
    if not is_valid(value := saved.get(name)):
        raise InputError(f"{shown} must be {must}, not {value!r:.40}")
    return value


def number(
    saved: Any, name: str, must: str, is_valid: Callable[[Any], bool], within: str = ""
) -> float:
    """The same as a float: a whole number of any size would be one of Python's own."""
    return float(field(saved, name, must, is_valid, within))


def is_a(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


def is_list_of(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(isinstance(each, kinds) for each in value)


def is_number(value: Any) -> bool:
    """Whether it is a finite number; true and false are not."""
    try:
        return not isinstance(value, bool) and math.isfinite(value)
    except (TypeError, OverflowError):
        return False


def is_positive(value: Any) -> bool:
    return is_number(value) and value > 0


def is_share(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1
