"""Do unlabeled examples help, and how far do members of a class lie? Measured on held-out examples.

Letters: S labeled examples, H of them held out, U unlabeled ones, N classes, D features.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from semishot.estimator.blocks import Space, refined_in_blocks
from semishot.estimator.fitted import NOTHING_TELLS, pile_verdict
from semishot.estimator.scaling import (
    MakePrototypes,
    held_out_distances,
    held_out_loss,
    temperature_of,
)
from semishot.prototypes import squared_distances
from semishot.refine.fitted_mask import ITERATIONS, SMALLEST, fit

UNLABELED_WORTH = 10
"""How many held-out distances the estimate from unlabeled examples counts as: with two labels per class
the held-out ones are too few, and too large, since the prototype of one label is inaccurate."""
HARM = 4.0
"""Held-out log-probability, times labels per class, that unlabeled examples may cost before they are
ignored: the fewer the labels, the more they are expected to help."""


class Trial(NamedTuple):
    """The data of a trial: labeled examples, and unlabeled ones or a sample of them."""

    support: Tensor  # (S, D), raw features
    labels: Tensor  # (S, N), one-hot
    unlabeled: Tensor  # (U, D), raw features


class Judgment(NamedTuple):
    """Whether the unlabeled examples help, and the held-out distances with or without them, as used."""

    helps: bool | None
    """None: no example could be held out, or none was unlabeled."""
    message: str
    distances: Tensor  # (H, N)
    classes: Tensor  # (H,)


class Near(NamedTuple):
    """How far members of a class lie from its prototype: Student's distribution of squared distances."""

    mean: float
    spread: float
    freedom: float


def refine_with(
    refiner: nn.Module | None, steps: int, space: Space, unlabeled: Tensor
) -> MakePrototypes:
    """A function from support and labels to prototypes refined by these unlabeled examples."""

    def make(support: Tensor, labels: Tensor) -> Tensor:
        examples = torch.cat([support, unlabeled]).numpy()
        known = torch.cat([labels, labels.new_zeros(len(unlabeled), labels.shape[1])])
        return refined_in_blocks(refiner, examples, known, space, steps)

    return make


def judge(refiner: nn.Module | None, steps: int, trial: Trial, space: Space) -> Judgment:
    """Compare held-out labeled examples with and without the unlabeled ones; keep the better one."""
    support, labels, unlabeled = trial
    supervised = refine_with(None, steps, space, unlabeled[:0])
    alone = held_out_distances(support, labels, space, supervised)
    if refiner is None or not len(unlabeled):
        said = "no unlabeled examples" if refiner is not None else "no refiner"
        return Judgment(None, f"{said}: supervised prototypes", *alone)
    refined = refine_with(refiner, steps, space, unlabeled)
    distances, classes = held_out_distances(support, labels, space, refined)
    if not len(classes):
        return Judgment(None, NOTHING_TELLS, distances, classes)
    t = temperature_of(refined(support, labels), distances, classes)
    gain = float(held_out_loss(*alone, 1.0) - held_out_loss(distances, classes, t))
    helps = gain > -HARM * labels.shape[1] / len(labels)
    with_pile, by_labels = (int((d.argmin(-1) == classes).sum()) for d in (distances, alone[0]))
    said = pile_verdict(len(classes), with_pile, by_labels, gain, helps)
    return Judgment(helps, said, *((distances, classes) if helps else alone))


def combined_members(held_out: Near | None, unlabeled: Near | None) -> Near | None:
    """Combine both estimates, weighted by how many distances each counts as."""
    if held_out is None or unlabeled is None:
        return held_out or unlabeled
    count = held_out.freedom + 1
    weight = count / (count + UNLABELED_WORTH)
    mean = weight * held_out.mean + (1 - weight) * unlabeled.mean
    variance = weight * held_out.spread**2 + (1 - weight) * unlabeled.spread**2
    return Near(mean, variance**0.5, count + UNLABELED_WORTH)


def members_held_out(distances: Tensor) -> Near | None:
    """From held-out distances (H, N): Student's predictive distribution of another one."""
    nearest = distances.double().amin(-1)
    count = len(nearest)
    spread = float(nearest.std()) if count > 1 else 0.0
    if spread == 0:
        return None
    return Near(float(nearest.mean()), spread * (1 + 1 / count) ** 0.5, count - 1)


def members_unlabeled(
    refiner: nn.Module | None, steps: int, trial: Trial, space: Space
) -> Near | None:
    """From the near component of the unlabeled: each half measured from prototypes refined with the other.

    An example that contributed to a prototype lies nearer to it than a new one would.
    """
    halves = trial.unlabeled[::2], trial.unlabeled[1::2]
    if not len(halves[1]):
        return None
    distances = []
    for own, other in (halves, halves[::-1]):
        prototypes = refine_with(refiner, steps, space, other)(trial.support, trial.labels)
        distances.append(squared_distances(space(own), prototypes))
    both = torch.cat(distances).double()  # (U, N)
    mixture = fit(both)
    scale = float(mixture.scale)
    one = Near(float(mixture.near) * scale, float(mixture.variance) ** 0.5 * scale, len(both))
    return max(one, near_component(both), key=lambda members: members.mean + 2 * members.spread)


def near_component(distances: Tensor) -> Near:
    """(U, N): as in `refine.fitted_mask`, but members and distractors have different variances.

    This fits members that are more spread out than distractors; that one fits members that lie close
    together. Without labels to decide, the wider of the two is used.
    """
    z, second = distances.topk(min(2, distances.shape[1]), -1, largest=False).values.mT[[0, -1]]
    far = torch.cat([z, second])
    member = (z <= far.mean()).to(z)  # (U,)
    for _ in range(ITERATIONS):
        logits = []
        for values, weights in ((z, member), (far, torch.cat([1 - member, member]))):
            total = weights.sum().clamp_min(SMALLEST)
            mean = (weights * values).sum() / total
            variance = (weights * (values - mean).square()).sum() / total
            variance = variance.clamp_min(SMALLEST * z.mean().square() + SMALLEST**2)
            logits.append(-(z - mean).square() / (2 * variance) - variance.log() / 2)
            if len(logits) == 1:
                found = Near(float(mean), float(variance) ** 0.5, len(z))
        share = member.mean().clamp(SMALLEST, 1 - SMALLEST)
        member = torch.sigmoid(logits[0] - logits[1] + share.logit())
    return found
