"""Does the pile help, and how far do members of the classes lie? Judged by what was held out.

Letters: S labeled examples, H of them held out, U unlabeled ones, N classes, D features.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import stdtr
from torch import Tensor, nn

from semishot.estimator.blocks import Space, refined_in_blocks
from semishot.estimator.scaling import Prototypes, held_out, held_out_loss, temperature_of
from semishot.prototypes import squared_distances
from semishot.refine.fitted_mask import ITERATIONS, SMALLEST, fit

PILE_WORTH = 10
"""Held-out distances that the pile's own estimate of how far members lie is worth: with two labels per
class those alone are too few, and lie too far, since the prototype of one label is a poor one."""
HARM = 4.0
"""Held-out log-probability, times labels per class, that the pile may cost before it is left out: the
fewer the labels, the more the pile is expected to help."""


class Task(NamedTuple):
    """Raw features, (S, D), one-hot (S, N) and (U, D): the labeled ones and a pile to try."""

    support: Tensor
    labels: Tensor
    pile: Tensor


class Judgment(NamedTuple):
    """Whether the pile helps (None: nothing to tell by), in words, and the held-out distances."""

    helps: bool | None
    words: str
    distances: Tensor  # (H, N)
    classes: Tensor  # (H,)


@dataclass(frozen=True)
class Members:
    """How far members of the classes lie from their prototypes: Student's distribution."""

    mean: float
    spread: float
    freedom: float

    def share_nearer(self, distances: NDArray[np.float64]) -> NDArray[np.float64]:
        """The share of members that lie nearer than this."""
        share: NDArray[np.float64] = stdtr(self.freedom, (distances - self.mean) / self.spread)
        return share

    def over(self, scale: float) -> "Members":
        """The same, of squared distances over this."""
        return Members(self.mean / scale, self.spread / scale, self.freedom)


def maker(refiner: nn.Module | None, steps: int, space: Space, pile: Tensor) -> Prototypes:
    """Support and labels -> prototypes refined by this pile."""

    def made(support: Tensor, labels: Tensor) -> Tensor:
        examples = torch.cat([support, pile]).numpy()
        known = torch.cat([labels, labels.new_zeros(len(pile), labels.shape[1])])
        return refined_in_blocks(refiner, examples, known, space, steps)

    return made


def judge(refiner: nn.Module | None, steps: int, task: Task, space: Space) -> Judgment:
    """Held-out labeled examples with the pile and without it; the better of the two goes on."""
    alone = held_out(task.support, task.labels, space, maker(None, steps, space, task.pile[:0]))
    if refiner is None or not len(task.pile):
        said = "no unlabeled examples" if refiner is not None else "no refiner"
        return Judgment(None, f"{said}: supervised prototypes", *alone)
    refined = maker(refiner, steps, space, task.pile)
    distances, classes = held_out(task.support, task.labels, space, refined)
    if not len(classes):
        said = "every class has one example, so nothing tells whether the pile helps; it is used"
        return Judgment(None, said, distances, classes)
    t = temperature_of(refined(task.support, task.labels), distances, classes)
    gain = float(held_out_loss(*alone, 1.0) - held_out_loss(distances, classes, t))
    helps = gain > -HARM * task.labels.shape[1] / len(task.labels)
    right = [int((d.argmin(-1) == classes).sum()) for d in (alone[0], distances)]
    said = f"of {len(classes)} held-out labeled examples {right[1]} are right with the pile and "
    said += f"{right[0]} without it, log-probability {gain:+.2f}: "
    said += "the pile is used" if helps else "the pile does not help, supervised prototypes"
    return Judgment(helps, said, *((distances, classes) if helps else alone))


def members_by(held: Members | None, pile: Members | None) -> Members | None:
    """Both estimates in one, each weighted by the distances it is worth."""
    if held is None or pile is None:
        return held or pile
    weight = (held.freedom + 1) / (held.freedom + 1 + PILE_WORTH)
    mean = weight * held.mean + (1 - weight) * pile.mean
    variance = weight * held.spread**2 + (1 - weight) * pile.spread**2
    return Members(mean, variance**0.5, held.freedom + 1 + PILE_WORTH)


def members_held_out(distances: Tensor) -> Members | None:
    """From held-out distances (H, N): Student's prediction of one more."""
    nearest = distances.double().amin(-1)
    count = len(nearest)
    spread = float(nearest.std()) if count > 1 else 0.0
    if spread == 0:
        return None
    return Members(float(nearest.mean()), spread * (1 + 1 / count) ** 0.5, count - 1)


def members_in_pile(
    refiner: nn.Module | None, steps: int, task: Task, space: Space
) -> Members | None:
    """From the pile's near component: each half is measured by prototypes refined with the other.

    An example that has taken part in a prototype lies nearer to it than a new one would.
    """
    halves = task.pile[::2], task.pile[1::2]
    if not len(halves[1]):
        return None
    distances = []
    for own, other in (halves, halves[::-1]):
        prototypes = maker(refiner, steps, space, other)(task.support, task.labels)
        distances.append(squared_distances(space(own), prototypes))
    both = torch.cat(distances).double()  # (U, N)
    mixture = fit(both)
    scale = float(mixture.scale)
    one = Members(float(mixture.near) * scale, float(mixture.variance) ** 0.5 * scale, len(both))
    return max(one, near_component(both), key=lambda members: members.mean + 2 * members.spread)


def near_component(distances: Tensor) -> Members:
    """(U, N): as in `refine.fitted_mask`, but members and strangers differ in their variances.

    Members that are spread out more than strangers fit here; members of a tight kind fit there. Whoever
    needs to know how far members lie, and has no labels to tell, takes the wider of the two.
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
                found = Members(float(mean), float(variance) ** 0.5, len(z))
        share = member.mean().clamp(SMALLEST, 1 - SMALLEST)
        member = torch.sigmoid(logits[0] - logits[1] + share.logit())
    return found
