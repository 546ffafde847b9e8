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
SHARE = 0.6
"""The share of a score that comes from its neighbours."""
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
    reached: Tensor
    """(N, D), prototypes of all that labels reach, unit length."""
    prototypes: Tensor
    """(N, D), of members, unit length."""
    graph_weight: float
    pull: float

    @property
    def temperature(self) -> float:
        return 2 / self.pull if self.pull else math.inf  # a squared distance is 2 - 2 cos

    def __call__(self, features: Tensor) -> tuple[Tensor, Tensor]:
        x = self.space(features)  # (C, D)
        places, weights = self.neighbours(x)
        return self.combined(places, weights, x @ self.reached.mT, x @ self.prototypes.mT)

    def neighbours(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(C, D) -> places (C, k) and edge weights (C, k) of the nearest rows of the graph."""
        cosines, places = (x @ self.rows.mT).topk(min(NEIGHBOURS, len(self.rows)), sorted=False)
        return places, cosines.clamp_min(0) ** POWER

    def combined(
        self, places: Tensor, weights: Tensor, reached: Tensor, refined: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Neighbours (C, k), cosines with prototypes (C, N) -> logits (C, N) and scores (C,).

        An edge of the graph counts in both directions, hence the 2: z = a sum_j 2 w_j Z_j / sqrt(d d_j).
        """
        total = weights.sum(-1, keepdim=True).clamp_min(SMALLEST)  # (C, 1)
        z = (weights.unsqueeze(-1) * self.passed[places]).sum(-2) * (2 / total).sqrt()  # (C, N + 1)
        arrived, named = z[:, :-1].clamp_min(SMALLEST), z[:, -1:]
        by_graph = arrived.log()  # (C, N)
        raw = by_graph + PULL * reached - (NAMED * named / arrived).log1p()  # (C, N)
        around = (weights * self.best[places]).sum(-1, keepdim=True) / total  # (C, 1)
        scores = (1 - SHARE) * raw.amax(-1) + SHARE * around[:, 0]
        return self.graph_weight * by_graph + self.pull * refined, scores


@torch.no_grad()
def read_in_blocks(model: Model, features: Array) -> tuple[Tensor, Tensor]:
    """(P, D) -> logits (P, N) and scores (P,), a block at a time."""
    like = model.space.center
    parts = [model(block.to(like)) for _, block in blocks(features)]
    logits, scores = (torch.cat(each) for each in zip(*parts, strict=True))
    return logits, scores
