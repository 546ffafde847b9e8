"""What is said of the examples of a pile: N + 1 probabilities of each, and all that follows from them.

Letters: P rows, U of them without a label, H held out, N classes.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta
from scipy.special import expit, ndtr

from semishot.estimator.spaces import Array

LOWEST, HIGHEST = 0.02, 0.9
"""Nothing that is a stranger with less is put out, and nothing with more is kept, whatever share of members
may be lost."""
SURE = 0.99
"""A label is doubted if, of it and the likeliest other answer, that has this probability: nine of ten that
are doubted are wrong, where a tenth of the labels are, on the piles that choices are made on."""
ENDS = (0.05, 0.95)
"""Of the interval of a count."""


class Answer(NamedTuple):
    """What is said of P rows."""

    classes: Array  # (P, N), probabilities, given that the row belongs to one of the classes
    log_odds: Array  # (P,), of a stranger

    @property
    def stranger(self) -> Array:
        """(P,), the probability that a row belongs to none of the classes."""
        probability: Array = expit(self.log_odds)
        return probability

    @property
    def joint(self) -> Array:
        """(P, N + 1), the probability of each class and of a stranger."""
        stranger = self.stranger[:, None]
        joint: Array = np.concatenate([self.classes * (1 - stranger), stranger], 1)
        return joint

    def take(self, rows: Any) -> "Answer":
        return Answer(self.classes[rows], self.log_odds[rows])

    def strangers(self, cutoff: float | None) -> Array:
        """(P,), which rows are taken for strangers: those above a cutoff, or if there is none, those for
        which that is more probable than any class."""
        stranger = self.stranger
        out: Array = stranger > ((1 - stranger) * self.classes.max(1) if cutoff is None else cutoff)
        return out

    def wrong(self, out: Array) -> Array:
        """(P,), the probability that a row is sorted wrong, by which are put out as strangers (P,)."""
        stranger = self.stranger
        return 1 - np.where(out, stranger, (1 - stranger) * self.classes.max(1))


class StrangerCount(NamedTuple):
    """How many rows of the pile belong to no class: expected, and an interval that holds 90 %."""

    expected: float
    low: float
    high: float


class HeldOut(NamedTuple):
    """Labeled examples held out in turn: how many, the share predicted right, their mean probability."""

    examples: Annotated[int, Meta(gt=0)]
    accuracy: Annotated[float, Meta(ge=0, le=1)]
    probability: Annotated[float, Meta(ge=0, le=1)]


class Doubt(NamedTuple):
    """A labeled row that the other labels contradict."""

    row: int
    given: Any
    """The index of its class; of PrototypeClassifier its label."""
    suggested: Any
    """The index of another class, -1 for strangers; of PrototypeClassifier its label."""
    probability: float
    """Of the suggestion, if one of the two is right."""


def cutoff_of(stranger: Array, reject: float) -> float:
    """Probabilities of the pile (U,) -> the one above which rows are put out, so that of its members about
    this share is lost: the sum of what speaks for members above the cutoff is that share of the whole."""
    if not len(stranger):
        return HIGHEST
    descending = np.sort(stranger)[::-1]
    lost = (1 - descending).cumsum()
    count = int(lost.searchsorted(reject * lost[-1], "right"))  # rows that are put out
    cutoff = descending[count] if count < len(descending) else LOWEST
    return float(np.clip(cutoff, LOWEST, HIGHEST))


def count_strangers(log_odds: Array, doubt: float) -> StrangerCount:
    """The pile's log-odds (U,), which may all be off together by a normal deviate of spread `doubt` -> the
    sum of the probabilities, and an interval."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    p = expit(log_odds + doubt * nodes[:, None])  # (15, U)
    mean, deviation = p.sum(1), np.sqrt((p * (1 - p)).sum(1)) + 1e-6
    possible = np.arange(len(log_odds) + 1) + 0.5
    below = (weights / weights.sum()) @ ndtr((possible - mean[:, None]) / deviation[:, None])
    expected = float(expit(log_odds).sum())
    low, high = (float(np.searchsorted(below, end)) for end in ENDS)
    return StrangerCount(expected, min(low, expected), max(min(high, len(log_odds)), expected))


def held_out_summary(classes: Array, given: Array) -> HeldOut | None:
    """Class probabilities (H, N) of held-out labels, their classes (H,)."""
    if not len(given):
        return None
    right = classes.argmax(1) == given
    return HeldOut(len(given), float(right.mean()), float(classes.max(1).mean()))


def doubts(answer: Answer, rows: Array, given: Array) -> list[Doubt]:
    """What is said of held-out rows (H,) with these classes (H,) -> the labels that the others contradict,
    the strongest contradiction first."""
    joint, here = answer.joint, np.arange(len(given))  # (H, N + 1)
    own = joint[here, given]
    joint[here, given] = 0
    best = joint.argmax(1)
    likelier = joint[here, best] / (joint[here, best] + own)
    best[best == answer.classes.shape[1]] = -1
    columns = (each.tolist() for each in (rows, given, best, likelier))
    found = [Doubt(*each) for each in zip(*columns, strict=True) if each[-1] >= SURE]
    return sorted(found, key=lambda doubt: (-doubt.probability, doubt.row))
