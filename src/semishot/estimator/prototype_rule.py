"""The rule of the paper: prototypes that a refiner has refined with the pile, without a graph.

Held-out labels choose normalization and temperature, and tell whether the pile helps.
Letters: P rows, S labeled ones, H of them held out, U unlabeled ones, N classes, D features.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, log_softmax, logit, softmax

from semishot.errors import InputError
from semishot.estimator import constants as const
from semishot.estimator import models
from semishot.estimator.spaces import (
    NORMALIZATIONS,
    Array,
    Space,
    mean_direction,
    squared_distances,
)
from semishot.estimator.strangers import (
    Members,
    Strangers,
    count_strangers,
    stranger_probability,
    strangers_by,
)

AnyRefiner = Callable[..., Any]
"""A method of `semishot.refine`, built: a torch module without learned parameters, or a trained one."""


@dataclass(frozen=True)
class Trial:
    """Labeled examples and a pile, or a part of them, and what makes prototypes of them."""

    support: Array  # (S, D), raw features
    labels: Array  # (S, N), weights
    pile: Array  # (U, D), raw features
    space: Space
    refiner: AnyRefiner | None = None
    steps: int = 1

    def prototypes(self) -> Array:
        """(N, D), in the space."""
        space, labels, refiner = self.space, self.labels, self.refiner
        known = space(self.support)
        prototypes = space.settle(mean_of(known, labels))  # Eq. 1
        if refiner is None or not len(self.pile):
            return prototypes
        import torch

        refiner = refiner.to(torch.from_numpy(known[:0])) if hasattr(refiner, "to") else refiner
        rows = np.concatenate([known, space(self.pile)])
        support_too = getattr(refiner, "needs_support", False)
        for _ in range(self.steps):
            arrays = [rows[len(known) :], prototypes, *([known, labels] if support_too else [])]
            with torch.no_grad():
                weights = refiner(*(torch.from_numpy(each) for each in arrays)).numpy()  # (U, N)
            prototypes = space.settle(mean_of(rows, np.concatenate([labels, weights])))  # Eqs. 4, 9
        return prototypes


class PileTrial(NamedTuple):
    """Whether the pile helps, and the held-out distances with or without it, as used."""

    helps: bool | None  # none: no example could be held out, or none was unlabeled
    message: str
    distances: Array  # (H, N)
    classes: Array  # (H,)


class Near(NamedTuple):
    """How far members of a class lie from its prototype: Student's distribution of squared distances."""

    mean: float
    spread: float
    freedom: float


