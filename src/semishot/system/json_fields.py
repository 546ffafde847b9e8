"""JSON objects -> dataclasses or typed dictionaries: each field is checked, and named if it is wrong."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache, partial
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints, is_typeddict

from semishot.errors import InputError

T = TypeVar("T")
Convert = Callable[[Any, object, str], Any]
"""A JSON value, where it comes from, and its field's name -> the field; InputError if it is wrong."""
LARGEST = 2**63
NAMES: dict[Any, str] = {int: "an integer", float: "a finite number", str: "a string"}
NAMES |= {bool: "true or false", dict: "an object", Mapping: "an object", tuple: "a list"}
NAMES |= {NoneType: "null"}


def from_json(kind: type[T], value: Any, where: object) -> T:
    """The dataclass `kind` from the result of `json.loads`; absent fields get their defaults.

    A typed dictionary may have other keys too. Error messages begin with `where`, as in
    "config.json: recipe.updates must be an integer".
    """
    made: T = _convert(kind)(value, where, "")
    return made


def _object(kind: Any, value: Any, where: object, name: str) -> Any:
    if not isinstance(value, dict):
        raise InputError(f"{where}: {name or 'it'} must be an object, not {value!r:.40}")
    prefix = f"{name}." if name else ""
    converts, required = _fields(kind)
    if unknown := [key for key in value if key not in converts]:
        raise InputError(f"{where}: unknown field {prefix}{unknown[0]:.40}")
    if missing := [key for key in required if key not in value]:
        raise InputError(f"{where}: {prefix}{missing[0]} is missing")
    given = {key: converts[key](held, where, prefix + key) for key, held in value.items()}
    try:
        return kind(**given)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _dictionary(kind: Any, value: Any, where: object, name: str) -> Any:
    if not isinstance(value, dict):
        raise InputError(f"{where}: {name or 'it'} must be an object, not {value!r:.40}")
    prefix = f"{name}." if name else ""
    for key, convert in _entries(kind).items():
        if key in value:
            convert(value[key], where, prefix + key)
        elif key in kind.__required_keys__:
            raise InputError(f"{where}: {prefix}{key} is missing")
    return value


@lru_cache
def _entries(kind: Any) -> dict[str, Convert]:
    return {name: _convert(hint) for name, hint in get_type_hints(kind).items()}


@lru_cache
def _fields(kind: Any) -> tuple[dict[str, Convert], list[str]]:
    """How each field is converted, and which have no default."""
    hints = get_type_hints(kind)
    required = [f for f in fields(kind) if f.default is f.default_factory is MISSING]
    return {f.name: _convert(hints[f.name]) for f in fields(kind)}, [f.name for f in required]


def _convert(kind: Any) -> Convert:
    if is_dataclass(kind):
        return partial(_object, kind)
    if is_typeddict(kind):
        return partial(_dictionary, kind)
    origin = get_origin(kind)
    if origin is UnionType and is_dataclass(get_args(kind)[0]):  # or null
        present = _convert(get_args(kind)[0])
        return lambda value, where, name: value if value is None else present(value, where, name)
    if origin in (tuple, list):
        each = _convert(get_args(kind)[0])

        def convert(value: Any, where: object, name: str) -> Any:
            if not isinstance(value, list):
                raise InputError(f"{where}: {name} must be a list, not {value!r:.40}")
            return origin(each(one, where, f"{name}[{i}]") for i, one in enumerate(value))
    elif origin is dict:
        held = _convert(get_args(kind)[1])

        def convert(value: Any, where: object, name: str) -> Any:
            if not isinstance(value, dict):
                raise InputError(f"{where}: {name} must be an object, not {value!r:.40}")
            return {key: held(one, where, f"{name}.{key}") for key, one in value.items()}
    else:
        test, expected = _test(kind), _described(kind)

        def convert(value: Any, where: object, name: str) -> Any:
            if not test(value):
                raise InputError(f"{where}: {name} must be {expected}, not {value!r:.40}")
            return value

    return convert


def fits(value: Any, kind: Any) -> bool:
    """Whether a JSON value matches an annotation; numbers must be finite and below 2**63."""
    return _test(kind)(value)


@lru_cache
def _test(kind: Any) -> Callable[[Any], bool]:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: True
    if kind is int:
        return lambda value: type(value) is int and -LARGEST < value < LARGEST
    if kind is float:  # NaN fails both comparisons; a bool is not a number
        return lambda value: type(value) in (int, float) and -LARGEST < value < LARGEST
    if origin is Literal:
        return lambda value: value in inner
    if origin is UnionType:
        tests = [_test(one) for one in inner]
        return lambda value: any(test(value) for test in tests)
    if origin is Mapping:
        held = _test(inner[1])
        return lambda value: isinstance(value, dict) and all(map(held, value.values()))
    return lambda value: isinstance(value, origin or kind)


def _described(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin is UnionType:
        return " or ".join(_described(one) for one in inner)
    return NAMES.get(origin or kind, getattr(kind, "__name__", str(kind)))
