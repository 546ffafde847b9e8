"""What fitting learns: a model that predicts any rows, and what held-out labels tell of it.

Letters: P rows, C of them at once, H held out, L rows of the graph, N classes, D features, k neighbours.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta, Struct
from scipy.special import log_softmax

from semishot.estimator import constants as const
from semishot.estimator.spaces import (
    AnySpace,
    Array,
    Positive,
    blocks,
    nearest,
    squared_distances,
)
from semishot.estimator.strangers import Members, StrangerCount, Strangers

NOTHING_TELLS = "cannot test whether the pile helps (one label per class); it is used"


class Answer(NamedTuple):
    """What is said of P rows."""

    classes: Array  # (P, N), probabilities, given that the row belongs to one of the classes
    scores: Array  # (P,), high for members
    stranger: Array  # (P,), the probability of a stranger, NaN where it is not known


class PrototypeModel(Struct, frozen=True, tag=True):
    """Logits are minus the squared distances (Eq. 2), the score is the largest of them."""

    space: AnySpace
    prototypes: Array  # (N, D), in the space

    @property
    def temperature(self) -> float:
        """What squared distances to prototypes are divided by in the logits."""
        return self.space.length**2

    def __call__(self, features: Array) -> tuple[Array, Array]:
        """(C, D) -> logits (C, N), whose softmax are class probabilities, and scores (C,)."""
        logits = -squared_distances(self.space(features), self.prototypes)
        return logits, logits.max(-1)


class GraphModel(Struct, frozen=True, tag=True):
    """Logits and scores by the neighbours in a graph and by prototypes.

    In the graph a row without a label satisfies z_x = a sum_j S_xj Z_j. A new row is predicted from its
    neighbours in the graph by the same equation.
    """

    space: AnySpace
    rows: Array  # (L, D), the graph's rows, unit length
    passed: Array
    """(L, N + 1), what a neighbour passes on of each class and of named strangers: a Z / sqrt(degree)."""
    best: Array  # (L,), the score before smoothing
    answers: Array  # (L, N + 1), the graph's own logits and score of its rows
    scoring: (
        Array  # (N, D), what a row is multiplied with in its score: prototypes, times their weight
    )
    prototypes: Array  # (N, D), of members, unit length
    graph_weight: Positive
    pull: Annotated[float, Meta(ge=0)]
    share: Annotated[float, Meta(ge=0, le=1)]  # of a score: what comes from the neighbours

    @property
    def temperature(self) -> float:
        """What squared distances to prototypes, which are 2 - 2 cos, are divided by in the logits."""
        return 2 / self.pull if self.pull else math.inf

    def __call__(self, features: Array, known: Array | None = None) -> tuple[Array, Array]:
        """(C, D) -> logits (C, N), whose softmax are class probabilities, and scores (C,).

        An edge of the graph counts in both directions, hence the 2: z = a sum_j 2 w_j Z_j / sqrt(d d_j).
        A row of the graph itself, a copy of it included, is answered as in the graph. Cosines (C, L) with
        the graph's rows may be known already; they are overwritten.
        """
        x = self.space(features)  # (C, D)
        known = x @ self.rows.T if known is None else known
        indices, cosines = nearest(known, min(const.NEIGHBOURS, len(self.rows)))  # (C, k)
        weights = np.maximum(cosines, 0) ** const.EDGE_POWER  # (C, k)
        total = np.maximum(weights.sum(-1, keepdims=True), const.TINY)  # (C, 1)
        z = np.einsum("ck,ckn->cn", weights, self.passed[indices]) * np.sqrt(2 / total)
        arrived, named = np.maximum(z[:, :-1], const.TINY), z[:, -1:]
        by_graph = np.log(arrived)  # (C, N)
        raw = (
            by_graph + x @ self.scoring.T - np.log1p(const.NAMED_WEIGHT * named / arrived)
        )  # (C, N)
        around = (weights * self.best[indices]).sum(-1) / total[:, 0]  # (C,)
        scores = (1 - self.share) * raw.max(-1) + self.share * around
        logits = self.graph_weight * by_graph + self.pull * (x @ self.prototypes.T)
        closest = cosines.argmax(-1)[:, None]  # (C, 1)
        own = self.answers[np.take_along_axis(indices, closest, 1)[:, 0]]  # (C, N + 1)
        same = np.take_along_axis(cosines, closest, 1) > const.SAME  # (C, 1)
        return np.where(same, own[:, :-1], logits), np.where(same[:, 0], own[:, -1], scores)


AnyModel = PrototypeModel | GraphModel


def predict_in_blocks(
    model: AnyModel, features: Array, cosines_of: Callable[[slice], Array] | None = None
) -> tuple[Array, Array]:
    """(P, D) -> logits (P, N) and scores (P,), a block at a time. Cosines of a block with the rows of a graph
    may be known already."""
    dtype = model.prototypes.dtype
    logits = np.empty((len(features), len(model.prototypes)), dtype)
    scores = np.empty(len(features), dtype)
    for part, block in blocks(features):
        known = () if cosines_of is None else (cosines_of(part),)
        logits[part], scores[part] = model(block.astype(dtype, copy=False), *known)
    return logits, scores


class HeldOut(NamedTuple):
    """Labeled examples held out in turn: how many, the share predicted right, their mean probability."""

    examples: Annotated[int, Meta(gt=0)]
    accuracy: Annotated[float, Meta(ge=0, le=1)]
    probability: Annotated[float, Meta(ge=0, le=1)]


class Doubt(NamedTuple):
    """A labeled row that the other labels contradict."""

    row: int
    given: int
    """The index of the class among the classes."""
    suggested: int
    probability: float


@dataclass(frozen=True)
class Learned:
    """What a rule has learned from labels and a pile."""

    model: AnyModel
    members: Members | None  # how members score. None: not known
    strangers: Strangers | None
    count: StrangerCount | None  # of strangers in the pile
    pile_helps: bool | None  # none: nothing could be held out, or there is no pile
    message: str  # whether the pile is used, and why, in words
    held_out: HeldOut | None
    doubts: list[Doubt] = field(default_factory=list)
    answer: Answer | None = None  # for the rows that were fitted. None for a saved model


def held_out_summary(probabilities: Array, classes: Array) -> HeldOut | None:
    """(H, N), (H,) -> whether the probabilities agree with the accuracy on held-out examples."""
    if not len(classes):
        return None
    right = probabilities.argmax(1) == classes
    return HeldOut(len(classes), float(right.mean()), float(probabilities.max(1).mean()))


def loss_of(logits: Array, classes: Array) -> float:
    """(H, N), (H,) -> minus the log-probability of all together."""
    return -float(log_softmax(logits, 1)[np.arange(len(classes)), classes].sum())


def pile_verdict(count: int, with_pile: int | None, alone: int, gain: float, used: bool) -> str:
    """Whether the pile is used, in words: how many of `count` held-out labels are right, and whether all of
    them are more probable with it (`gain` of the log-probability). None: not known how many with the pile."""
    right = f"{alone} of {count} held-out labels right without the pile"
    if with_pile is not None:
        right = f"{with_pile} of {count} held-out labels right with the pile, {alone} without it"
    change = "somewhat less" if used else "much less"
    if gain > -const.EVEN:
        change = "more" if gain >= const.EVEN else "equally"
    end = "the pile is used" if used else "the pile does not help, labels alone"
    return f"{right}, and together {change} probable with it: {end}"


def doubts(probabilities: Array, rows: Array, classes: Array) -> list[Doubt]:
    """(H, N), (H,), (H,) -> the labels that the others contradict, the strongest contradiction first."""
    best = probabilities.argmax(1)
    contradicted = [
        Doubt(int(row), int(given), int(other), float(p[other]))
        for row, given, other, p in zip(rows, classes, best, probabilities, strict=True)
        if other != given and p[other] >= const.SURE
    ]
    return sorted(contradicted, key=lambda doubt: (-doubt.probability, doubt.row))