def learn_prototypes(
    features: Array,
    labels: Array,
    named: Array,
    refiner: AnyRefiner | None,
    steps: int,
    normalize: str,
    temperature: float | None,
) -> models.Learned:
    """Features (P, D), weights of labels (P, N), named strangers (P,): scale, try the pile, refine."""
    labeled = labels.sum(1) > 0
    unlabeled = np.flatnonzero(~labeled & ~named)
    if refiner is not None and len(unlabeled) * features.shape[1] > const.MOST_NUMBERS:
        raise InputError(
            "this refiner needs the features of all unlabeled examples at once, at most "
            f"{const.MOST_NUMBERS // features.shape[1]:,} of {features.shape[1]:,} numbers, not "
            f"{len(unlabeled):,}: give fewer, or choose 'graph', which works in blocks"
        )
    support, weights = features[labeled], labels[labeled].astype(features.dtype)
    one_hot = (weights > 0).astype(features.dtype)
    some = features[unlabeled[:: max(1, len(unlabeled) // const.TRIAL)]]
    space = choose_space(support, one_hot, mean_direction(features), normalize, temperature)
    trial = Trial(support, one_hot, some, space, refiner, steps)
    tried = try_pile(trial)
    trial = replace(trial, refiner=None if tried.helps is False else refiner)
    pile = features[unlabeled] if trial.refiner is not None else features[:0]
    prototypes = replace(trial, labels=weights, pile=pile).prototypes()
    near = combined_members(members_held_out(tried.distances), members_in_pile(trial))
    change = 1.0  # of the temperature, now that the prototypes are refined
    if temperature is None:
        change = temperature_of(prototypes, tried.distances, tried.classes)
    space = replace(space, length=space.length * change**0.5)
    model = models.PrototypeModel(
        space, (prototypes / change**0.5).astype(features.dtype)
    )  # (N, D)
    logits, scores = models.predict_in_blocks(model, features)  # (P, N), (P,)
    trials = softmax(-tried.distances.astype(np.float64) / change, 1)  # (H, N)
    learned = models.Learned(
        model,
        None,
        None,
        None,
        tried.helps,
        tried.message,
        models.held_out_summary(trials, tried.classes),
    )
    answer = models.Answer(softmax(logits, 1), scores.astype(np.float64), None)
    if near is None:
        return replace(learned, answer=answer)
    members = Members(-near.mean / change, near.spread / change, near.freedom)
    second = np.sort(logits, 1)[:, -min(2, logits.shape[1])].astype(np.float64)  # (P,)
    return with_strangers(learned, answer, members, second, unlabeled, named)


def with_strangers(
    learned: models.Learned,
    answer: models.Answer,
    members: Members,
    second: Array,
    unlabeled: Array,
    named: Array,
) -> models.Learned:
    """Second-best scores (P,), rows of the pile (U,), named strangers (P,): how probable strangers are, in
    the unit for which the prior of how strangers score holds, and back."""
    unit = const.MEMBER_SPREAD / members.spread
    own = replace(members, mean=0.0, spread=const.MEMBER_SPREAD)
    scores = (answer.scores - members.mean) * unit  # (P,)
    second = (second - members.mean) * unit  # (P,)
    others = unlabeled if len(unlabeled) else np.flatnonzero(~named)
    others = others[:0] if answer.classes.shape[1] == 1 else others
    in_unit = strangers_by(scores[unlabeled], second[others], own, scores[named])
    mean, variance = members.mean + in_unit.mean / unit, in_unit.variance / unit**2
    strangers = Strangers(mean, variance, in_unit.share)
    stranger = stranger_probability(answer.scores, members, strangers)
    own_scores, error = answer.scores[unlabeled], members.spread / (1 + members.freedom) ** 0.5
    return replace(
        learned,
        members=members,
        strangers=strangers,
        count=count_strangers(own_scores, stranger[unlabeled], members, error),
        answer=answer._replace(stranger=stranger),
    )


def mean_of(rows: Array, weights: Array) -> Array:
    """Eq. 1: (S, D), (S, N) -> (N, D), the weighted mean of each class, zeros for a class of no weight."""
    total = weights.sum(0)[:, None]
    mean: Array = weights.T @ rows / np.where(total == 0, 1, total)
    return mean


# Normalization and temperature


def held_out_distances(trial: Trial) -> tuple[Array, Array]:
    """Distances (H, N) of labeled examples to prototypes made without them, and their classes (H,). The i-th
    of each class is left out in fold i, so that none is at a disadvantage. A class of one keeps it."""
    support, labels = trial.support, trial.labels
    sizes = labels.sum(0)  # (N,)
    rank = (labels.cumsum(0) * labels).sum(-1) - 1  # (S,), the example's rank in its class
    fold = rank % min(const.FOLDS, int(sizes.max()))
    fold[labels @ sizes == 1] = -1
    distances, classes = [np.empty((0, labels.shape[1]), support.dtype)], [np.empty(0, int)]
    for number in np.unique(fold[fold >= 0]):
        out = fold == number
        made = replace(trial, support=support[~out], labels=labels[~out]).prototypes()  # (N, D)
        distances.append(squared_distances(trial.space(support[out]), made))
        classes.append(labels[out].argmax(-1))
    return np.concatenate(distances), np.concatenate(classes)


def held_out_loss(distances: Array, classes: Array, temperature: float) -> float:
    """(H, N), (H,) -> the negative log-probability of all held-out examples together."""
    logits = -distances.astype(np.float64) / temperature
    return -float(log_softmax(logits, 1)[np.arange(len(classes)), classes].sum())


def temperature_of(prototypes: Array, distances: Array, classes: Array) -> float:
    """The temperature of Eq. 2's softmax: a share of the mean squared distance between prototypes, moved to
    where held-out examples are most probable, given a normal prior for its logarithm."""
    count = len(prototypes)
    between = float(squared_distances(prototypes, prototypes).sum()) / max(1, count * (count - 1))
    if between == 0:  # one class, or all equal: any temperature will do
        return 1.0
    rule = const.TEMPERATURE_SHARE * between
    moves = np.linspace(-3, 3, 121)  # of the logarithm
    losses = [held_out_loss(distances, classes, rule * float(np.exp(move))) for move in moves]
    best = (losses + (moves / const.TEMPERATURE_SPREAD) ** 2 / 2).argmin()
    return rule * float(np.exp(moves[best]))


def choose_space(
    support: Array, labels: Array, center: Array, normalize: str, temperature: float | None
) -> Space:
    """The normalization whose supervised prototypes do best on held-out examples, with its length. If a class
    has one example, which cannot be held out, many features are centered and few are left unchanged."""
    names = list(NORMALIZATIONS) if normalize == "auto" else [normalize]
    if normalize == "auto" and labels.sum(0).min() == 1:
        names = ["centered" if support.shape[1] >= const.MANY_FEATURES else "none"]
    choices = []
    for name in names:
        trial = Trial(support, labels, support[:0], Space(name, center))
        distances, classes = held_out_distances(trial)
        t = temperature or temperature_of(trial.prototypes(), distances, classes)
        choices.append((held_out_loss(distances, classes, t), replace(trial.space, length=t**0.5)))
    return min(choices, key=lambda choice: choice[0])[1]


# Does the pile help, and how far do members lie?


def try_pile(trial: Trial) -> PileTrial:
    """Compare held-out labeled examples with and without the unlabeled ones; keep the better one."""
    alone = held_out_distances(replace(trial, refiner=None))
    if trial.refiner is None or not len(trial.pile):
        reason = "no unlabeled examples" if trial.refiner is not None else "no refiner"
        return PileTrial(None, f"{reason}: supervised prototypes", *alone)
    distances, classes = held_out_distances(trial)
    if not len(classes):
        return PileTrial(None, models.NOTHING_TELLS, distances, classes)
    t = temperature_of(trial.prototypes(), distances, classes)
    gain = held_out_loss(*alone, 1.0) - held_out_loss(distances, classes, t)
    helps = gain > -const.HARM_PER_SHOT * trial.labels.shape[1] / len(trial.labels)
    with_pile, by_labels = (int((d.argmin(-1) == classes).sum()) for d in (distances, alone[0]))
    message = models.pile_verdict(len(classes), with_pile, by_labels, gain, helps)
    return PileTrial(helps, message, *((distances, classes) if helps else alone))


def combined_members(held_out: Near | None, from_pile: Near | None) -> Near | None:
    """Combine both estimates, weighted by how many distances each counts as."""
    if held_out is None or from_pile is None:
        return held_out or from_pile
    count = held_out.freedom + 1
    weight = count / (count + const.PILE_WORTH)
    mean = weight * held_out.mean + (1 - weight) * from_pile.mean
    variance = weight * held_out.spread**2 + (1 - weight) * from_pile.spread**2
    return Near(mean, variance**0.5, count + const.PILE_WORTH)


def members_held_out(distances: Array) -> Near | None:
    """From held-out distances (H, N): Student's predictive distribution of another one."""
    nearest = distances.astype(np.float64).min(-1)
    count = len(nearest)
    spread = float(nearest.std(ddof=1)) if count > 1 else 0.0
    if spread == 0:
        return None
    return Near(float(nearest.mean()), spread * (1 + 1 / count) ** 0.5, count - 1)


def members_in_pile(trial: Trial) -> Near | None:
    """From the near component of the pile: each half measured from prototypes refined with the other. Of two
    mixtures the wider one is used: members lie close together, or more spread out than strangers."""
    halves = trial.pile[::2], trial.pile[1::2]
    if not len(halves[1]):
        return None
    distances = []
    for own, other in (halves, halves[::-1]):
        prototypes = replace(trial, pile=other).prototypes()
        distances.append(squared_distances(trial.space(own), prototypes))
    ordered = np.sort(np.concatenate(distances).astype(np.float64), 1)  # (U, N)
    z, second = ordered[:, 0], ordered[:, 1:2].ravel()
    fits = close_members(z, second), spread_members(z, second if len(second) else z)
    return max(fits, key=lambda near: near.mean + 2 * near.spread)


def close_members(z: Array, second: Array) -> Near:
    """Distances to the nearest prototypes (U,) and to the second-nearest: two normal distributions of one
    variance, members near and strangers far, by expectation-maximization as in `refine.fitted_mask`."""
    scale = z.mean() or 1.0
    z, second = (np.minimum(each / scale, const.MIXTURE_MOST) for each in (z, second))
    both, anchors = np.concatenate([z, second]), np.full(len(second), const.MIXTURE_ANCHOR)
    member = (z <= both.mean() + const.MIXTURE_LEAST).astype(np.float64)  # (U,)
    for _ in range(const.MIXTURE_ROUNDS):
        stranger = np.concatenate([1 - member, anchors])
        near, near_squares = _mean_and_squares(z, member)
        far, far_squares = _mean_and_squares(both, stranger)
        far = max(near, far)
        total = member.sum() + stranger.sum()
        variance = max((near_squares + far_squares) / total, const.MIXTURE_LEAST)
        odds = logit(member.mean().clip(const.MIXTURE_LEAST, 1 - const.MIXTURE_LEAST))
        slope = (far - near) / variance
        member = expit(odds + (far + near) / 2 * slope - slope * z)  # Eq. 9
    return Near(float(near * scale), float(variance**0.5 * scale), len(z))


def spread_members(z: Array, second: Array) -> Near:
    """The same, but members and strangers have variances of their own."""
    far = np.concatenate([z, second])
    least = const.MIXTURE_LEAST * z.mean() ** 2 + const.MIXTURE_LEAST**2
    member = (z <= far.mean()).astype(np.float64)  # (U,)
    for _ in range(const.MIXTURE_ROUNDS):
        logits, fits = [], []
        for values, weights in ((z, member), (far, np.concatenate([1 - member, member]))):
            mean, squares = _mean_and_squares(values, weights)
            variance = max(squares / max(weights.sum(), const.MIXTURE_LEAST), least)
            logits.append(-((z - mean) ** 2) / (2 * variance) - np.log(variance) / 2)
            fits.append(Near(float(mean), float(variance**0.5), len(z)))
        share = member.mean().clip(const.MIXTURE_LEAST, 1 - const.MIXTURE_LEAST)
        member = expit(logits[0] - logits[1] + logit(share))
    return fits[0]


def _mean_and_squares(values: Array, weights: Array) -> tuple[float, float]:
    """The weighted mean, and the weighted sum of squares around it."""
    mean = weights @ values / max(weights.sum(), const.MIXTURE_LEAST)
    return float(mean), float(weights @ (values - mean) ** 2)
