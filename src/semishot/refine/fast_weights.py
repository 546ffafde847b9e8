"""Fast weights (the paper's outlook, section 6): an episode changes the last layer by one learned step.

The last layer scales each feature by exp(g_k / 2), and starts at g = 0, where nothing is changed. With

    p_jc = softmax over c of -d_jc,    d_jc = sum over k of exp(g_k) (u_jk - p_ck)^2

an episode wants its unlabeled examples to be of one class each, and its prototypes to be far apart:

    L(g) = mean over unlabeled j of (-sum over c of p_jc log p_jc) + mean over classes c of -log p_cc

where p_cc is that of prototype c as an example of its own class. One step of gradient descent, g = -a D dL/dg
at g = 0, whose rate a is learned, gives the fast weights; shares (Eq. 4) and queries (Eq. 2) are then as
always.
Letters: U unlabeled examples, N classes, D features.
"""

import math

import torch
from torch import Tensor, nn

from semishot.errors import InputError
from semishot.prototypes import class_log_probs

SPEED = 10
"""The logarithm of the rate is this times its parameter, so that Adam moves it this many times as fast."""
LIMIT = 5.0
"""The largest |g|: beyond it, exp might overflow."""


class Refiner(nn.Module):
    """Soft k-means after one learned step that scales the features for the episode at hand.

    `rate` is where the learning of the step's size starts. Queries are scored with the scaled features too.
    """

    def __init__(self, runs: int | None = None, rate: float = 0.1) -> None:
        super().__init__()
        if rate <= 0:
            raise InputError(f"fast_weights: the rate must be positive, not {rate}")
        shape = () if runs is None else (runs,)
        self.slow_log_rate = nn.Parameter(torch.full(shape, math.log(rate) / SPEED))

    def forward(self, unlabeled: Tensor, prototypes: Tensor) -> Tensor:
        gain = self.gain(unlabeled, prototypes)  # (..., 1, D)
        return class_log_probs(unlabeled * gain, prototypes * gain).exp()  # (..., U, N)  Eq. 4

    def query_log_probs(
        self, queries: Tensor, prototypes: Tensor, unlabeled: Tensor, initial: Tensor
    ) -> Tensor:
        """Eq. 2 with the features scaled for the refined prototypes."""
        gain = self.gain(unlabeled, prototypes)
        return class_log_probs(queries * gain, prototypes * gain)

    def gain(self, unlabeled: Tensor, prototypes: Tensor) -> Tensor:
        """exp(g / 2): (..., U, D), (..., N, D) -> (..., 1, D)."""
        rate = (SPEED * self.slow_log_rate).exp().reshape(-1, *(1,) * (prototypes.ndim - 1))
        slope = gradient(unlabeled, prototypes) * prototypes.shape[-1]
        return ((-rate * slope).clamp(-LIMIT, LIMIT) / 2).exp()


def gradient(unlabeled: Tensor, prototypes: Tensor) -> Tensor:
    """dL / dg at g = 0: (..., 1, D).

    dL / dd_jc is p_jc (log p_jc + entropy_j) / U for an unlabeled example and (1[j = c] - p_jc) / N for a
    prototype. Its sum over c is zero for every j, so the squares of the examples drop out of
    sum_jc dL/dd_jc (x_jk - p_ck)^2.
    """
    count, classes = unlabeled.shape[-2], prototypes.shape[-2]
    logs = class_log_probs(unlabeled, prototypes)  # (..., U, N)
    p = logs.exp()
    entropy = -(p * logs).sum(-1, keepdim=True)  # (..., U, 1)
    own = class_log_probs(prototypes, prototypes).exp()  # (..., N, N)
    itself = torch.eye(classes, dtype=own.dtype, device=own.device)
    slopes = torch.cat([p * (logs + entropy) / max(1, count), (itself - own) / classes], -2)
    examples = torch.cat([unlabeled, prototypes], -2)  # (..., U + N, D)
    of_class = slopes.sum(-2).unsqueeze(-1) * prototypes - 2 * slopes.mT @ examples  # (..., N, D)
    return (of_class * prototypes).sum(-2, keepdim=True)
