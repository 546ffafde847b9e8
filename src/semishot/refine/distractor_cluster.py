"""Soft k-Means + Cluster (section 3.1.2, Eqs. 5-6): one more cluster, at the origin, for distractors."""

import math

import torch
from torch import Tensor, nn

from semishot.errors import InputError
from semishot.prototypes import class_prototypes, squared_distances

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class Refiner(nn.Module):
    """One more cluster, at the origin, takes the distractors (Eqs. 5-6).

    Its length-scale r is learned as log r, from `radius`; the classes have r = 1. Two options follow the
    authors' code: `two_r_squared` divides distances by 2 r^2, `score_distractors` scores queries over
    N + 1 clusters, the last one refined.
    """

    def __init__(
        self,
        runs: int | None = None,
        radius: float = 100.0,
        two_r_squared: bool = False,
        score_distractors: bool = False,
    ) -> None:
        super().__init__()
        if radius <= 0:
            raise InputError(f"the distractor cluster's radius must be positive, not {radius}")
        shape = () if runs is None else (runs,)
        self.log_radius = nn.Parameter(torch.full(shape, math.log(radius)))
        self.scale = 2.0 if two_r_squared else 1.0
        if score_distractors:
            self.query_log_probs = self._query_log_probs

    def forward(self, unlabeled: Tensor, prototypes: Tensor) -> Tensor:
        origin = torch.zeros_like(prototypes[..., :1, :])  # (..., 1, D)  Eq. 5
        return self._cluster_log_probs(unlabeled, prototypes, origin).exp()[..., :-1]

    def _cluster_log_probs(
        self, examples: Tensor, prototypes: Tensor, distractor: Tensor
    ) -> Tensor:
        """Eq. 6: (..., E, D), (..., N, D), (..., 1, D) -> (..., E, N + 1)."""
        log_r = self.log_radius.reshape(-1, *(1,) * (examples.ndim - 1))  # (1 or runs, ..., 1, 1)
        to_classes = squared_distances(examples, prototypes) / self.scale  # r = 1
        to_distractor = squared_distances(examples, distractor) / (self.scale * (2 * log_r).exp())
        logits = torch.cat(
            [-to_classes - HALF_LOG_TWO_PI, -to_distractor - HALF_LOG_TWO_PI - log_r], -1
        )  # (..., E, N + 1)
        return logits.log_softmax(-1)

    def _query_log_probs(
        self, queries: Tensor, prototypes: Tensor, unlabeled: Tensor, initial: Tensor
    ) -> Tensor:
        """The authors' scoring: an (N + 1)-way softmax whose last cluster has been refined too."""
        last = torch.zeros_like(prototypes[..., :1, :])
        if unlabeled.shape[-2]:
            shares = self._cluster_log_probs(unlabeled, initial, last).exp()[..., -1:]
            last = class_prototypes(unlabeled, shares)  # (..., 1, D)
        return self._cluster_log_probs(queries, prototypes, last)  # (..., Q, N + 1)
