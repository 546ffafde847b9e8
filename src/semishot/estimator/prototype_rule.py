"""The rule of the paper: prototypes that a refiner has refined with the pile, without a graph.

Letters: P rows, S labeled ones, H of them held out, U unlabeled ones, N classes, D features.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, logit, softmax

from semishot.estimator import constants as const
from semishot.estimator import models
from semishot.estimator.spaces import Array, Space, squared_distances
from semishot.estimator.strangers import (
    MemberPrior,
    count_strangers,
    members_by,
    stranger_probability,
    strangers_by,
)

AnyRefiner = Callable[..., Any]
"""A method of `semishot.refine`, built: a torch module without learned parameters, or a trained one."""


@dataclass(frozen=True)
class Trial:
    """Labeled rows and a pile, or a part of them, and what makes prototypes of them."""

    space: Space
    support: Array  # (S, D), in the space
    labels: Array  # (S, N), weights
    pile: Array  # (U, D), in the space
    refiner: AnyRefiner | None = None
    steps: int = 1

    def prototypes(self) -> Array:
        """(N, D), in the space."""
        support, labels, refiner = self.support, self.labels, self.refiner
        prototypes = self.space.settle(mean_of(support, labels))  # Eq. 1
        if refiner is None or not len(self.pile):
            return prototypes
        import torch

        if hasattr(refiner, "to"):
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
        fold = np.where(given @ sizes > 1, rank % min(const.FOLDS, sizes.max()), -1)
        logits, classes = [np.empty((0, len(sizes)))], [np.empty(0, int)]
        for number in range(fold.max() + 1):
            out = fold == number
            kept = replace(self, support=self.support[~out], labels=self.labels[~out])
            logits.append(-squared_distances(self.support[out], kept.prototypes()))
            classes.append(given[out].argmax(1))
        return np.concatenate(logits), np.concatenate(classes)


def learn_prototypes(
    features: Array,
    labels: Array,
    named: Array,
    refiner: AnyRefiner | None,
    steps: int,
    space: Space,
    temperature: float | None,
) -> models.Learned:
    """Features (P, D), weights of labels (P, N), named strangers (P,). A temperature of None is chosen by
    the labels alone, before anything is refined."""
    labeled = labels.sum(1) > 0
    unlabeled = np.flatnonzero(~labeled & ~named)
    weights = labels[labeled].astype(features.dtype)
    if temperature is None:
        rows = space(features[labeled])
        temperature = temperature_of(Trial(space, rows, weights, rows[:0]))
    space = Space(space.normalization, space.center, temperature**0.5)
    rows, pile = space(features[labeled]), features[unlabeled]
    some = space(pile[:: max(1, len(pile) // const.TRIAL)])
    trial = Trial(space, rows, weights, some, refiner, steps)
    reason = "no refiner" if refiner is None else "no unlabeled examples"
    refined, message = trial, f"{reason}: supervised prototypes"
    if refiner is not None and len(pile):
        refined, message = replace(trial, pile=space(pile)), "prototypes refined with the pile"
    model = models.PrototypeModel(space, refined.prototypes().astype(features.dtype))
    logits, scores = models.predict_in_blocks(model, features)  # (P, N), (P,)
    held_out, classes = trial.held_out()
    summary = models.held_out_summary(softmax(held_out, 1), classes)
    unknown = np.full(len(scores), np.nan)
    answer = models.Answer(softmax(logits, 1), scores.astype(np.float64), unknown)
    learned = models.Learned(model, None, None, None, None, message, summary, [], answer)
    prior = members_in_pile(trial)
    if prior is None and len(held_out):
        prior = member_prior(held_out.max(1), np.ones(len(held_out)))
    if prior is None:
        return learned
    members = members_by(held_out.max(1), prior)
    second = np.sort(logits, 1)[:, -min(2, logits.shape[1])].astype(np.float64)  # (P,)
    others = unlabeled if len(unlabeled) else np.flatnonzero(~named)
    others = others if logits.shape[1] > 1 else others[:0]
    expected = const.STRANGER_VARIANCE * (members.spread / const.MEMBER_SPREAD) ** 2
    strangers = strangers_by(
        answer.scores[unlabeled], second[others], members, answer.scores[named], expected
    )
    stranger = stranger_probability(answer.scores, members, strangers)
    error = members.spread / (1 + prior.worth + len(held_out)) ** 0.5
    return replace(
        learned,
        members=members,
        strangers=strangers,
        count=count_strangers(answer.scores[unlabeled], stranger[unlabeled], members, error),
        answer=answer._replace(stranger=stranger),
    )


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
    choices = const.TEMPERATURE_SHARE * between * const.MOVES
    moved = (np.log(const.MOVES) / const.TEMPERATURE_SPREAD) ** 2 / 2
    losses = [models.loss_of(logits / choice, classes) for choice in choices]
    return float(choices[(losses + moved).argmin()])


def members_in_pile(trial: Trial) -> MemberPrior | None:
    """How members of the pile score: the nearer part of a mixture of two normal distributions, fitted by
    expectation-maximization. Each half of the pile is scored by prototypes refined with the other. Scores
    of second-best classes count as those of strangers."""
    halves = trial.pile[::2], trial.pile[1::2]
    if not len(halves[1]):
        return None
    logits = [
        -squared_distances(own, replace(trial, pile=other).prototypes())
        for own, other in (halves, halves[::-1])
    ]
    ordered = np.sort(np.concatenate(logits).astype(np.float64), 1)[:, ::-1]  # (U, N)
    best, both = ordered[:, 0], ordered[:, :2].T.ravel()
    member = (best >= both.mean()).astype(np.float64)  # (U,)
    for _ in range(const.EM_ROUNDS):
        near = member_prior(best, member)
        far = member_prior(both, np.concatenate([1 - member, member])[: len(both)])
        log_densities = [
            -((best - each.mean) ** 2) / (2 * each.variance) - np.log(each.variance) / 2
            for each in (near, far)
        ]
        share = member.mean().clip(const.TINY, 1 - const.TINY)
        member = expit(log_densities[0] - log_densities[1] + logit(share))
    return near


def member_prior(scores: Array, weights: Array) -> MemberPrior:
    """The weighted mean and variance of scores (U,), positive even where all are equal."""
    total = max(weights.sum(), const.TINY)
    mean = float(weights @ scores / total)
    least = const.TINY * (float((scores**2).mean()) + const.TINY)
    variance = max(float(weights @ (scores - mean) ** 2 / total), least)
    return MemberPrior(mean, variance, const.PILE_WORTH)
