"""Answers -> what the page shows of every image: guesses, strangers, questions, near copies.

Letters: P rows of the pile, N classes, D features.
"""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from semishot.label.near_copies import near_copies
from semishot.label.pile import PileImages
from semishot.sorter.boxes import bursts
from semishot.sorter.label_events import NONE, LabelState

if TYPE_CHECKING:  # what learns is imported when the first page has been shown
    from semishot.estimator.pile import LabeledPile

Array = NDArray[Any]
STRANGER = -2
"""In place of the index of a class: it belongs to none of them."""
ASKED = 24
"""How many images are asked about."""
STILL_ASKED = 0.75
"""An image stays asked about if it is more uncertain than this share of the others."""
COPIES_AT_ONCE = 3000
"""Images up to which near copies are found before the pile is shown."""
TYPICAL = 8
"""How many images of a kind are shown, and named at once."""
OUTER = 0.1
"""The share of a kind that may be farther from its middle than an image that is like it."""
SMALLEST = 1e-12
STEPS = 65535
"""Probabilities are rounded to whole numbers of 1 / STEPS, so that the page and the tables decide alike."""
COLUMNS = {
    "images": "<u4",
    "groups": "<u4",
    "answers": "<i2",
    "guesses": "<i2",
    "sure": "<u2",
    "stranger": "<u2",
    "copies": "u1",
}
"""What the page is sent of each image; `sure` and `stranger` are of STEPS."""


@dataclass(frozen=True)
class Predictions:
    """What is known of all rows at one version. Index -1: no answer or no guess; -2: a stranger."""

    version: int
    event: int
    """The number of the last event that they take into account."""
    state: LabelState
    images: Array
    """(P,) numbers of the images."""
    answers: Array
    """(P,), indices into the classes."""
    guesses: Array
    """(P,), the most probable class."""
    sure: Array
    """(P,), the probability of that class, strangers taken into account; 0 where nothing was learned."""
    stranger: Array
    """(P,), the probability of a stranger."""
    groups: Array
    """(P,), the image that stands for its near copies."""
    asked: list[int] = field(default_factory=list)
    """Images."""
    doubtful: list[tuple[int, int, float]] = field(default_factory=list)
    """Image, index of the suggested class, probability."""
    decided: int = 0
    """The version since which the decisions are these: kinds come later, and change none."""
    kinds: list[list[int]] = field(default_factory=list)
    """Images that look alike and have no name yet, the most typical first."""
    probabilities: Array | None = None
    """(P, N), strangers taken into account."""

    @property
    def classes(self) -> list[int]:
        return list(self.state.classes)

    @cached_property
    def has_copies(self) -> Array:
        """(P,), whether a row is grouped with near copies."""
        _, group, counts = np.unique(self.groups, return_inverse=True, return_counts=True)
        grouped: Array = counts[group] > 1
        return grouped

    @cached_property
    def cutoff(self) -> float | None:
        """The probability of a stranger from which on a guess is put out, for a share `reject` of the members
        expected to be lost. None: each row has its likeliest answer.
        """
        if self.state.reject is None:
            return None
        stranger = np.sort(self.stranger[(self.answers == -1) & (self.guesses >= 0)])[::-1]
        lost, last = np.cumsum(1 - stranger), np.append(stranger[:-1] != stranger[1:], True)
        allowed = stranger[(lost <= self.state.reject * lost[-1:]) & last]
        return float(allowed[-1]) if len(allowed) else 1 + 1 / STEPS

    def decisions(self) -> tuple[Array, Array]:
        """(P,) the class of each row, -2 for a stranger, -1 for not known; (P,) whether a person said so."""
        likelier = self.stranger > self.sure
        out = likelier if self.cutoff is None else self.stranger >= self.cutoff
        confirmed = self.answers != -1
        guesses = np.where(out & (self.guesses >= 0), STRANGER, self.guesses)
        return np.where(confirmed, self.answers, guesses), confirmed


def no_predictions(version: int, event: int, state: LabelState, images: Array) -> Predictions:
    """Nothing is answered and nothing learned."""
    none, zeros = np.full(len(images), -1), np.zeros(len(images))
    shares = (none, none, zeros, zeros, images)
    return Predictions(version, event, state, images, *shares, decided=version)


