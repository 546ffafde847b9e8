"""What fitting has learned, by whichever rule.

Letters: P rows, U unlabeled ones, H held out, N classes.
"""

from dataclasses import dataclass
from typing import NamedTuple

from semishot.estimator.blocks import Array
from semishot.estimator.models import Answer, Model
from semishot.estimator.strangers import Members, StrangerCount, Strangers

NOTHING_TELLS = "every class has one example, so nothing tells whether the pile helps; it is used"
SURE = 0.7
"""The probability of another class from which on a label is doubted."""
EVEN = 0.005
"""A gain of the log-probability that is smaller is none."""


class HeldOut(NamedTuple):
    """Labeled examples held out in turn: how many, the share predicted right, their mean probability."""

    examples: int
    accuracy: float
    probability: float


class Doubt(NamedTuple):
    """A labeled row that the other labels contradict."""

    row: int
    given: int
    """The place of the class among the classes."""
    suggested: int
    probability: float


@dataclass(frozen=True)
class Fitted:
    model: Model
    members: Members | None
    """How members score. None: not known."""
    strangers: Strangers | None
    count: StrangerCount | None
    """Of strangers in the pile."""
    answer: Answer
    pile_helps: bool | None
    """None: nothing could be held out, or there is no pile."""
    message: str
    held_out: HeldOut | None
    doubts: list[Doubt]


def summary(probabilities: Array, classes: Array) -> HeldOut | None:
    """(H, N), (H,) -> whether the probabilities agree with the accuracy on held-out examples."""
    if not len(classes):
        return None
    right = probabilities.argmax(1) == classes
    return HeldOut(len(classes), float(right.mean()), float(probabilities.max(1).mean()))


def pile_verdict(count: int, with_pile: int | None, alone: int, gain: float, used: bool) -> str:
    """Whether the pile is used, in words: how many of `count` held-out labels are right, and whether all of
    them are more probable with it (`gain` of the log-probability). None: not known how many with the pile."""
    right = f"{alone} of {count} held-out labels right without the pile"
    if with_pile is not None:
        right = f"{with_pile} of {count} held-out labels right with the pile, {alone} without it"
    change = "somewhat less" if used else "much less"
    if gain > -EVEN:
        change = "more" if gain >= EVEN else "equally"
    end = "the pile is used" if used else "the pile does not help, labels alone"
    return f"{right}, and together {change} probable with it: {end}"


def doubts(probabilities: Array, rows: Array, classes: Array) -> list[Doubt]:
    """(H, N), (H,), (H,) -> the labels that the others contradict, the strongest contradiction first."""
    best = probabilities.argmax(1)
    found = [
        Doubt(int(row), int(given), int(other), float(p[other]))
        for row, given, other, p in zip(rows, classes, best, probabilities, strict=True)
        if other != given and p[other] >= SURE
    ]
    return sorted(found, key=lambda doubt: (-doubt.probability, doubt.row))
