"""OSLO (open-set likelihood maximization): distractors are weighted down while classes are shared out.

With x the features minus the mean of all examples, at unit length, and w the mean of each class's labeled
ones; z = 1/N at first. Each step, for every unlabeled example j,

    l_jk = cos(x_j, w_k)
    xi_j = sigmoid(sum_k z_jk l_jk / 0.05)       how much it belongs to any class at all
    z_j  = softmax(xi_j l_j / 0.1)               to which
    w_k  = the mean of labeled and unlabeled examples, weighted by labels and xi z

The weights are xi z, from the last step. Letters: S labeled, U unlabeled examples, N classes, D features.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from semishot.errors import InputError
from semishot.prototypes import class_prototypes, directions

MOST_STEPS = 100
"""A model from an untrusted source must not run forever."""


class Refiner(nn.Module):
    """Open-set likelihood maximization: it estimates which examples belong to any class at all.

    It needs no training. It makes its own prototypes from the labeled examples, in `steps` steps; the two
    temperatures say how sharply examples are told apart from distractors, and classes from each other.
    """

    needs_support = True

    def __init__(
        self,
        runs: int | None = None,
        steps: int = 2,
        distractor_temperature: float = 0.05,
        class_temperature: float = 0.1,
    ) -> None:
        super().__init__()
        if not (isinstance(steps, int) and 1 <= steps <= MOST_STEPS):
            raise InputError(f"oslo: steps must be from 1 to {MOST_STEPS}, not {steps}")
        if not (distractor_temperature > 0 and class_temperature > 0):
            raise InputError(
                "oslo: temperatures must be positive, not "
                f"{distractor_temperature} and {class_temperature}"
            )
        self.steps = steps
        self.distractor_temperature = distractor_temperature
        self.class_temperature = class_temperature

    def forward(
        self, unlabeled: Tensor, prototypes: Tensor, support: Tensor, labels: Tensor
    ) -> Tensor:
        examples = torch.cat([support, unlabeled], -2)  # (..., S + U, D)
        x = directions(examples)
        labeled, pile = x.split([support.shape[-2], unlabeled.shape[-2]], -2)
        w = class_prototypes(labeled, labels)  # (..., N, D)
        z = x.new_full((*pile.shape[:-1], labels.shape[-1]), 1 / labels.shape[-1])  # (..., U, N)
        weights = z
        for _ in range(self.steps):
            cosines = pile @ F.normalize(w, dim=-1).mT  # (..., U, N)
            belongs = (z * cosines).sum(-1, keepdim=True)  # (..., U, 1)
            xi = torch.sigmoid(belongs / self.distractor_temperature)
            z = (xi * cosines / self.class_temperature).softmax(-1)
            weights = xi * z
            w = class_prototypes(x, torch.cat([labels, weights], -2))
        return weights
