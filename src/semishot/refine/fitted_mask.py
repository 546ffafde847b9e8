"""Masked Soft k-Means without training: Eq. 9 with threshold and slope fitted to the pile's distances.

The distances of the unlabeled examples to their nearest prototypes are a mixture: members of the
classes are near, distractors far. For two normal distributions of one variance v, of shares s and
means m, Bayes' rule is Eq. 9: log-odds = log(s1 / s2) + (m2^2 - m1^2) / 2v - d (m2 - m1) / v, so

    slope = (m2 - m1) / v,    slope * threshold = log(s1 / s2) + (m2^2 - m1^2) / 2v.

The distances to the second-nearest prototypes also show how far distractors are, even if the pile has
none: they count as far ones, with weight `ANCHOR` each. All classes share one mixture.
Letters: U unlabeled examples, N classes.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from semishot.errors import InputError
from semishot.prototypes import squared_distances

ITERATIONS = 30
ANCHOR = 0.1
SMALLEST = 1e-6
"""The least share, and the least variance relative to the mean distance: below it all are equal."""
LARGEST = 1e9
"""The largest distance relative to the mean nearest one: a larger one might overflow."""


class Refiner(nn.Module):
    """Eq. 9 with a threshold and a slope that are fitted to the distances: it needs no training.

    `mask_power=2` applies the mask twice, as the authors' code does: using a distractor costs
    more than leaving out a member.
    """

    def __init__(self, runs: int | None = None, mask_power: int = 2) -> None:
        super().__init__()
        if mask_power < 1:
            raise InputError(f"mask_power must be at least 1, not {mask_power}")
        self.mask_power = mask_power

    def forward(self, unlabeled: Tensor, prototypes: Tensor) -> Tensor:
        d = squared_distances(unlabeled, prototypes)  # (..., U, N)
        assignments = (-d).softmax(-1)  # (..., U, N)  Eq. 4
        return assignments * self.mask_of(d) ** self.mask_power  # (..., U, N)  Eq. 9

    def mask_of(self, d: Tensor) -> Tensor:
        """m of Eq. 9 from the squared distances: (..., U, N) -> (..., U, N)."""
        mixture = fit(d.detach())  # no gradient through the fit, as in Eq. 8
        return mixture.member(d)


class Mixture(NamedTuple):
    """Members near, distractors far: each field (..., 1, 1)."""

    odds: Tensor  # of a member among the unlabeled
    near: Tensor
    far: Tensor
    variance: Tensor
    scale: Tensor | float = 1.0
    """The distance that near, far and variance are relative to: its square may overflow."""

    def member(self, d: Tensor) -> Tensor:
        """Eq. 9: the probability of a member at distance d."""
        slope = (self.far - self.near) / self.variance
        product = self.odds.log() + (self.far + self.near) / 2 * slope  # slope * threshold
        return torch.sigmoid(product - slope * (d / self.scale))


def fit(d: Tensor) -> Mixture:
    """Expectation-maximization on the squared distances (..., U, N).

    It starts from the middle between the nearest and the second-nearest distances. If all distances are
    equal, all are members.
    """
    two = d.topk(min(2, d.shape[-1]), -1, largest=False).values
    z = two[..., :1]  # (..., U, 1)
    # (..., U, 1), or none for one class
    second = two[..., 1:] if d.shape[-1] > 1 else z[..., :0, :]
    scale = z.mean(-2, keepdim=True)  # (..., 1, 1)
    scale = torch.where(scale > 0, scale, 1)
    # Eq. 7, with one mean for all classes
    z, second = ((each / scale).clamp_max(LARGEST) for each in (z, second))
    anchors = torch.full_like(second, ANCHOR)
    both = torch.cat([z, second], -2)
    member = (z <= both.mean(-2, keepdim=True) + SMALLEST).to(z)
    for _ in range(ITERATIONS):
        stranger = torch.cat([1 - member, anchors], -2)
        near, near_spread = mean_and_spread(z, member)
        far, far_spread = mean_and_spread(both, stranger)
        far = torch.maximum(near, far)  # also where nothing is far
        total = member.sum(-2, keepdim=True) + stranger.sum(-2, keepdim=True)
        variance = ((near_spread + far_spread) / total).clamp_min(SMALLEST)
        share = member.mean(-2, keepdim=True).clamp(SMALLEST, 1 - SMALLEST)
        mixture = Mixture(share / (1 - share), near, far, variance)
        member = mixture.member(z)
    return mixture._replace(scale=scale)


def mean_and_spread(z: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The weighted mean over the examples, and the weighted sum of squares around it."""
    total = weights.sum(-2, keepdim=True).clamp_min(SMALLEST)
    mean = (weights * z).sum(-2, keepdim=True) / total
    return mean, (weights * (z - mean).square()).sum(-2, keepdim=True)
