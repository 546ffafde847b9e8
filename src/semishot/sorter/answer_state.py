"""What the answers of `label` add up to, and what each event changes in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from semishot.errors import InputError, counted
from semishot.sorter.answer_events import UNANSWERED, Event

MOST_CLASSES = 1000
REJECT = 0.05
"""The share of true members that may be taken for strangers, until the user moves the slider."""
BY_IMAGE = ("answers", "excluded")
"""Fields of the state with an entry for each image: a change names some of them."""


class ConflictError(InputError):
    """An answer that does not fit the state any more, such as one about a class that is gone."""


@dataclass
class State:
    """What the answers add up to."""

    classes: dict[int, str] = field(default_factory=dict)
    """Number and name of each class, in the order of the page."""
    answers: dict[int, int] = field(default_factory=dict)
    """Image -> class, or NONE."""
    excluded: dict[int, frozenset[int]] = field(default_factory=dict)
    """Image -> the classes that it does not belong to."""
    apart: frozenset[int] = frozenset()
    """Images that are no longer grouped with their near copies."""
    sure: frozenset[int] = frozenset()
    """Images that were given the same answer twice: it is not doubted again."""
    reject: float = REJECT


@dataclass(frozen=True)
class Step:
    """A change of the state: the fields before and after it, of what it touches only."""

    title: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def take_over(state: State, values: Mapping[str, Any]) -> None:
    """Take over whole fields, and entries of those by image; None removes an entry."""
    for name, value in values.items():
        if name in BY_IMAGE:
            held = getattr(state, name)
            for image, entry in value.items():
                if entry is None:
                    held.pop(image, None)
                else:
                    held[image] = entry
        else:
            setattr(state, name, value)


def step_of(state: State, event: Event) -> Step:
    """What an event changes; ConflictError if it does not fit the state."""
    title, after = CHANGES[event["kind"]](state, event)
    before: dict[str, Any] = {}
    for name, value in after.items():
        now = getattr(state, name)
        before[name] = {image: now.get(image) for image in value} if name in BY_IMAGE else now
    return Step(title, before, after)


def _answer(state: State, event: Event) -> tuple[str, dict[str, Any]]:
    answers: dict[int, int | None] = {}
    for value, images in event["set"]:
        if value > 0:
            _known(state, value)
        answers.update(dict.fromkeys(images, None if value == UNANSWERED else value))
    same = {i for i, value in answers.items() if value and state.answers.get(i) == value}
    sure = (state.sure - answers.keys()) | same
    after: dict[str, Any] = {"answers": answers}
    if sure != state.sure:
        after["sure"] = sure
    return counted(len(answers), "answer"), after


def _exclude(state: State, event: Event) -> tuple[str, dict[str, Any]]:
    name = _known(state, event["class"])
    images = event["images"]
    excluded = {i: state.excluded.get(i, frozenset()) | {event["class"]} for i in images}
    freed = {i: None for i in images if state.answers.get(i) == event["class"]}
    return f"not {name}: {counted(len(images), 'image')}", {"excluded": excluded, "answers": freed}


def _new(state: State, event: Event) -> tuple[str, dict[str, Any]]:
    name, number = _free_name(state, event["name"]), event["class"]
    if len(state.classes) >= MOST_CLASSES:
        raise ConflictError(f"{MOST_CLASSES:,} classes are the maximum; merge or delete some")
    answers = dict.fromkeys(event["images"], number)
    return f"new class {name}", {"classes": {**state.classes, number: name}, "answers": answers}


def _rename(state: State, event: Event) -> tuple[str, dict[str, Any]]:
    before = _known(state, event["class"])
    name = _free_name(state, event["name"], event["class"])
    return f"{before} renamed {name}", {"classes": {**state.classes, event["class"]: name}}


def _merge(state: State, event: Event) -> tuple[str, dict[str, Any]]:
    here, into = event["class"], event["into"]
    names = _known(state, here), _known(state, into)
    if here == into:
        raise ConflictError(f"{names[0]} cannot be merged with itself")
    return f"{names[0]} merged into {names[1]}", _without(state, here, into)


def _delete(state: State, event: Event) -> tuple[str, dict[str, Any]]:
    return f"{_known(state, event['class'])} deleted", _without(state, event["class"], None)


def _without(state: State, number: int, into: int | None) -> dict[str, Any]:
    """All of the state that names a class, naming another one instead, or none."""
    excluded = {i: held - {number} or None for i, held in state.excluded.items() if number in held}
    return {
        "classes": {n: name for n, name in state.classes.items() if n != number},
        "answers": {i: into for i, held in state.answers.items() if held == number},
        "excluded": excluded,
    }


def _reject(state: State, event: Event) -> tuple[str, dict[str, Any]]:
    return "cutoff moved", {"reject": event["value"]}


def _apart(state: State, event: Event) -> tuple[str, dict[str, Any]]:
    images = event["images"]
    return f"{counted(len(images), 'image')} separated", {"apart": state.apart | set(images)}


CHANGES = {
    "answer": _answer,
    "not": _exclude,
    "new": _new,
    "rename": _rename,
    "merge": _merge,
    "delete": _delete,
    "reject": _reject,
    "apart": _apart,
}


def _known(state: State, number: int) -> str:
    if number not in state.classes:
        raise ConflictError("this class is gone: it was merged, deleted or undone")
    return state.classes[number]


def _free_name(state: State, name: str, own: int | None = None) -> str:
    for number, held in state.classes.items():
        if number != own and held.casefold() == name.casefold():
            raise ConflictError(f"there is a class {held} already")
    return name
