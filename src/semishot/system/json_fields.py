"""JSON objects -> dataclasses: each field is checked by its annotation, and named if it is wrong."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from semishot.errors import InputError

T = TypeVar("T")
LARGEST = 2**63
NAMES: dict[Any, str] = {int: "an integer", float: "a finite number", str: "a string"}
NAMES |= {bool: "true or false", dict: "an object", Mapping: "an object", tuple: "a list"}


def from_json(kind: type[T], value: Any, where: object) -> T:
    """The dataclass `kind` from what `json.loads` has returned; absent fields have their defaults.

    `where` begins the message of an error, as in "config.json: recipe.updates must be an integer".
    """
    made: T = _object(kind, value, where, "")
    return made


def _object(kind: Any, value: Any, where: object, name: str) -> Any:
    if not isinstance(value, dict):
        raise InputError(f"{where}: {name or 'it'} must be an object, not {value!r:.40}")
    prefix = f"{name}." if name else ""
    known = _fields(kind)
    if unknown := [key for key in value if key not in known]:
        raise InputError(f"{where}: unknown field {prefix}{unknown[0]:.40}")
    if missing := [key for key, (_, required) in known.items() if required and key not in value]:
        raise InputError(f"{where}: {prefix}{missing[0]} is missing")
    given = {key: _field(known[key][0], held, where, prefix + key) for key, held in value.items()}
    try:
        return kind(**given)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


@lru_cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Name -> annotation, and whether there is no default."""
    hints = get_type_hints(kind)
    defaults = {f.name: (f.default, f.default_factory) for f in fields(kind)}
    return {name: (hints[name], both == (MISSING, MISSING)) for name, both in defaults.items()}


def _field(kind: Any, value: Any, where: object, name: str) -> Any:
    if is_dataclass(kind):
        return _object(kind, value, where, name)
    if get_origin(kind) is tuple and isinstance(value, list):
        each = get_args(kind)[0]
        return tuple(_field(each, one, where, f"{name}[{i}]") for i, one in enumerate(value))
    if not fits(value, kind):
        raise InputError(f"{where}: {name} must be {_described(kind)}, not {value!r:.40}")
    return value


def fits(value: Any, kind: Any) -> bool:
    """Whether a JSON value is what an annotation says; numbers must be finite and below 2**63."""
    if kind is Any:
        return True
    if kind is int:
        return type(value) is int and -LARGEST < value < LARGEST
    if kind is float:  # NaN fails both comparisons
        return isinstance(value, int | float) and -LARGEST < value < LARGEST
    origin = get_origin(kind)
    if origin is Literal:
        return value in get_args(kind)
    if origin is UnionType:
        return any(fits(value, one) for one in get_args(kind))
    if origin is Mapping:
        held = get_args(kind)[1]
        return isinstance(value, dict) and all(fits(one, held) for one in value.values())
    return isinstance(value, origin or kind)


def _described(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if origin is UnionType:
        return " or ".join(_described(one) for one in get_args(kind))
    return "null" if kind is NoneType else NAMES.get(origin or kind, str(kind))
