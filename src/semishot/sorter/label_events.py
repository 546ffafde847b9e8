"""What a user says of images, as events: an answer, a new class, an undo; and the labels they add up to."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Union

import msgspec
from msgspec import Meta

from semishot.errors import InputError, counted
from semishot.sorter.listing import STRANGER, as_label
from semishot.system.structs import from_json

Event = dict[str, Any]
NONE, UNANSWERED = 0, -1
"""Answers beside the numbers of classes, which begin at 1: a stranger; no answer."""

Number = Annotated[int, Meta(ge=1, lt=2**31)]
NumberOrNone = Annotated[int, Meta(ge=NONE, lt=2**31)]
AnswerValue = Annotated[int, Meta(ge=UNANSWERED, lt=2**31)]


class ConflictError(InputError):
    """An answer that does not fit the state any more, such as one about a class that is gone."""


FIELDS: dict[str, dict[str, Any]] = {
    "answer": {"set": list[tuple[AnswerValue, list[Number]]]},
    "not": {"class": NumberOrNone, "images": list[Number]},
    "new": {"name": str, "images": list[Number], "class": Number | None},
    "rename": {"class": Number, "name": str},
    "merge": {"class": Number, "into": Number},
    "delete": {"class": Number},
    "reject": {"value": Annotated[float, Meta(gt=0, lt=1)] | None},
    "apart": {"images": list[Number]},
    "audit": {"seed": Number, "set": list[tuple[NumberOrNone, list[Number]]]},
    "undo": {},
    "redo": {},
}
"""The fields of each kind of event. A new class gets its number when the event is stored."""


def _struct(kind: str, fields: dict[str, Any]) -> Any:
    typed = [(n, t, None) if t == Number | None else (n, t) for n, t in fields.items()]
    return msgspec.defstruct(kind, typed, tag=kind, tag_field="kind", omit_defaults=True)


AnyEvent: Any = Union[tuple(_struct(kind, fields) for kind, fields in FIELDS.items())]  # noqa: UP007


def checked(event: object) -> Event:
    """An event with the fields of its kind and no others, each of its type."""
    plain: Event = msgspec.to_builtins(from_json(AnyEvent, event, "event"))
    if "name" in plain:
        if not plain["name"].strip().isprintable():
            raise InputError("the name of a class must be printable")
        plain["name"] = as_label(plain["name"].strip())
        if plain["name"] in ("", STRANGER):
            raise InputError(f"a class needs a name other than {STRANGER}")
    return plain


def images_in(event: Event) -> Iterable[int]:
    """Every image that an event names."""
    yield from event.get("images", ())
    for _, images in event.get("set", ()):
        yield from images


@dataclass(frozen=True)
class BegunAudit:
    """The decisions that an audit is about: those of the images without an answer when it began."""

    seed: int
    """Chooses the order in which images are looked at."""
    decisions: Mapping[int, int]
    """Image -> class, or NONE."""


@dataclass
class LabelState:
    """What the events add up to."""

    classes: dict[int, str] = field(default_factory=dict)
    """Number and name of each class, in the order of the page."""
    slots: dict[int, int] = field(default_factory=dict)
    """Number of each class -> its place among keys and colors, which is its own while it lives."""
    answers: dict[int, int] = field(default_factory=dict)
    """Image -> class, or NONE."""
    excluded: dict[int, frozenset[int]] = field(default_factory=dict)
    """Image -> the classes that it does not belong to, or NONE: it is no stranger."""
    apart: frozenset[int] = frozenset()
    """Images that are no longer grouped with their near copies."""
    sure: frozenset[int] = frozenset()
    """Images that were given the same answer twice: it is not doubted again."""
    reject: float | None = None
    """The share of members that may be taken for strangers. None: each image has its likeliest answer."""
    audit: BegunAudit | None = None

    def update(self, values: Mapping[str, Any]) -> None:
        """Replace whole fields, and entries of those by image; None removes an entry."""
        for name, value in values.items():
            if name not in BY_IMAGE:
                setattr(self, name, value)
                continue
            entries = getattr(self, name)
            for image, entry in value.items():
                if entry is None:
                    entries.pop(image, None)
                else:
                    entries[image] = entry


BY_IMAGE = ("answers", "excluded")
"""Fields of the state with an entry for each image: a change names some of them."""


@dataclass(frozen=True)
class Change:
    """A change of the state: the fields before and after it, of what it touches only."""

    title: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def change_of(state: LabelState, event: Event) -> Change:
    """What an event changes; ConflictError if it does not fit the state."""
    title, after = CHANGES[event["kind"]](state, event)
    before: dict[str, Any] = {}
    for name, value in after.items():
        now = getattr(state, name)
        before[name] = {image: now.get(image) for image in value} if name in BY_IMAGE else now
    return Change(title, before, after)


Changed = tuple[str, dict[str, Any]]


def _answer(state: LabelState, event: Event) -> Changed:
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


def _exclude(state: LabelState, event: Event) -> Changed:
    name = _known(state, event["class"]) if event["class"] else STRANGER
    images = event["images"]
    excluded = {i: state.excluded.get(i, frozenset()) | {event["class"]} for i in images}
    freed = {i: None for i in images if state.answers.get(i) == event["class"]}
    return f"not {name}: {counted(len(images), 'image')}", {"excluded": excluded, "answers": freed}


def _new(state: LabelState, event: Event) -> Changed:
    name, number = _free_name(state, event["name"]), event["class"]
    answers, taken = dict.fromkeys(event["images"], number), set(state.slots.values())
    slot = next(slot for slot in range(len(taken) + 1) if slot not in taken)
    classes, slots = {**state.classes, number: name}, {**state.slots, number: slot}
    ordered = {n: classes[n] for n in sorted(classes, key=slots.__getitem__)}
    return f"new class {name}", {"classes": ordered, "slots": slots, "answers": answers}


def _rename(state: LabelState, event: Event) -> Changed:
    before = _known(state, event["class"])
    name = _free_name(state, event["name"], event["class"])
    return f"{before} renamed {name}", {"classes": {**state.classes, event["class"]: name}}


def _merge(state: LabelState, event: Event) -> Changed:
    here, into = event["class"], event["into"]
    names = _known(state, here), _known(state, into)
    if here == into:
        raise ConflictError(f"{names[0]} cannot be merged with itself")
    return f"{names[0]} merged into {names[1]}", _without(state, here, into)


def _delete(state: LabelState, event: Event) -> Changed:
    return f"{_known(state, event['class'])} deleted", _without(state, event["class"], None)


def _without(state: LabelState, number: int, into: int | None) -> dict[str, Any]:
    """All of the state that names a class, naming another one instead, or none."""
    excluded = {i: own - {number} or None for i, own in state.excluded.items() if number in own}
    audit = state.audit
    if audit and (number in state.answers.values() or number in audit.decisions.values()):
        audit = None  # what is right was another question
    return {
        "audit": audit,
        "classes": {n: name for n, name in state.classes.items() if n != number},
        "slots": {n: slot for n, slot in state.slots.items() if n != number},
        "answers": {i: into for i, answer in state.answers.items() if answer == number},
        "excluded": excluded,
    }


def _reject(state: LabelState, event: Event) -> Changed:
    return "cutoff moved", {"reject": event["value"]}


def _apart(state: LabelState, event: Event) -> Changed:
    images = event["images"]
    return f"{counted(len(images), 'image')} separated", {"apart": state.apart | set(images)}


def _audit(state: LabelState, event: Event) -> Changed:
    decisions = dict[int, int]()
    for value, images in event["set"]:
        if value:
            _known(state, value)
        decisions.update(dict.fromkeys(images, value))
    decisions = {image: value for image, value in decisions.items() if image not in state.answers}
    if not decisions:
        raise ConflictError("every image has an answer: there is nothing to audit")
    return "audit begun", {"audit": BegunAudit(event["seed"], decisions)}


CHANGES: dict[str, Callable[[LabelState, Event], Changed]] = {
    "answer": _answer,
    "not": _exclude,
    "new": _new,
    "rename": _rename,
    "merge": _merge,
    "delete": _delete,
    "reject": _reject,
    "apart": _apart,
    "audit": _audit,
}


def _known(state: LabelState, number: int) -> str:
    if number not in state.classes:
        raise ConflictError("this class is gone: it was merged, deleted or undone")
    return state.classes[number]


def _free_name(state: LabelState, name: str, own: int | None = None) -> str:
    for number, other in state.classes.items():
        if number != own and other.casefold() == name.casefold():
            raise ConflictError(f"there is a class {other} already")
    return name
