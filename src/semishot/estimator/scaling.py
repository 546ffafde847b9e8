"""Normalization and temperature of features, chosen by held-out labeled examples.

Letters: S labeled examples, H of them held out, N classes, D features.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from semishot.estimator.blocks import NORMALIZATIONS, Space
from semishot.prototypes import class_prototypes, squared_distances

FOLDS = 5
TEMPERATURE_SHARE = 0.055
"""The temperature if nothing is held out, as a share of the mean squared distance between prototypes."""
LOG_SPREAD = 0.5
"""How far, in natural logarithms, held-out examples are expected to move the temperature from that."""
MANY_FEATURES = 32
"""From this many features on, the direction of a feature vector matters more than its length."""

MakePrototypes = Callable[[Tensor, Tensor], Tensor]
"""Raw features (S, D), one-hot (S, N) -> prototypes (N, D) in some space."""


def held_out_distances(
    support: Tensor, labels: Tensor, space: Space, prototypes: MakePrototypes
) -> tuple[Tensor, Tensor]:
    """Distances (H, N) of labeled examples to prototypes made without them, and their classes (H,).

    The i-th example of each class is left out in fold i, modulo the number of folds: classes of equal
    size lose an example at the same time, so that none is at a disadvantage. A class of one keeps it.
    """
    sizes = labels.sum(0)  # (N,)
    place = (labels.cumsum(0) * labels).sum(-1) - 1  # (S,), the example's place in its class
    fold = place % min(FOLDS, int(sizes.max()))
    fold[labels @ sizes == 1] = -1
    distances, classes = [support.new_empty(0, labels.shape[1])], [labels.new_empty(0).long()]
    for number in fold.unique():
        if number >= 0:
            out = fold == number
            made = prototypes(support[~out], labels[~out])  # (N, D)
            distances.append(squared_distances(space(support[out]), made))
            classes.append(labels[out].argmax(-1))
    return torch.cat(distances), torch.cat(classes)


def held_out_loss(distances: Tensor, classes: Tensor, temperature: Tensor | float) -> Tensor:
    """(H, N), (H,) -> (), the negative log-probability of all held-out examples together."""
    return F.cross_entropy(-distances / temperature, classes, reduction="sum")


def temperature_of(prototypes: Tensor, distances: Tensor, classes: Tensor) -> float:
    """The temperature of Eq. 2's softmax: a rule, adjusted by held-out examples if there are any.

    The rule is a share of the mean squared distance between prototypes. Held-out examples move it to
    where they are most probable, given a normal prior around the rule for the logarithm.
    """
    count = len(prototypes)
    between = squared_distances(prototypes, prototypes).sum() / max(1, count * (count - 1))
    if between == 0:  # one class, or all equal: any temperature will do
        return 1.0
    rule = TEMPERATURE_SHARE * between
    moves = torch.linspace(-3, 3, 121, dtype=distances.dtype)  # of the logarithm
    losses = [held_out_loss(distances, classes, rule * move.exp()) for move in moves]
    best = (torch.stack(losses) + (moves / LOG_SPREAD).square() / 2).argmin()
    return float(rule * moves[best].exp())


def choose_space(
    support: Tensor, labels: Tensor, center: Tensor, normalize: str, temperature: float | None
) -> Space:
    """The normalization whose supervised prototypes do best on held-out examples, with its length.

    If a class has one example, many features are centered and few are left unchanged: that example
    cannot be held out, and a choice that suits only the larger classes may never predict its class.
    """
    names = list(NORMALIZATIONS) if normalize == "auto" else [normalize]
    if normalize == "auto" and labels.sum(0).min() == 1:
        names = ["centered" if support.shape[1] >= MANY_FEATURES else "none"]
    best: tuple[float, Space] | None = None
    for name in names:
        space = Space(name, center)

        def prototypes(examples: Tensor, classes: Tensor, space: Space = space) -> Tensor:
            return space.settle(class_prototypes(space(examples), classes))

        distances, classes = held_out_distances(support, labels, space, prototypes)
        t = temperature or temperature_of(prototypes(support, labels), distances, classes)
        loss = float(held_out_loss(distances, classes, t))
        if best is None or loss < best[0]:
            best = loss, replace(space, length=t**0.5)
    assert best is not None
    return best[1]
