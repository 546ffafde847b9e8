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

from semishot.errors import InputError
from semishot.estimator.blocks import NORMALIZATIONS, Space
from semishot.estimator.held_out import HeldOut, Members
from semishot.system.tensor_files import read_tensors, write_tensors

FORMAT = "semishot.PrototypeClassifier"


@dataclass(frozen=True)
class Learned:
    """What `fit` has learned, as far as prediction needs it."""

    classes: NDArray[Any]  # (N,)
    prototypes: Tensor  # (N, D)
    space: Space
    members: Members | None
    pile_helps: bool | None
    message: str
    held_out: HeldOut | None
    feature_names: list[str]
    """Empty, or D names."""


def write_saved(path: Path, parameters: Mapping[str, Any], learned: Learned) -> None:
    """Tensors, and everything else as JSON in the metadata."""
    about = {
        "parameters": parameters,
        "classes": learned.classes.tolist(),
        "classes_dtype": learned.classes.dtype.str,
        "normalization": learned.space.normalization,
        "length": learned.space.length,
        "members": learned.members and asdict(learned.members),
        "pile_helps": learned.pile_helps,
        "held_out": learned.held_out and learned.held_out._asdict(),
        "message": learned.message,
        "feature_names": learned.feature_names,
    }
    try:
        text = json.dumps(about)
    except TypeError as error:
        raise InputError(f"labels are saved as JSON: strings or numbers ({error})") from error
    tensors = {"prototypes": learned.prototypes, "center": learned.space.center}
    write_tensors(path, tensors, {FORMAT: text})


def read_saved(path: Path) -> tuple[dict[str, Any], Learned]:
    """The estimator's parameters, not yet checked, and what it had learned."""
    try:
        tensors, metadata = read_tensors(path)
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    try:
        about = json.loads(metadata[FORMAT])
        return field(about, "parameters", "an object", is_a(dict)), _learned(about, tensors)
    except Exception as error:  # a file may hold anything
        raise not_saved(path, error) from error


def not_saved(path: object, error: Exception) -> InputError:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return InputError(f"{path} was not written by PrototypeClassifier.save: {reason}")


def _learned(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Learned:
    classes = _classes(
        field(about, "classes", "a list of strings or numbers", is_list_of(str, int, float)),
        field(about, "classes_dtype", "a string", is_a(str)),
    )
    prototypes, center = _tensor(tensors, "prototypes"), _tensor(tensors, "center")
    if prototypes.ndim != 2 or len(prototypes) != len(classes) or not prototypes.numel():
        raise InputError(
            f"prototypes must be ({len(classes)} classes, features), not {tuple(prototypes.shape)}"
        )
    features = prototypes.shape[1]
    if center.shape != (features,) or center.dtype != prototypes.dtype:
        raise InputError(
            f"center must be {prototypes.dtype} ({features},), not {center.dtype} {tuple(center.shape)}"
        )
    choices = f"one of {', '.join(NORMALIZATIONS)}"
    normalization = field(about, "normalization", choices, NORMALIZATIONS.__contains__)
    length = field(about, "length", "a positive number", is_positive)
    names = field(about, "feature_names", "a list of strings", is_list_of(str))
    if len(names) not in (0, features):
        raise InputError(f"feature_names must be none, or {features}, not {len(names)}")
    return Learned(
        classes,
        prototypes,
        Space(normalization, center, length),
        _members(about.get("members")),
        field(about, "pile_helps", "true, false or null", is_a(bool, NoneType)),
        field(about, "message", "a string", is_a(str)),
        _held_out(about.get("held_out")),  # 0.1.0 did not write it at first
        names,
    )


def _members(saved: Any) -> Members | None:
    if saved is None:
        return None
    return Members(
        field(saved, "mean", "a number", is_number, "members"),
        field(saved, "spread", "a positive number", is_positive, "members"),
        field(saved, "freedom", "a positive number", is_positive, "members"),
    )


def _held_out(saved: Any) -> HeldOut | None:
    if saved is None:
        return None
    return HeldOut(
        field(saved, "examples", "a count", lambda n: type(n) is int and n > 0, "held_out"),
        field(saved, "accuracy", "from 0 to 1", is_share, "held_out"),
        field(saved, "probability", "from 0 to 1", is_share, "held_out"),
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
