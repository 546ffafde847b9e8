"""Soft k-means by cosines, with one more cluster for distractors at a constant similarity.

With x and p at unit length, for every unlabeled example j and N classes,

    w_jc = exp(s cos(x_j, p_c)) / (sum over k of exp(s cos(x_j, p_k)) + exp(s t))

The scale s and the threshold t, the similarity at which an example is as likely a distractor, are learned.
Letters: U unlabeled examples, N classes, D features.
"""

import math

import torch
from torch import Tensor, nn

from semishot.errors import InputError
from semishot.prototypes import unit_length

SPEED = 10
"""The logarithm of the scale and the threshold are this times their parameters, so that Adam moves them this
many times as fast as it moves weights."""


class Refiner(nn.Module):
    """Soft k-means by cosines, with one more cluster for distractors at a constant similarity.

    `scale` and `threshold` are where learning starts; `cluster=False` leaves the further cluster out. For
    embeddings on a sphere, whose origin means something.
    """

    def __init__(
        self,
        runs: int | None = None,
        scale: float = 10.0,
        threshold: float = 0.3,
        cluster: bool = True,
    ) -> None:
        super().__init__()
        if scale <= 0:
            raise InputError(f"cosine_kmeans: the scale must be positive, not {scale}")
        if not -1 <= threshold <= 1:
            raise InputError(f"cosine_kmeans: the threshold must be from -1 to 1, not {threshold}")
        shape = () if runs is None else (runs,)
        self.slow_log_scale = nn.Parameter(torch.full(shape, math.log(scale) / SPEED))
        self.slow_threshold = nn.Parameter(torch.full(shape, threshold / SPEED))
        self.cluster = cluster

    def forward(self, unlabeled: Tensor, prototypes: Tensor) -> Tensor:
        cosines = unit_length(unlabeled) @ unit_length(prototypes).mT  # (..., U, N)
        lead = (-1, *(1,) * (cosines.ndim - 1))  # (1 or R, ..., 1, 1)
        scale = (SPEED * self.slow_log_scale).exp().reshape(lead)
        if not self.cluster:
            return (scale * cosines).softmax(-1)
        threshold = (SPEED * self.slow_threshold).reshape(lead).expand(*cosines.shape[:-1], 1)
        return (scale * torch.cat([cosines, threshold], -1)).softmax(-1)[..., :-1]
