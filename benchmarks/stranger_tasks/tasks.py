"""Few labels, a pile, and strangers in it: the cells of `strangers.py` and how a task of one is drawn.

Letters: M rows, D features.
"""

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

Rows = NDArray[np.float32]
"""(images, D) of one class."""
MOST, LEAST = 30, 2
"""Members of a class in an unbalanced pile."""
EACH = 20
"""Members of a class in a balanced one; 10 where three times as many strangers must be found."""
KIND = 25
"""Strangers of one kind, where there are few kinds; 3 of each where there are many."""
NAMED_AT_MOST = 20
SHOTS = (1, 3, 5)
STRANGERS = ("none", "few kinds", "many kinds", "three times")


@dataclass(frozen=True)
class Cell:
    data: str
    """birds40, mini-imagenet or digits."""
    way: int
    shot: int
    strangers: str
    balanced: bool = True
    named: int | None = None
    """Strangers whom the user has named, out of 20 that are not in the pile; None: all are in the pile."""


@dataclass(frozen=True)
class Task:
    features: NDArray[np.float32]
    """(M, D): the labeled, the named strangers, then the pile."""
    labels: NDArray[np.int64]
    """-1 in the pile, -2 for named strangers."""
    truth: NDArray[np.int64]
    """-1 for strangers."""

    @property
    def pile(self) -> NDArray[np.bool_]:
        return self.labels == -1


@dataclass(frozen=True)
class Source:
    """Classes that members are drawn from, and others that strangers may come from."""

    members: list[Rows]
    elsewhere: list[Rows]
    """Used where `members` leaves too few kinds: 20-way tasks, and many kinds of photographs."""
    mixed: bool
    """Whether strangers of many kinds come from both."""


def sources(folder: Path, half: str) -> dict[tuple[str, int], Source]:
    """By data and way: what may be chosen on, what is reported, what was never used. They share no class.

    `fresh` are 40 training classes of miniImageNet, as members and strangers. Constants were chosen without
    them; 24 of them are also strangers of the reported half.
    """
    birds, val, test, train = (
        list(np.load(folder / f"{name}.npy"))
        for name in ("birds40", "mini-imagenet-val", "mini-imagenet-test", "mini-imagenet-train")
    )
    if half == "fresh":
        return {("mini-imagenet", way): Source(train[24:], [], mixed=True) for way in (5, 10, 20)}
    if half == "choose":
        birds, mini, others = birds[:20], val, train[:24]
    else:
        birds, mini, others = birds[20:], test, train[40:]
    found = {}
    for way in (5, 10, 20):
        found["birds40", way] = Source(birds, mini + others, mixed=False)
        found["mini-imagenet", way] = Source(mini, others, mixed=True)
    if len(mini) < 20:  # 16 validation classes: 20-way tasks take some training classes in
        found["mini-imagenet", 20] = Source(mini + others, [], mixed=True)
    found["digits", 10] = Source(digits(half), [], mixed=False)
    return found


def digits(half: str) -> list[Rows]:
    """Every second drawing of each digit is for choosing."""
    rows, answers = load_digits(return_X_y=True)
    start = 0 if half == "choose" else 1
    return [rows[answers == digit][start::2].astype(np.float32) for digit in range(10)]


def cells(half: str) -> list[Cell]:
    data = ("mini-imagenet",) if half == "fresh" else ("birds40", "mini-imagenet")
    photographs = product(data, (5, 10, 20), SHOTS, STRANGERS, (True, False))
    found = [Cell(*values) for values in photographs]
    if half == "fresh":
        return found
    return found + [Cell("digits", 10, shot, "none") for shot in (1, 3, 5, 10)]


def named_cells(half: str) -> list[Cell]:
    """What it brings to name 5, 10 or 20 strangers."""
    data = ("mini-imagenet",) if half == "fresh" else ("birds40", "mini-imagenet")
    kinds = product(data, (5, 10), (1, 3), STRANGERS[1:], (True,), (0, 5, 10, 20))
    return [Cell(*values) for values in kinds]


def draw(source: Source, cell: Cell, seed: int) -> Task:
    """A task is a function of the cell and the seed alone."""
    rng = np.random.default_rng(
        [seed, cell.way, cell.shot, STRANGERS.index(cell.strangers), cell.balanced]
    )
    order = rng.permutation(len(source.members))
    each = 10 if cell.strangers == "three times" else EACH
    labeled, members, own = [], [], []
    for label, name in enumerate(order[: cell.way]):
        rows = source.members[name]
        rows = rows[rng.permutation(len(rows))]
        size = each if cell.balanced else int(rng.integers(LEAST, MOST + 1))
        size = len(rows) if cell.data == "digits" else size
        labeled.append(rows[: cell.shot])
        members.append(rows[cell.shot : cell.shot + size])
        own += [label] * len(members[-1])
    others = [source.members[name] for name in order[cell.way :]]
    strangers = drawn_strangers(source, others, cell, len(own), rng)
    named = strangers[: cell.named or 0]
    strangers = strangers if cell.named is None else strangers[NAMED_AT_MOST:]
    truth = [
        *np.repeat(np.arange(cell.way), cell.shot),
        *[-1] * len(named),
        *own,
        *[-1] * len(strangers),
    ]
    labels = np.full(len(truth), -1)
    labels[: cell.way * cell.shot] = truth[: cell.way * cell.shot]
    labels[cell.way * cell.shot :][: len(named)] = -2
    return Task(np.concatenate([*labeled, named, *members, strangers]), labels, np.array(truth))


def drawn_strangers(
    source: Source, others: list[Rows], cell: Cell, members: int, rng: np.random.Generator
) -> Rows:
    """In random order, so that those named are a sample."""
    if not others or (cell.strangers == "many kinds" and source.mixed):
        others = others + source.elsewhere
    if cell.strangers == "none":
        return source.members[0][:0]
    if cell.strangers == "many kinds":
        picked = [rows[rng.permutation(len(rows))[:3]] for rows in others]
    else:
        wanted = members * (3 if cell.strangers == "three times" else 1)
        kinds = rng.permutation(len(others))
        if cell.strangers == "few kinds":
            kinds = kinds[: max(1, -(-wanted // KIND))]
        pool = np.concatenate([others[kind] for kind in kinds])
        picked = [pool[rng.permutation(len(pool))[:wanted]]]
    together = np.concatenate(picked)
    return together[rng.permutation(len(together))]
