"""Label propagation (TPN, iLPC): labels spread along a graph of nearest neighbors among all examples.

With x the features minus the mean of all examples, at unit length, for examples i and j of all P = S + U:

    A_ij = max(cos(x_i, x_j), 0)^3 if j is one of the k nearest neighbors of i, else 0
    W = (A + A^T) / 2,  G = D^-1/2 W D^-1/2,  D the sums of W's rows
    Z = (I - a G)^-1 Y,  Y the labels, zero for the unlabeled ones

Z_j says how much of each class arrives at example j: its shares, to the power 3, say which class it is,
and its largest value, relative to that of the pile, how much it belongs to any. The weight is their product.
Letters: S labeled, U unlabeled, P all examples, N classes, D features.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from semishot.errors import InputError
from semishot.prototypes import directions

SHARPNESS = 3
"""The power of cosines and of shares."""
MOST_SPREAD = 0.99
"""The nearer to 1, the more rounds it takes."""
TOLERANCE = 1e-8
SMALLEST = 1e-6
"""The least sum of a row of W: an example below it has no neighbors."""
MOST_EXAMPLES = 10_000
"""All pairs are compared: this many take 2 GB."""


class Refiner(nn.Module):
    """Labels spread along a graph of nearest neighbors: a class may have any form.

    It needs no training. `neighbors` is k of the graph and `spread`, a, how far labels reach.
    """

    needs_support = True

    def __init__(self, runs: int | None = None, neighbors: int = 15, spread: float = 0.8) -> None:
        super().__init__()
        if not (isinstance(neighbors, int) and neighbors >= 1):
            raise InputError(f"label_propagation: neighbors must be at least 1, not {neighbors}")
        if not 0 < spread <= MOST_SPREAD:
            raise InputError(
                f"label_propagation: spread must be above 0 and at most {MOST_SPREAD}, not {spread}"
            )
        self.neighbors, self.spread = neighbors, spread

    def forward(
        self, unlabeled: Tensor, prototypes: Tensor, support: Tensor, labels: Tensor
    ) -> Tensor:
        count = unlabeled.shape[-2]
        if not count:
            return labels.new_zeros(*unlabeled.shape[:-1], labels.shape[-1])
        if (total := count + support.shape[-2]) > MOST_EXAMPLES:
            raise InputError(
                f"label_propagation compares all pairs of examples, at most {MOST_EXAMPLES:,} of them, "
                f"not {total:,}: give it fewer unlabeled ones, or choose another method"
            )
        examples = torch.cat([support, unlabeled], -2)  # (..., P, D)
        graph = self.graph(directions(examples))  # (..., P, P)
        known = F.pad(labels, (0, 0, 0, count))  # (..., P, N)
        arrived = Propagated.apply(graph, known, self.spread)  # type: ignore[no-untyped-call]
        return shares(arrived[..., -count:, :])  # (..., U, N)

    def graph(self, x: Tensor) -> Tensor:
        """G: directions (..., P, D) -> (..., P, P)."""
        near = (x @ x.mT).clamp_min(0).pow(SHARPNESS)
        near = near * (1 - torch.eye(x.shape[-2], dtype=x.dtype, device=x.device))  # not itself
        k = min(self.neighbors, x.shape[-2] - 1)
        last = near.detach().topk(k, -1).values[..., -1:]  # equal ones too: their order is chance
        a = torch.where(near >= last, near, 0)  # (..., P, P)
        w = (a + a.mT) / 2
        inverse_root = w.sum(-1).clamp_min(SMALLEST).rsqrt()  # (..., P)
        return inverse_root.unsqueeze(-1) * w * inverse_root.unsqueeze(-2)


class Propagated(torch.autograd.Function):
    """(I - a G)^-1 Y: (..., P, P), (..., P, N) -> (..., P, N), for a symmetric G.

    The gradient is that of the solution Z, and takes one more system instead of a way back through all
    rounds: dY = (I - a G)^-1 dZ and dG = a dY Z^T.
    """

    @staticmethod
    def forward(ctx: Any, graph: Tensor, known: Tensor, spread: float) -> Tensor:
        found = solution(graph, known, spread)
        ctx.save_for_backward(graph, found)
        ctx.spread = spread
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        graph, found = ctx.saved_tensors
        known_grad = solution(graph, grad, ctx.spread)
        return ctx.spread * known_grad @ found.mT, known_grad, None


def solution(graph: Tensor, known: Tensor, spread: float) -> Tensor:
    """(I - a G)^-1 Y: (..., P, P), (..., P, N) -> (..., P, N), by Chebyshev's semi-iteration.

    Z = a G Z + Y is repeated; each round goes beyond its result by a factor that follows from a, since the
    eigenvalues of a G lie between -a and a. The error falls by r in each, half for a = 0.8. Like conjugate
    gradients this needs only products with G, but no number depends on the data.
    """
    r = (1 - math.sqrt(1 - spread**2)) / spread
    before, found, factor = known, spread * (graph @ known) + known, 2.0
    for _ in range(math.ceil(math.log(TOLERANCE / 2) / math.log(r))):
        factor = 1 / (1 - factor * spread**2 / 4)
        goal = torch.add(known, graph @ found, alpha=spread)
        before, found = found, before.lerp(goal, factor)  # before + factor (goal - before)
    return found


def shares(arrived: Tensor) -> Tensor:
    """Z (..., U, N) -> weights (..., U, N): zero where nothing arrives."""
    arrived = arrived.clamp_min(0)  # rounding
    best = arrived.amax(-1, keepdim=True)  # (..., U, 1)
    sharp = (arrived / positive(best)).pow(SHARPNESS)
    most = best.amax(-2, keepdim=True)  # (..., 1, 1)
    return sharp / positive(sharp.sum(-1, keepdim=True)) * (best / positive(most))


def positive(values: Tensor) -> Tensor:
    """1 in place of zeros, to divide by."""
    return torch.where(values > 0, values, 1)
