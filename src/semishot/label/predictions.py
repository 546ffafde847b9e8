"""Answers -> what the page shows of every image: guesses, strangers, questions, near copies, kinds.

Pure functions: rows of the pile and what was said of them give the predictions of one moment, and those the
bytes that the page is sent. Letters: P rows of the pile, N classes, U of them that are learned, D features.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from semishot.label.pile import WatchedPile
from semishot.label.similarity import near_copies
from semishot.sorter.boxes import bursts
from semishot.sorter.label_events import NONE, UNANSWERED, LabelState

if TYPE_CHECKING:  # what learns is imported when the first page has been shown
    from semishot.estimator.pile import LabeledPile

Array = NDArray[Any]
UNKNOWN, STRANGER = -1, -2
"""In place of the index of a class: nothing is known; it belongs to none of them."""
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


@dataclass(frozen=True, eq=False)
class PileRows:
    """The rows of a pile that are learned from together, as they are at one moment."""

    images: Array
    """(P,) numbers of the images."""
    copies: Array
    """(P,) how many files hold the same image; none if they are gone."""
    stamp: int
    """`WatchedPile.stamp` when they were counted."""
    groups: Array
    """(P,) the first row of its near copies, or of its burst."""
    grouped: bool
    """Whether near copies have been looked for: in a large pile that takes seconds."""
    learner: "LabeledPile | None"
    """None: there are no rows."""

    @classmethod
    def read(cls, pile: WatchedPile, count: int) -> Self:
        """The first rows of a pile; the near copies of many are found later."""
        from semishot.estimator.pile import LabeledPile

        images, groups = np.array(pile.images[:count], np.int64), np.arange(count)
        learner = LabeledPile(pile.features[:count])
        rows = cls(images, np.ones(count), -1, groups, False, learner).counted(pile)
        return rows if count > COPIES_AT_ONCE else rows.with_groups(pile)

    def counted(self, pile: WatchedPile) -> Self:
        """The same with the files that hold each image now."""
        stamp = pile.stamp
        copies = [min(255, len(pile.present(image))) for image in self.images.tolist()]
        return replace(self, stamp=stamp, copies=np.array(copies, np.uint8))

    def with_groups(self, pile: WatchedPile) -> Self:
        """The same with near copies, and bursts if they are asked for."""
        shots = list[tuple[int, int]]()
        if (seconds := pile.request.burst) is not None:
            shots = bursts([pile.path_of(image) for image in self.images.tolist()], seconds)
        groups = near_copies(pile.looks[: len(self.images)], shots)
        return replace(self, groups=groups, grouped=True)

    @cached_property
    def row_of(self) -> dict[int, int]:
        return {image: row for row, image in enumerate(self.images.tolist())}


NO_ROWS = PileRows(*(np.empty(0, np.int64),) * 2, 0, np.empty(0, np.int64), True, None)


@dataclass(frozen=True, eq=False)
class Predictions:
    """What is known of all rows after an event. Indices into the classes may be UNKNOWN or STRANGER."""

    event: int
    """The number of the last event that they take into account."""
    state: LabelState
    rows: PileRows
    answers: Array
    """(P,), indices into the classes."""
    groups: Array
    """(P,), the image that stands for its near copies."""
    guesses: Array
    """(P,), the most probable class."""
    sure: Array
    """(P,), the probability of that class, strangers taken into account; 0 where nothing was learned."""
    stranger: Array
    """(P,), the probability of a stranger."""
    asked: list[int] = field(default_factory=list)
    """Images."""
    doubtful: list[tuple[int, int]] = field(default_factory=list)
    """Image, index of the suggested class."""
    learned: list[int] = field(default_factory=list)
    """Numbers of the classes that have labels, or a name in --names."""
    joint: Array | None = None
    """(P, U + 1), the probabilities of these classes and of a stranger."""

    @cached_property
    def leader_of(self) -> dict[int, int]:
        """Image -> the image that stands for it and its near copies, of those that have some."""
        images, groups = self.rows.images, self.groups
        several = np.isin(groups, groups[groups != images])
        return dict(zip(images[several].tolist(), groups[several].tolist(), strict=True))

    @cached_property
    def cutoff(self) -> float | None:
        """The probability of a stranger from which on a guess is put out, for a share `reject` of the members
        expected to be lost. None: each row has its likeliest answer.
        """
        if self.state.reject is None:
            return None
        guessed = (self.answers == UNKNOWN) & (self.guesses >= 0)
        stranger = np.sort(self.stranger[guessed])[::-1]
        lost, last = np.cumsum(1 - stranger), np.append(stranger[:-1] != stranger[1:], True)
        allowed = stranger[(lost <= self.state.reject * lost[-1:]) & last]
        return float(allowed[-1]) if len(allowed) else 1 + 1 / STEPS

    def decisions(self) -> tuple[Array, Array]:
        """(P,) the class of each row; (P,) whether a person said so."""
        likelier = self.stranger > self.sure
        out = likelier if self.cutoff is None else self.stranger >= self.cutoff
        confirmed = self.answers != UNKNOWN
        guesses = np.where(out & (self.guesses >= 0), STRANGER, self.guesses)
        return np.where(confirmed, self.answers, guesses), confirmed


def predict(
    rows: PileRows,
    names: Mapping[int, Array],
    state: LabelState,
    event: int,
    before: Predictions | None = None,
) -> Predictions:
    """What follows from the labels as they are after this event.

    names: class -> features of its name, from --names. before: the last predictions; what they ask about
    changes as little as possible.
    """
    index = np.full(max(state.classes, default=NONE) + 2, UNKNOWN)  # of a class, by its number
    index[[NONE, *state.classes]] = [STRANGER, *range(len(state.classes))]
    given = [state.answers.get(image, UNANSWERED) for image in rows.images.tolist()]
    answers = index[np.array(given, np.int64)]
    if before and before.rows is rows and before.state.apart == state.apart:
        groups = before.groups
    else:
        groups = _leaders(rows, state)
    unknown, zeros = np.full(len(answers), UNKNOWN), np.zeros(len(answers))
    known = Predictions(event, state, rows, answers, groups, unknown, zeros, zeros)
    named = [int(index[number]) for number in names if number in state.classes]
    used = np.unique([*answers[answers >= 0].tolist(), *named]).astype(np.int64)
    return _learn(known, used, names, before.asked if before else []) if len(used) else known


def _leaders(rows: PileRows, state: LabelState) -> Array:
    """(P,) the image that stands for the near copies of a row."""
    groups, apart = rows.groups.copy(), np.isin(rows.images, list(state.apart))
    groups[apart] = len(groups) + np.flatnonzero(apart)
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    leaders: Array = rows.images[first[inverse]]
    return leaders


def _learn(
    known: Predictions, used: Array, names: Mapping[int, Array], asked: Sequence[int]
) -> Predictions:
    """used: (U,) indices of the classes that are learned."""
    from semishot.estimator.labels import NAMED_STRANGER, UNLABELED
    from semishot.estimator.next_labels import question_worth, worth_asking

    rows, state, learner = known.rows, known.state, known.rows.learner
    assert learner is not None
    classes, count = list(state.classes), len(known.answers)
    learned = [classes[index] for index in used.tolist()]
    column = {number: position for position, number in enumerate([*learned, NONE])}
    excluded = np.zeros((count, len(column)), bool)  # (P, U + 1)
    for image, numbers in state.excluded.items():
        if image in rows.row_of:
            excluded[rows.row_of[image], [column[n] for n in numbers if n in column]] = True
    label_of = [*(column.get(number, UNLABELED) for number in classes), NAMED_STRANGER, UNLABELED]
    labels = np.array(label_of)[known.answers]  # STRANGER and UNKNOWN are negative indices
    labels[(labels == UNLABELED) & excluded[:, :-1].all(1)] = NAMED_STRANGER  # none of them is left
    unnamed = np.full(learner.features.shape[1], np.nan)
    named = np.stack([names.get(number, unnamed) for number in learned]) if names else None
    result, answer = learner.learn(labels, names=named)
    stranger = np.where(labels == NAMED_STRANGER, 1.0, answer.stranger)
    stranger[excluded[:, -1]] = 0.0
    stranger = np.round(stranger * STEPS) / STEPS
    shares = answer.classes.copy()
    shares[excluded.any(1)] += SMALLEST  # where all the rest is zero, it is shared by the others
    shares[excluded[:, :-1]] = 0.0
    shares /= np.maximum(shares.sum(1, keepdims=True), SMALLEST)
    shares *= (1 - stranger)[:, None]
    best, joint = shares.argmax(1), np.column_stack([shares, stranger])
    open_rows = (labels == UNLABELED) & (known.groups == rows.images) & (rows.copies > 0)
    worth = np.where(open_rows, question_worth(joint), 0.0)
    usual = float(np.quantile(worth[open_rows], STILL_ASKED)) if open_rows.any() else 0.0
    kept = [rows.row_of[image] for image in asked]
    kept = [row for row in kept if worth[row] >= max(usual, SMALLEST)]
    limit = max(ASKED, len(kept))
    questions = worth_asking(learner.features, learner.space, worth, limit, kept=kept)
    return replace(
        known,
        guesses=used[best],
        sure=np.round(shares[np.arange(count), best] * STEPS) / STEPS,
        stranger=stranger,
        asked=rows.images[questions].tolist(),
        doubtful=[
            (image, int(used[d.suggested]) if d.suggested >= 0 else STRANGER)
            for d in result.doubts
            if (image := int(rows.images[d.row])) not in state.sure
        ],
        learned=learned,
        joint=joint,
    )


def unnamed_kinds(known: Predictions) -> list[list[int]]:
    """Groups of images that look alike and have no name, the most typical first; none is of images that look
    like named strangers."""
    from semishot.estimator.kinds import find_kinds
    from semishot.estimator.spaces import unit

    if (learner := known.rows.learner) is None:
        return []
    features, space = learner.features, learner.space

    def directions(chosen: Array) -> Array:
        return unit(space(np.asarray(features[chosen], space.center.dtype)))

    stranger = 1.0 if known.joint is None else known.stranger
    stranger = np.where(known.answers == UNKNOWN, stranger, 0.0)
    out, kinds = directions(known.answers == STRANGER), []
    for kind in find_kinds(features, space, stranger):
        members = directions(kind.rows)
        middle = unit(members.mean(0, keepdims=True)).T
        if not len(out) or (out @ middle).max() < np.quantile(members @ middle, OUTER):
            kinds.append(known.rows.images[kind.rows].tolist())
    return kinds


def for_the_page(
    known: Predictions, kinds: Sequence[Sequence[int]], about: Mapping[str, Any]
) -> bytes:
    """The length of a JSON header, the header, and columns, each padded to 8 bytes; little-endian.

    kinds: of these or earlier predictions; those with an answer are left out.
    """
    state, row_of = known.state, known.rows.row_of
    open_kinds = [
        own
        for own in kinds
        if (known.answers[[row_of[image] for image in own[:TYPICAL]]] == UNKNOWN).all()
    ]
    header = json.dumps(
        {
            **about,
            "event": known.event,
            "rows": len(known.answers),
            "classes": [[n, name, state.slots[n]] for n, name in state.classes.items()],
            "asked": known.asked,
            "doubtful": known.doubtful,
            "kinds": open_kinds,
            "cutoff": None if known.cutoff is None else round(known.cutoff * STEPS),
            "judged": known.joint is not None,
        }
    ).encode()
    header += b" " * (-(len(header) + 4) % 8)
    columns = [
        (known.rows.images, "<u4"),
        (known.groups, "<u4"),
        (known.answers, "<i2"),
        (known.guesses, "<i2"),
        (np.round(known.sure * STEPS), "<u2"),
        (np.round(known.stranger * STEPS), "<u2"),
        (known.rows.copies, "u1"),
    ]
    parts = [struct.pack("<I", len(header)), header]
    for values, kind in columns:
        data = values.astype(kind).tobytes()
        parts += [data, b"\0" * (-len(data) % 8)]
    return b"".join(parts)