class PredictedPile:
    """The images that have been read so far, and what follows from the answers about them."""

    def __init__(self, known: PileImages) -> None:
        self.known = known
        self.pile: LabeledPile | None = None
        self.images: Array = np.empty(0, np.int64)
        self.copies: Array = np.empty(0, np.uint8)
        """(P,), how many files hold the same image; none if they are gone."""
        self.seen_stamp = -1
        self.groups: Array = np.empty(0, np.int64)
        """(P,), the first row of its near copies."""
        self.look_for_copies = False
        """Whether near copies are still to be found: in a large pile that takes seconds."""
        self.names: dict[int, Array] = {}
        """Class -> what its name looks like, from --names."""
        self.asked: list[int] = []
        self.kinds: list[list[int]] = []

    @property
    def count(self) -> int:
        return len(self.groups)

    def grow(self, count: int) -> None:
        """Take in the rows that have been read since."""
        from semishot.estimator.pile import LabeledPile

        features = self.known.features[:count]
        self.pile = LabeledPile(features) if count else None
        self.look_for_copies = count > COPIES_AT_ONCE
        self.groups = np.arange(count) if self.look_for_copies else self._alike(count)

    def find_copies(self) -> None:
        """In a large pile, after it has been shown."""
        self.groups = self._alike(self.count)
        self.look_for_copies, self.seen_stamp = False, -1

    def _alike(self, count: int) -> Array:
        """(P,) the first row of the group of near copies, or of the burst, that a row belongs to."""
        shots = list[tuple[int, int]]()
        if (seconds := self.known.request.burst) is not None:
            shots = bursts([self.known.path_of(i) for i in self.known.images[:count]], seconds)
        return near_copies(self.known.looks[:count], shots)

    def look_at_files(self) -> None:
        """The copies of each row, if they may differ from before."""
        known, count = self.known, self.count
        if known.stamp == self.seen_stamp and len(self.images) == count:
            return
        with known.lock:
            self.seen_stamp, images = known.stamp, known.images[:count]
            copies = [min(255, len(known.present(image))) for image in images]
        self.images, self.copies = np.array(images, np.int64), np.array(copies, np.uint8)

    def predict(self, state: LabelState, event: int, version: int) -> Predictions:
        """Learn from the answers as they were after this event."""
        images, row_of, count = self.images, self.known.row_of, self.count
        index = {number: position for position, number in enumerate(state.classes)}
        answers = np.full(count, -1)
        for image, value in state.answers.items():
            row = row_of.get(image, count)
            if row < count:
                answers[row] = STRANGER if value == NONE else index[value]
        excluded = {
            row_of[image]: [index.get(number, STRANGER) for number in numbers]
            for image, numbers in state.excluded.items()
            if row_of.get(image, count) < count
        }
        groups = self._groups(images, state)
        shown = [[row_of[image] for image in own[:TYPICAL]] for own in self.kinds]
        pairs = zip(self.kinds, shown, strict=True)
        kinds = [own for own, rows in pairs if (answers[rows] == -1).all()]
        basis = no_predictions(version, event, state, images)
        basis = replace(basis, answers=answers, groups=groups, kinds=kinds)
        may_be_asked = (answers == -1) & (groups == images) & (self.copies > 0)
        named = [index[number] for number in self.names if number in index]
        used = np.unique([*answers[answers >= 0], *named]).astype(np.int64)
        if not len(used) or self.pile is None:
            return basis
        return self._learn(basis, used, excluded, may_be_asked)

    def _learn(
        self, basis: Predictions, used: Array, excluded: dict[int, list[int]], may_be_asked: Array
    ) -> Predictions:
        """used: indices of the classes that have labels or a name in --names. excluded: row -> classes that
        it is not in."""
        from semishot.estimator.labels import NAMED_STRANGER, UNLABELED
        from semishot.estimator.next_labels import question_worth

        assert self.pile is not None
        answers, count = basis.answers, len(basis.answers)
        position = np.full(len(basis.classes) + 1, -1)  # among `used`
        position[used] = np.arange(len(used))
        others = np.where(answers == STRANGER, NAMED_STRANGER, UNLABELED)
        labels = np.where(answers >= 0, position[answers], others)
        for row, indices in excluded.items():
            if answers[row] == -1 and set(used.tolist()) <= set(indices):
                labels[row] = NAMED_STRANGER  # none of the classes there are
        names = None
        if self.names:
            unnamed = np.full(self.pile.features.shape[1], np.nan)
            names = np.stack([self.names.get(basis.classes[index], unnamed) for index in used])
        learned = self.pile.learn(labels, names=names)
        assert learned.answer is not None  # a saved model has none
        stranger = np.where(labels == NAMED_STRANGER, 1.0, learned.answer.stranger)
        stranger[[row for row, indices in excluded.items() if STRANGER in indices]] = 0.0
        classes = learned.answer.classes.copy()
        for row, indices in excluded.items():
            classes[row] += SMALLEST  # where all the rest is zero, it is shared by the others
            classes[row, [position[i] for i in indices if i >= 0 and position[i] >= 0]] = 0
        classes /= np.maximum(classes.sum(1, keepdims=True), SMALLEST)
        stranger = np.round(stranger * STEPS) / STEPS
        classes *= (1 - stranger)[:, None]
        best = classes.argmax(1)
        sure = np.round(classes[np.arange(count), best] * STEPS) / STEPS
        wide = np.zeros((count, len(basis.classes)), np.float32)
        wide[:, used] = classes
        joint = np.column_stack([classes, stranger])
        worth = np.where(may_be_asked & (labels == UNLABELED), question_worth(joint), 0.0)
        return replace(
            basis,
            guesses=used[best],
            sure=sure,
            stranger=stranger,
            asked=self._next_questions(worth, may_be_asked & (labels == UNLABELED)),
            doubtful=[
                (
                    int(basis.images[d.row]),
                    int(used[d.suggested]) if d.suggested >= 0 else STRANGER,
                    float(d.probability),
                )
                for d in learned.doubts
                if int(basis.images[d.row]) not in basis.state.sure
            ],
            probabilities=wide,
        )

    def find_kinds(self, known: Predictions) -> list[list[int]]:
        """Groups of images without a name; what looks like strangers that were named is none of them."""
        from semishot.estimator.kinds import find_kinds
        from semishot.estimator.spaces import unit

        if self.pile is None:
            return []
        kinds, pile = list[list[int]](), self.pile
        space, features = pile.space, self.known.features[: len(known.images)]
        stranger = known.stranger if known.probabilities is not None else np.ones(len(known.images))
        stranger = np.where(known.answers == -1, stranger, 0.0)
        out = unit(space(np.asarray(features[known.answers == STRANGER], space.center.dtype)))
        for kind in find_kinds(features, space, stranger):
            rows = unit(space(np.asarray(features[kind.rows], space.center.dtype)))
            middle = unit(rows.mean(0, keepdims=True))
            if not len(out) or (out @ middle.T).max() < np.quantile(rows @ middle.T, OUTER):
                kinds.append(known.images[kind.rows].tolist())
        return kinds

    def _next_questions(self, worth: Array, allowed: Array) -> list[int]:
        """(P,) what asking about a row is worth -> images to ask about; they change as little as possible."""
        from semishot.estimator.next_labels import worth_asking

        assert self.pile is not None
        usual = float(np.quantile(worth[allowed], STILL_ASKED)) if allowed.any() else 0.0
        before = [self.known.row_of[image] for image in self.asked]
        kept = [row for row in before if worth[row] >= max(usual, SMALLEST)]
        count, space = max(ASKED, len(kept)), self.pile.space
        rows = worth_asking(self.pile.features, space, worth, count, kept=kept)
        self.asked = [int(self.images[row]) for row in rows]
        return list(self.asked)

    def _groups(self, images: Array, state: LabelState) -> Array:
        """(P,) the image that stands for the near copies of a row."""
        groups = self.groups.copy()
        if state.apart:
            apart = np.isin(images, list(state.apart))
            groups[apart] = len(images) + np.flatnonzero(apart)
        _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
        leaders: Array = images[first[inverse]]
        return leaders

    def for_the_page(self, predictions: Predictions, about: Mapping[str, Any]) -> bytes:
        """The length of a JSON header, the header, and COLUMNS, each padded to 8 bytes; little-endian."""
        state, cutoff = predictions.state, predictions.cutoff
        header = json.dumps(
            {
                **about,
                "version": predictions.version,
                "event": predictions.event,
                "rows": len(predictions.images),
                "classes": [[n, name, state.slots[n]] for n, name in state.classes.items()],
                "asked": predictions.asked,
                "doubtful": predictions.doubtful,
                "kinds": predictions.kinds,
                "cutoff": None if cutoff is None else round(cutoff * STEPS),
                "judged": predictions.probabilities is not None,
            }
        ).encode()
        header += b" " * (-(len(header) + 4) % 8)
        columns = {
            **{name: getattr(predictions, name) for name in list(COLUMNS)[:4]},
            "sure": np.round(predictions.sure * STEPS),
            "stranger": np.round(predictions.stranger * STEPS),
            "copies": self.copies,
        }
        parts = [struct.pack("<I", len(header)), header]
        for name, kind in COLUMNS.items():
            data = columns[name].astype(kind).tobytes()
            parts += [data, b"\0" * (-len(data) % 8)]
        return b"".join(parts)
