"""The events of `label`: what an answer, a new class, an undo says, checked field by field."""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from semishot.errors import InputError

Event = dict[str, Any]
NONE, UNANSWERED = 0, -1
"""Answers beside the numbers of classes, which begin at 1: none of these; no answer."""
LONGEST_NAME = 100
RESERVED = {"stranger", "-1", "-2"}
"""Labels that mean something else in tables and folders."""


def _number(value: object, field: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
        raise InputError(f"{field} must be a number from 1 on, not {value!r:.40}")
    return value


def _images(images: object, field: str) -> list[int]:
    if not isinstance(images, Sequence) or isinstance(images, str):
        raise InputError(f"{field} must be a list")
    return [_number(image, "image") for image in images]


def _set(pairs: object, field: str) -> list[list[Any]]:
    if not isinstance(pairs, list) or not all(isinstance(p, list) and len(p) == 2 for p in pairs):
        raise InputError(f"{field} must be a list of [answer, images]")
    for value, _ in pairs:
        if value not in (NONE, UNANSWERED) or type(value) is not int:
            _number(value, "answer")
    return [[value, _images(images, "images")] for value, images in pairs]


def _share(value: object, field: str) -> float:
    if not isinstance(value, int | float) or not 0 < value < 1:
        raise InputError(f"{field} must be between 0 and 1, not {value!r:.40}")
    return float(value)


def _name(name: object, field: str) -> str:
    """A class name as it is kept: one line of printable text."""
    if not isinstance(name, str):
        raise InputError(f"{field} must be text, not {name!r:.40}")
    found = " ".join(unicodedata.normalize("NFC", name).split())
    if not found or len(found) > LONGEST_NAME:
        raise InputError(
            f"the name of a class has 1 to {LONGEST_NAME} characters, not {len(found)}"
        )
    if not found.isprintable():
        raise InputError("the name of a class must be printable")
    if found.casefold() in RESERVED:
        raise InputError(
            f"a class cannot be called {found}: it stands for images of no class, or no label"
        )
    return found


FIELDS: dict[str, dict[str, Callable[[object, str], Any]]] = {
    "answer": {"set": _set},
    "not": {"class": _number, "images": _images},
    "new": {"name": _name, "images": _images},
    "rename": {"class": _number, "name": _name},
    "merge": {"class": _number, "into": _number},
    "delete": {"class": _number},
    "reject": {"value": _share},
    "apart": {"images": _images},
    "undo": {},
    "redo": {},
}
"""The fields of each kind of event, and how each is checked."""


def checked(event: object) -> Event:
    """An event with the fields of its kind and no others, each of its type."""
    if not isinstance(event, dict):
        raise InputError("an event must be an object")
    kind = event.get("kind")
    if not isinstance(kind, str):
        raise InputError(f"kind must be text, not {kind!r:.40}")
    if kind not in FIELDS:
        raise InputError(f"kind must be one of {', '.join(FIELDS)}, not {kind!r:.40}")
    fields = FIELDS[kind]
    if kind == "new" and "class" in event:  # one that was kept has the number it was given
        fields = {"class": _number, **fields}
    return {"kind": kind, **{name: check(event.get(name), name) for name, check in fields.items()}}


def images_in(event: Event) -> Iterable[int]:
    """Every image that an event names."""
    yield from event.get("images", ())
    for _, images in event.get("set", ()):
        yield from images
