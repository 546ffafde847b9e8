"""A pile and the answers about it -> a snapshot of what the page shows.

Letters: P rows of the pile, N classes, D features.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from semishot.label.near_copies import near_copies
from semishot.label.questions import Questions
from semishot.label.rows import MISSING, Rows
from semishot.label.snapshot import ANSWERED_NONE, REJECTS, Snapshot, nothing
from semishot.sorter.answer_events import NONE
from semishot.sorter.answer_state import State

if TYPE_CHECKING:  # torch is imported when the first page has been shown
    from semishot.label.judge import Judge

Array = NDArray[Any]
SMALLEST = 1e-12
AT_ONCE = 3000
"""Images up to which near copies are found before the pile is shown."""


class JudgedPile:
    """Images that have been read so far: near copies, questions, and a judge who learns anew each time."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.judge: Judge | None = None
        self.images: Array = np.empty(0, np.int64)
        self.flags: Array = np.empty(0, np.uint8)
        self.copies: Array = np.empty(0, np.uint8)
        """(P,), how many files hold the same image."""
        self.seen_stamp = -1
        self.groups: Array = np.empty(0, np.int64)
        """(P,), the first row of its near copies."""
        self.look_for_copies = False
        """Whether near copies are still to be found: in a large pile that takes seconds."""
        self.questions = Questions(rows)

    @property
    def count(self) -> int:
        return len(self.groups)

    def grow(self, count: int) -> None:
        """Take in the rows that have been read since."""
        features = self.rows.features[:count]
        self.judge = _judge(features) if count else None
        self.look_for_copies = count > AT_ONCE
        self.groups = np.arange(count) if self.look_for_copies else near_copies(features)

    def find_copies(self) -> None:
        """In a large pile, after it has been shown."""
        self.groups = near_copies(self.rows.features[: self.count])
        self.look_for_copies = False

    def look_at_rows(self) -> None:
        """What is known of each row, if it may differ from before."""
        rows, count = self.rows, self.count
        if rows.stamp == self.seen_stamp and len(self.images) == count:
            return
        with rows.lock:
            self.seen_stamp, images = rows.stamp, rows.images[:count]
            flags = [rows.flags(image) for image in images]
            copies = [min(255, len(rows.files.get(image, ()))) for image in images]
        self.images = np.array(images, np.int64)
        self.flags, self.copies = np.array(flags, np.uint8), np.array(copies, np.uint8)

    def judged(self, state: State, event: int, version: int) -> Snapshot:
        """Learn from the answers as they were after this event."""
        images, row_of, count = self.images, self.rows.row_of, self.count
        index = {number: place for place, number in enumerate(state.classes)}
        answers = np.full(count, -1)
        for image, value in state.answers.items():
            row = row_of.get(image, count)
            if row < count:
                answers[row] = ANSWERED_NONE if value == NONE else index[value]
        excluded = {
            row_of[image]: [index[number] for number in held if number in index]
            for image, held in state.excluded.items()
            if row_of.get(image, count) < count
        }
        known = replace(
            nothing(version, event, state, images),
            answers=answers,
            groups=self._groups(images, state),
        )
        used = np.unique(answers[answers >= 0])
        if not len(used) or self.judge is None:
            asked = self.questions.begin(self.judge, known, self._may_be_asked(known))
            return replace(known, asked=asked)
        return self._learned(known, used, excluded)

    def _learned(self, known: Snapshot, used: Array, excluded: dict[int, list[int]]) -> Snapshot:
        from semishot.estimator.labels import NAMED_STRANGER, UNLABELED
        from semishot.label.judge import doubt_of

        assert self.judge is not None
        answers, count = known.answers, len(known.answers)
        place = np.full(len(known.classes) + 1, -1)
        place[used] = np.arange(len(used))
        others = np.where(answers == ANSWERED_NONE, NAMED_STRANGER, UNLABELED)
        labels = np.where(answers >= 0, place[answers], others)
        for row, held in excluded.items():
            if answers[row] == -1 and set(used.tolist()) <= set(held):
                labels[row] = NAMED_STRANGER  # none of the classes there are
        judgement = self.judge.learn(labels, REJECTS)
        classes = judgement.classes.copy()
        for row, held in excluded.items():
            classes[row] += SMALLEST  # where all the rest is zero, it is shared by the others
            classes[row, [p for p in place[held] if p >= 0]] = 0
        classes /= np.maximum(classes.sum(1, keepdims=True), SMALLEST)
        best = classes.argmax(1)
        allowed = self._may_be_asked(known) & (labels == UNLABELED)
        wide = np.zeros((count, len(known.classes)), np.float32)
        wide[:, used] = classes
        return replace(
            known,
            guesses=used[best],
            sure=classes[np.arange(count), best] * (1 - judgement.stranger),
            stranger=judgement.stranger,
            scores=np.where(labels == NAMED_STRANGER, -np.inf, judgement.scores),
            cutoffs=judgement.cutoffs,
            asked=self.questions.follow(self.judge, known, allowed, doubt_of(classes, judgement)),
            doubtful=[
                (int(known.images[d.row]), int(used[d.suggested]), float(d.probability))
                for d in judgement.doubtful
                if int(known.images[d.row]) not in known.state.sure
            ],
            probabilities=wide,
            strangers=judgement.strangers,
        )

    def _groups(self, images: Array, state: State) -> Array:
        """(P,) the image that stands for the near copies of a row."""
        groups = self.groups[: len(images)].copy()
        if state.apart:
            apart = np.isin(images, list(state.apart))
            groups[apart] = len(images) + np.flatnonzero(apart)
        _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
        leaders: Array = images[first[inverse]]
        return leaders

    def _may_be_asked(self, known: Snapshot) -> Array:
        """(P,) whether a row has no answer, stands for its near copies, and is there."""
        there = (self.flags & MISSING) == 0
        found: Array = (known.answers == -1) & (known.groups == known.images) & there
        return found


def _judge(features: Array) -> "Judge":
    from semishot.label.judge import Judge

    return Judge(features)
