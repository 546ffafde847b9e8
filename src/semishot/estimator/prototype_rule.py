"""The rule of the paper: prototypes that a refiner has refined with the pile; classes by Eq. 2.

Letters: P rows, S labeled ones, H of them held out, U unlabeled ones, N classes, D features.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from msgspec import Struct
from scipy.special import log_softmax, softmax

from semishot.estimator.answers import Answer, HeldOut, held_out_summary
from semishot.estimator.rule import RuleModel
from semishot.estimator.spaces import (
    Array,
    Normalized,
    blocks,
    mean_direction,
    squared_distances,
)

FOLDS = 5
MANY_FEATURES = 32
"""From here on directions are compared."""
TEMPERATURE_SHARE, TEMPERATURE_SPREAD = 0.055, 0.5
"""The usual temperature, as a share of the mean squared distance between prototypes; how far labels are
expected to move it, in natural logarithms."""
MOVES = np.array([0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8])
"""The choices of the temperature, over the usual one."""


class PrototypeModel(Struct, frozen=True, tag=True):
    """Classes by minus the squared distances to prototypes (Eq. 2), strangers by the learned rule."""

    space: Normalized
    prototypes: Array  # (N, D), in the space
    rule: RuleModel

    def __call__(self, features: Any) -> Answer:
        """(P, D) -> what is said of these rows."""
        classes = [
            softmax(-squared_distances(self.space(block), self.prototypes), 1)
            for _, block in blocks(features)
        ]
        return self.rule(features)._replace(classes=np.concatenate(classes).astype(np.float64))


@dataclass(frozen=True)
class Trial:
    """Labeled rows and a pile, or a part of them, and what makes prototypes of them."""

    space: Normalized
    support: Array  # (S, D), in the space
    labels: Array  # (S, N), weights
    pile: Array  # (U, D), in the space
    refiner: Any = None  # a method of `semishot.refine`: a torch module
    steps: int = 1

    def prototypes(self) -> Array:
        """(N, D), in the space."""
        support, labels, refiner = self.support, self.labels, self.refiner
        prototypes = self.space.settle(mean_of(support, labels))  # Eq. 1
        if refiner is None or not len(self.pile):
            return prototypes
        import torch

        refiner = refiner.to(torch.from_numpy(support))  # in the same precision
        rows = np.concatenate([support, self.pile])
        support_too = [support, labels] if getattr(refiner, "needs_support", False) else []
        for _ in range(self.steps):
            arrays = [self.pile, prototypes, *support_too]
            with torch.no_grad():
                weights = refiner(*(torch.from_numpy(each) for each in arrays)).numpy()  # (U, N)
            prototypes = mean_of(rows, np.concatenate([labels, weights]))  # Eqs. 4, 9
            prototypes = self.space.settle(prototypes)
        return prototypes

    def held_out(self) -> tuple[Array, Array]:
        """Logits (H, N) of labeled rows by prototypes made without them, and their classes (H,).

        The i-th row of each class is left out in fold i. A class of one row keeps it.
        """
        given = self.labels > 0
        sizes = given.sum(0)  # (N,)
        rank = (given.cumsum(0) * given).sum(1) - 1  # (S,), the row's rank in its class
        fold = np.where(given @ sizes > 1, rank % min(FOLDS, sizes.max()), -1)
        logits, classes = [np.empty((0, len(sizes)))], [np.empty(0, int)]
        for number in range(fold.max() + 1):
            out = fold == number
            kept = replace(self, support=self.support[~out], labels=self.labels[~out])
            logits.append(-squared_distances(self.support[out], kept.prototypes()))
            classes.append(given[out].argmax(1))
        return np.concatenate(logits), np.concatenate(classes)


def refined_model(
    parameters: Any, refiner: Any, features: Any, labels: Array, pile: Array, rule: RuleModel
) -> tuple[PrototypeModel, HeldOut | None]:
    """Prototypes that a refiner refines, beside a rule for strangers; how held-out labels are predicted.

    Features are (P, D), labels weights (P, N), the pile a mask (P,). A temperature "auto" is chosen by the
    labels alone, before anything is refined.
    """
    normalize, temperature = parameters.normalize, parameters.temperature
    if normalize == "auto":
        normalize = "centered" if features.shape[1] >= MANY_FEATURES else "none"
    space = Normalized(normalize, mean_direction(features))
    labeled = labels.sum(1) > 0
    given, weights = features[labeled], labels[labeled].astype(features.dtype)
    if temperature == "auto":
        rows = space(given)
        temperature = temperature_of(Trial(space, rows, weights, rows[:0]))
    space = Normalized(normalize, space.center, temperature**0.5)
    trial = Trial(space, space(given), weights, space(features[pile]), refiner, parameters.steps)
    model = PrototypeModel(space, trial.prototypes().astype(features.dtype), rule)
    held_out, classes = trial.held_out()
    return model, held_out_summary(softmax(held_out, 1), classes)


def mean_of(rows: Array, weights: Array) -> Array:
    """Eq. 1: (S, D), (S, N) -> (N, D), the weighted mean of each class, zeros for a class of no weight."""
    total = weights.sum(0)[:, None]
    mean: Array = weights.T @ rows / np.where(total == 0, 1, total)
    return mean


def temperature_of(labels: Trial) -> float:
    """The temperature of Eq. 2's softmax: a share of the mean squared distance between prototypes, moved to
    where held-out labels are most probable, given a normal prior for its logarithm."""
    prototypes = labels.prototypes()
    pairs = len(prototypes) * (len(prototypes) - 1)
    between = float(squared_distances(prototypes, prototypes).sum()) / max(1, pairs)
    if between == 0:  # one class, or all equal: any temperature will do
        return 1.0
    logits, classes = labels.held_out()
    choices = TEMPERATURE_SHARE * between * MOVES
    moved = (np.log(MOVES) / TEMPERATURE_SPREAD) ** 2 / 2
    here = np.arange(len(classes))
    losses = [-float(log_softmax(logits / each, 1)[here, classes].sum()) for each in choices]
    return float(choices[(losses + moved).argmin()])
