"""JSON -> dataclasses, msgspec structs and typed dictionaries: each field is checked, and named if wrong."""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from semishot.errors import InputError
from semishot.system.files import MOST_JSON, read_regular, reading

T = TypeVar("T")


def from_json(kind: type[T], value: Any, where: object) -> T:
    """A `kind` from the result of `json.loads`; absent fields get their defaults, unknown ones are refused.

    A typed dictionary may have other keys too. Error messages begin with `where`, as in
    "config.json: recipe.updates: expected `int`, got `str`".
    """
    try:
        made = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {_message(str(error))}") from error
    if unknown := _unknown(value, msgspec.to_builtins(made)):
        raise InputError(f"{where}: unknown field {unknown}")
    return made


def decode(kind: type[T], content: bytes | str, where: object) -> T:
    """A `kind` from JSON text."""
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{where} is not JSON: {error}") from error
    return from_json(kind, value, where)


def read_struct(kind: type[T], path: Path) -> T:
    """A `kind` from a JSON file."""
    with reading(path):
        content = read_regular(path, MOST_JSON)
    return decode(kind, content, path)


def _message(text: str) -> str:
    """msgspec's "Expected `int`, got `str` - at `$.recipe.updates`", with the field first."""
    what, _, field = text.rpartition(" - at `$")
    name = field.strip(".`")
    said = (what or text)[:1].lower() + (what or text)[1:]
    return f"{name}: {said}" if what and name else said


def _unknown(value: Any, known: Any, prefix: str = "") -> str | None:
    """The first field of `value` that its struct does not have."""
    if isinstance(value, dict) and isinstance(known, dict):
        for key, inner in value.items():
            if key not in known:
                return f"{prefix}{key:.40}"
            if deeper := _unknown(inner, known[key], f"{prefix}{key}."):
                return deeper
    elif isinstance(value, list) and isinstance(known, list | tuple):
        for index, (inner, other) in enumerate(zip(value, known, strict=False)):
            if deeper := _unknown(inner, other, f"{prefix.removesuffix('.')}[{index}]."):
                return deeper
    return None
