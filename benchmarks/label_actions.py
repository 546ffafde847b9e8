"""Actions until a pile is sorted on the page of `label`, by a person who knows the truth and sees its state.

    python benchmarks/label_actions.py FEATURES.npz [--piles 3]

FEATURES.npz holds `x`, features of images, and `y`, their classes. Half of the classes, drawn at random,
have a name; all images of the others are strangers. The person begins without a label. A row of kinds of
which three quarters have one name takes one action, and one for each other image, which is clicked
away. When no such row is left, one action puts all rows with the strangers, after one for each row in which
something else was clicked away or which was skipped. Then what is worth asking is looked at: one action for
each wrong guess, and one that accepts the others. Right is what is decided right, confirmed or guessed.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.estimator.pile import LabeledPile
from semishot.label.predictions import TYPICAL, PileRows, predict, unnamed_kinds
from semishot.sorter.label_events import NONE, GiveAnswers, LabelState, NewClass

Array = NDArray[Any]
TARGETS = (0.95, 0.98)
CLEAR = 0.75


class Person:
    """Who knows the class of each row, -1 for strangers; image n is row n - 1."""

    def __init__(self, features: Array, truth: Array) -> None:
        count = len(features)
        images, files = np.arange(1, count + 1), np.ones(count, np.uint8)
        self.rows = PileRows(images, files, 0, np.arange(count), True, LabeledPile(features))
        self.truth, self.state, self.actions = truth, LabelState(), 0
        self.number: dict[int, int] = {}
        self.reached: dict[float, int] = {}
        self.known = predict(self.rows, {}, self.state.copy(), 0)

    def wrong(self) -> Array:
        """(P,), which rows are decided wrong."""
        class_of = {number: true for true, number in self.number.items()}
        names = [class_of[number] for number in self.known.classes]
        decided = np.array([*names, -1, -3])[self.known.decisions()[0]]  # by negative index
        found: Array = decided != self.truth
        return found

    def answer(self, of_class: dict[int, list[int]]) -> None:
        """Images by their true class."""
        for true in of_class:
            if true >= 0 and true not in self.number:
                self.number[true] = len(self.number) + 1
                NewClass(str(true), [], self.number[true]).apply(self.state)
        answers = [(self.number.get(true, NONE), images) for true, images in of_class.items()]
        GiveAnswers(answers).apply(self.state)
        self.known = predict(self.rows, {}, self.state.copy(), self.known.event + 1, self.known)
        right = 1 - self.wrong().mean()
        for target in TARGETS:
            if right >= target:
                self.reached.setdefault(target, self.actions)

    def by_class(self, images: Sequence[int]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for image in images:
            found.setdefault(int(self.truth[image - 1]), []).append(image)
        return found

    def name_kinds(self) -> None:
        """Rows of classes with a name, one by one; then the other rows are strangers at once."""
        skipped: set[int] = set()
        while rows := [own[:TYPICAL] for own in unnamed_kinds(self.known)]:
            rows = [own for own in rows if not skipped & {*own}]
            by_class = [self.by_class(own) for own in rows]
            largest = [max(own, key=lambda true: len(own[true])) for own in by_class]
            for own, true, row in zip(by_class, largest, rows, strict=True):
                if true >= 0 and len(own[true]) >= CLEAR * len(row):
                    self.actions += 1 + len(row) - len(own[true])
                    self.answer({true: own[true]})
                    break
            else:
                strangers = []
                for own, row in zip(by_class, rows, strict=True):
                    others = len(row) - len(own.get(-1, []))
                    self.actions += min(others, 1)
                    if others < 2:
                        strangers += own.get(-1, [])
                    if others:
                        skipped |= {*row}
                if not strangers:
                    return
                self.actions += 1
                self.answer({-1: strangers})

    def answer_questions(self) -> None:
        while len(self.reached) < len(TARGETS) and self.known.asked:
            asked, wrong = self.known.asked, self.wrong()
            mistakes = sum(bool(wrong[image - 1]) for image in asked)
            self.actions += mistakes + (mistakes < len(asked))
            self.answer(self.by_class(asked))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("features", type=Path)
    parser.add_argument("--piles", type=int, default=3)
    given = parser.parse_args()
    data = np.load(given.features)
    features, classes = np.asarray(data["x"], np.float32), data["y"]
    for seed in range(given.piles):
        rng = np.random.default_rng(seed)
        drawn, order = rng.permutation(np.unique(classes)), rng.permutation(len(classes))
        place = {name: at for at, name in enumerate(drawn[: len(drawn) // 2].tolist())}
        truth = np.array([place.get(name, -1) for name in classes[order].tolist()])
        person = Person(features[order], truth)
        person.name_kinds()
        named, right = person.actions, 1 - person.wrong().mean()
        person.answer_questions()
        print(
            f"pile {seed}: {len(truth)} images, {named} actions name kinds ({right:.1%} right);",
            end=" ",
        )
        print(", ".join(f"{person.reached.get(t, '?')} to {t:.0%}" for t in TARGETS), flush=True)


if __name__ == "__main__":
    main()
