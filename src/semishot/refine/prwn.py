"""PRWN (prototypical random walk networks): in training, walks over the pile must return to their class.

With a_jc = -|h_j - p_c|^2 for the U unlabeled examples, smoothed by 0.1 towards equal shares,

    G_px = softmax of a over examples,   G_xp = softmax of a over classes
    G_xx = softmax of -|h_i - h_j|^2 over j, without j = i
    T_t = G_px^T G_xx^t G_xp             from a class over t + 1 examples back to a class
    L_walk = sum over t = 0..3 of 0.7^t mean_c(-log T_t[c, c])
    L_visit = -mean_j log mean_c G_px[j, c]

and `weight` times L_walk + L_visit is added to the loss with the prototypes of Eq. 1: nothing is refined in
training. At test the examples that walks visit and leave most, s_j = sum_c G_px G_xp not below the median,
are shared out as in Eq. 4. Letters: U unlabeled examples, N classes, D features.
"""

import torch
from torch import Tensor, nn

from semishot.errors import InputError
from semishot.prototypes import squared_distances

SMOOTH, DECAY, STEPS = 0.1, 0.7, 4
SMALLEST = 1e-12
"""The least probability that a logarithm is taken of."""


class Refiner(nn.Module):
    """Random walks over the pile as a loss in training; at test, a filter before Eq. 4.

    `weight` is that of the walking loss: 0.5 on photographs, 2 on Omniglot, as its authors have it.
    """

    def __init__(self, runs: int | None = None, weight: float = 0.5) -> None:
        super().__init__()
        if weight < 0:
            raise InputError(f"prwn: weight must be at least 0, not {weight}")
        self.weight = weight

    def forward(self, unlabeled: Tensor, prototypes: Tensor) -> Tensor:
        a = -squared_distances(unlabeled, prototypes)  # (..., U, N)
        if self.training or not a.shape[-2]:
            return torch.zeros_like(a)
        to_points, to_classes = both_ways(a)
        score = (to_points * to_classes).sum(-1, keepdim=True)  # (..., U, 1)
        kept = score >= score.median(-2, keepdim=True).values
        return a.softmax(-1) * kept  # Eq. 4

    def extra_loss(self, unlabeled: Tensor, prototypes: Tensor) -> Tensor:
        """(..., U, D), (..., N, D) -> (...), added to the loss of the episode."""
        a = -squared_distances(unlabeled, prototypes)
        between = -squared_distances(unlabeled, unlabeled)
        return self.weight * walk_loss(a, between)


def both_ways(a: Tensor) -> tuple[Tensor, Tensor]:
    """G_px and G_xp from similarities (..., U, N)."""
    count, classes = a.shape[-2:]
    to_points = (1 - SMOOTH) * a.softmax(-2) + SMOOTH / count
    return to_points, (1 - SMOOTH) * a.softmax(-1) + SMOOTH / classes


def walk_loss(a: Tensor, between: Tensor) -> Tensor:
    """L_walk + L_visit from similarities to prototypes (..., U, N) and between examples (..., U, U)."""
    to_points, back = both_ways(a)  # (..., U, N) each
    itself = torch.eye(a.shape[-2], dtype=torch.bool, device=a.device)
    steps = between.masked_fill(itself, -torch.inf).softmax(-1) if a.shape[-2] > 1 else between
    loss = -to_points.mean(-1).clamp_min(SMALLEST).log().mean(-1)  # L_visit
    for t in range(STEPS):
        home = (to_points.mT @ back).diagonal(dim1=-2, dim2=-1)  # (..., N)
        loss = loss - DECAY**t * home.clamp_min(SMALLEST).log().mean(-1)
        back = steps @ back
    return loss
