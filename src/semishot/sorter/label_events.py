"""What a user says of images, as events: an answer, a new class, an undo; and the labels they add up to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Union

import msgspec
from msgspec import Meta, Struct

from semishot.errors import InputError, counted
from semishot.sorter.listing import STRANGER, as_label
from semishot.system.structs import from_json

NONE, UNANSWERED = 0, -1
"""Answers beside the numbers of classes, which begin at 1: a stranger; no answer."""

Number = Annotated[int, Meta(ge=1, lt=2**31)]
NumberOrNone = Annotated[int, Meta(ge=NONE, lt=2**31)]
AnswerValue = Annotated[int, Meta(ge=UNANSWERED, lt=2**31)]


class ConflictError(InputError):
    """An answer that does not fit the state any more, such as one about a class that is gone."""


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
    apart: set[int] = field(default_factory=set)
    """Images that are no longer grouped with their near copies."""
    sure: set[int] = field(default_factory=set)
    """Images that were given the same answer twice: it is not doubted again."""
    reject: float | None = None
    """The share of members that may be taken for strangers. None: each image has its likeliest answer."""
    audit: BegunAudit | None = None

    def copy(self) -> "LabelState":
        """One that later events do not change."""
        containers = ("classes", "slots", "answers", "excluded", "apart", "sure")
        return replace(self, **{name: getattr(self, name).copy() for name in containers})

    def name_of(self, number: int) -> str:
        """The name of a class, or `stranger`."""
        if number and number not in self.classes:
            raise ConflictError("this class is gone: it was merged, deleted or undone")
        return self.classes[number] if number else STRANGER

    def free_name(self, given: str, own: int = NONE) -> str:
        """The name of a class as it is kept; no class but `own` may have it already."""
        if not given.strip().isprintable():
            raise InputError("the name of a class must be printable")
        if (name := as_label(given.strip())) in ("", STRANGER):
            raise InputError(f"a class needs a name other than {STRANGER}")
        for number, other in self.classes.items():
            if number != own and other.casefold() == name.casefold():
                raise ConflictError(f"there is a class {other} already")
        return name


class LabelEvent(Struct, tag_field="kind", omit_defaults=True):
    """Something that a user says: as JSON in the store and from the page, with its tag as `kind`."""

    def apply(self, state: LabelState) -> str:
        """Change the state; what was done, in words. ConflictError, and no change, if it does not fit."""
        return ""


class GiveAnswers(LabelEvent, tag="answer"):
    """Images belong to a class, are strangers, or have no answer any more."""

    answers: list[tuple[AnswerValue, list[Number]]] = msgspec.field(name="set")

    def apply(self, state: LabelState) -> str:
        for value, _ in self.answers:
            state.name_of(max(value, NONE))
        answers = {image: value for value, images in self.answers for image in images}
        for image, value in answers.items():
            if value > NONE and state.answers.get(image) == value:
                state.sure.add(image)
            else:
                state.sure.discard(image)
            state.answers[image] = value
            if value == UNANSWERED:
                del state.answers[image]
        return counted(len(answers), "answer")


class RuleOut(LabelEvent, tag="not"):
    """Images do not belong to a class, or are no strangers."""

    number: NumberOrNone = msgspec.field(name="class")
    images: list[Number]

    def apply(self, state: LabelState) -> str:
        name = state.name_of(self.number)
        for image in self.images:
            state.excluded[image] = state.excluded.get(image, frozenset()) | {self.number}
            if state.answers.get(image) == self.number:
                del state.answers[image]
        return f"not {name}: {counted(len(self.images), 'image')}"


class NewClass(LabelEvent, tag="new"):
    """A new class, and images that belong to it."""

    name: str
    images: list[Number]
    number: NumberOrNone = msgspec.field(name="class", default=NONE)
    """Given when the event is stored."""

    def apply(self, state: LabelState) -> str:
        state.classes[self.number] = name = state.free_name(self.name)
        state.slots[self.number] = min({*range(len(state.classes))} - {*state.slots.values()})
        in_order = sorted(state.classes, key=state.slots.__getitem__)
        state.classes = {number: state.classes[number] for number in in_order}
        state.answers |= dict.fromkeys(self.images, self.number)
        return f"new class {name}"


class RenameClass(LabelEvent, tag="rename"):
    number: Number = msgspec.field(name="class")
    name: str

    def apply(self, state: LabelState) -> str:
        before = state.name_of(self.number)
        state.classes[self.number] = name = state.free_name(self.name, self.number)
        return f"{before} renamed {name}"


class RemoveClass(LabelEvent, tag="delete"):
    """A class is merged into another one, or deleted: its images have no answer any more."""

    number: Number = msgspec.field(name="class")
    into: NumberOrNone = NONE

    def apply(self, state: LabelState) -> str:
        name, other = state.name_of(self.number), state.name_of(self.into)
        if self.number == self.into:
            raise ConflictError(f"{name} cannot be merged with itself")
        images = [image for image, answer in state.answers.items() if answer == self.number]
        for image in images:
            state.answers[image] = self.into
            if not self.into:
                del state.answers[image]
        if state.audit and (images or self.number in state.audit.decisions.values()):
            state.audit = None  # what is right was another question
        left = ((image, own - {self.number}) for image, own in state.excluded.items())
        state.excluded = {image: own for image, own in left if own}
        del state.classes[self.number], state.slots[self.number]
        return f"{name} merged into {other}" if self.into else f"{name} deleted"


class MoveCutoff(LabelEvent, tag="reject"):
    value: Annotated[float, Meta(gt=0, lt=1)] | None

    def apply(self, state: LabelState) -> str:
        state.reject = self.value
        return "cutoff moved"


class SeparateCopies(LabelEvent, tag="apart"):
    """Images are no longer grouped with their near copies."""

    images: list[Number]

    def apply(self, state: LabelState) -> str:
        state.apart.update(self.images)
        return f"{counted(len(self.images), 'image')} separated"


class BeginAudit(LabelEvent, tag="audit"):
    """An audit of what is decided of images without an answer."""

    seed: Number
    decisions: list[tuple[NumberOrNone, list[Number]]] = msgspec.field(name="set")

    def apply(self, state: LabelState) -> str:
        for value, _ in self.decisions:
            state.name_of(value)
        decisions = {image: value for value, images in self.decisions for image in images}
        open_ones = {i: value for i, value in decisions.items() if i not in state.answers}
        if not open_ones:
            raise ConflictError("every image has an answer: there is nothing to audit")
        state.audit = BegunAudit(self.seed, open_ones)
        return "audit begun"


class Undo(LabelEvent, tag="undo"):
    """The last event that is not undone counts no longer: the store replays the others."""


class Redo(LabelEvent, tag="redo"):
    """The event that was undone last counts again."""


AnyEvent: Any = Union[tuple(LabelEvent.__subclasses__())]  # noqa: UP007


def read_event(value: object) -> LabelEvent:
    """An event from JSON: exactly the fields of its kind, each of its type."""
    event: LabelEvent = from_json(AnyEvent, value, "event")
    return event


def images_in(event: LabelEvent) -> Iterable[int]:
    """The images of an answer, each of which must be known."""
    yield from getattr(event, "images", ())
    for _, images in getattr(event, "answers", ()) or getattr(event, "decisions", ()):
        yield from images
