"""What a fitted model says of any rows, new ones and those of a large pile: class logits and a score.

In the graph a row without a label satisfies z_x = a sum_j S_xj Z_j. A new row is read off its neighbours in
the graph by the same equation.
Letters: P rows, C of them at once, L rows of the graph, N classes, D features, k neighbours.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from semishot.estimator.blocks import Array, Space, blocks
from semishot.estimator.graph import NEIGHBOURS, POWER, SMALLEST
from semishot.estimator.lift import Lift
from semishot.prototypes import squared_distances

PULL = 12.0
"""Of a cosine with a prototype, beside the logarithm of what the graph brings."""
SAME = 1 - 1e-5
"""The cosine above which two rows are copies."""
SHARE = 0.6
"""The share of a score that comes from its neighbours, at most."""
NAMED = 0.4
"""How much a named stranger takes away, beside a label of a class."""


class Answer(NamedTuple):
    """What is said of P rows."""

    classes: Array
    """(P, N), probabilities, given that the row belongs to one of the classes."""
    scores: Array
    """(P,), high for members."""
    stranger: Array | None
    """(P,), the probability of a stranger. None: not known."""


class Model(Protocol):
    """Features (C, D) -> logits (C, N), whose softmax are class probabilities, and scores (C,)."""

    @property
    def space(self) -> "Space | Lift": ...

    @property
    def prototypes(self) -> Tensor:
        """(N, D), in the space."""

    @property
    def temperature(self) -> float:
        """What squared distances to prototypes are divided by in the logits."""

    def __call__(self, features: Tensor) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class NearestPrototypes:
    """Logits are minus the squared distances (Eq. 2), the score is the largest of them."""

    space: Space | Lift
    prototypes: Tensor
    """(N, D), in the space."""

    @property
    def temperature(self) -> float:
        return self.space.length**2

    def __call__(self, features: Tensor) -> tuple[Tensor, Tensor]:
        logits = -squared_distances(self.space(features), self.prototypes)  # (C, N)
        return logits, logits.amax(-1)


@dataclass(frozen=True)
class OffTheGraph:
    """Logits and scores by the neighbours in a graph and by prototypes."""

    space: Space | Lift
    rows: Tensor
    """(L, D), the graph's rows, unit length."""
    passed: Tensor
    """(L, N + 1), what a neighbour passes on of each class and of named strangers: a Z / sqrt(degree)."""
    best: Tensor
    """(L,), the score before smoothing."""
    answers: Tensor
    """(L, N + 1), the graph's own logits and score of its rows."""
    scoring: Tensor
    """(N, D), what a row is multiplied with in its score: prototypes, times their weight."""
    prototypes: Tensor
    """(N, D), of members, unit length."""
    graph_weight: float
    pull: float
    share: float
    """Of a score: what comes from the neighbours."""

    @property
    def temperature(self) -> float:
        return 2 / self.pull if self.pull else math.inf  # a squared distance is 2 - 2 cos

    def __call__(self, features: Tensor) -> tuple[Tensor, Tensor]:
        x = self.space(features)  # (C, D)
        cosines, places = (x @ self.rows.mT).topk(min(NEIGHBOURS, len(self.rows)))  # (C, k)
        return self.combined(places, cosines, x @ self.scoring.mT, x @ self.prototypes.mT)

    def combined(
        self, places: Tensor, cosines: Tensor, scoring: Tensor, refined: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Neighbours (C, k), products with `scoring` and prototypes (C, N) -> logits (C, N), scores (C,).

        An edge of the graph counts in both directions, hence the 2: z = a sum_j 2 w_j Z_j / sqrt(d d_j).
        A row of the graph itself, a copy of it included, is answered as in the graph.
        """
        weights = cosines.clamp_min(0) ** POWER  # (C, k)
        total = weights.sum(-1, keepdim=True).clamp_min(SMALLEST)  # (C, 1)
        z = (weights.unsqueeze(-1) * self.passed[places]).sum(-2) * (2 / total).sqrt()  # (C, N + 1)
        arrived, named = z[:, :-1].clamp_min(SMALLEST), z[:, -1:]
        by_graph = arrived.log()  # (C, N)
        raw = by_graph + scoring - (NAMED * named / arrived).log1p()  # (C, N)
        around = (weights * self.best[places]).sum(-1, keepdim=True) / total  # (C, 1)
        scores = (1 - self.share) * raw.amax(-1) + self.share * around[:, 0]
        logits = self.graph_weight * by_graph + self.pull * refined
        nearest, place = cosines.max(-1, keepdim=True)  # (C, 1)
        own = self.answers[places.gather(-1, place)[:, 0]]  # (C, N + 1)
        same = nearest > SAME
        return torch.where(same, own[:, :-1], logits), torch.where(same[:, 0], own[:, -1], scores)


@torch.no_grad()
def read_in_blocks(model: Model, features: Array) -> tuple[Tensor, Tensor]:
    """(P, D) -> logits (P, N) and scores (P,), a block at a time."""
    like = model.prototypes
    logits = like.new_empty(len(features), len(like))  # allocated once: parts would fragment memory
    scores = like.new_empty(len(features))
    for part, block in blocks(features):
        logits[part], scores[part] = model(block.to(like))
    return logits, scores
