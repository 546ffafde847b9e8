"""Learn prototypes that a refiner has refined with the pile: the rule of the paper, without a graph.

Letters: P rows, U unlabeled ones, N classes, D features.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from semishot.estimator.blocks import Array, mean_direction, refined_in_blocks
from semishot.estimator.fitted import Fitted, summary
from semishot.estimator.held_out import (
    Trial,
    combined_members,
    judge,
    members_held_out,
    members_unlabeled,
)
from semishot.estimator.models import Answer, NearestPrototypes, read_in_blocks
from semishot.estimator.scaling import choose_space, temperature_of
from semishot.estimator.strangers import (
    Members,
    Strangers,
    count_strangers,
    stranger_probability,
    strangers_by,
)

SPREAD = 2.3
"""Of members' scores, in the unit in which the prior of strangers' scores is given."""
TRIAL = 1000
"""Of more unlabeled examples than this, trials use evenly spaced ones, at least this many."""


class Options(NamedTuple):
    refiner: nn.Module | None
    steps: int
    normalize: str
    temperature: float | None
    """None: chosen by held-out labels."""


def fit_prototypes(features: Array, labels: Array, named: Array, options: Options) -> Fitted:
    """Features (P, D), weights of labels (P, N), named strangers (P,): scale, try the pile, refine."""
    refiner, steps = options.refiner, options.steps
    weights = torch.from_numpy(np.asarray(labels, features.dtype))  # (P, N)
    labeled = labels.sum(1) > 0
    unlabeled = np.flatnonzero(~labeled & ~named)
    trial = trial_of(features, weights, np.flatnonzero(labeled), unlabeled)
    center = mean_direction(features)
    space = choose_space(
        trial.support, trial.labels, center, options.normalize, options.temperature
    )
    judgment = judge(refiner, steps, trial, space)
    used = None if judgment.helps is False else refiner
    kept = features[~named] if named.any() else features  # a memory map is not read whole
    prototypes = refined_in_blocks(used, kept, weights[torch.from_numpy(~named)], space, steps)
    near = combined_members(
        members_held_out(judgment.distances), members_unlabeled(used, steps, trial, space)
    )
    change = 1.0  # of the temperature, now that the prototypes are refined
    if options.temperature is None:
        change = temperature_of(prototypes, judgment.distances, judgment.classes)
    space = replace(space, length=space.length * change**0.5)
    model = NearestPrototypes(space, prototypes / change**0.5)  # (N, D)
    logits, scores = (each.numpy() for each in read_in_blocks(model, features))  # (P, N), (P,)
    probabilities = torch.from_numpy(logits).softmax(-1).numpy()
    answer = Answer(probabilities, scores.astype(np.float64), None)
    trials = (-judgment.distances / change).softmax(-1).double().numpy()  # (H, N)
    fitted = Fitted(
        model,
        None,
        None,
        None,
        answer,
        judgment.helps,
        judgment.message,
        summary(trials, judgment.classes.numpy()),
        [],
    )
    if near is None:
        return fitted
    members = Members(-near.mean / change, near.spread / change, near.freedom)
    second = np.sort(logits, 1)[:, -min(2, logits.shape[1])].astype(np.float64)  # (P,)
    return with_strangers(fitted, members, second, unlabeled, named)


def trial_of(features: Array, weights: Tensor, known: Array, unlabeled: Array) -> Trial:
    """Labeled rows and unlabeled ones, or some of these, for trials."""
    tried = unlabeled[:: max(1, len(unlabeled) // TRIAL)]
    one_hot = (weights[known] > 0).to(weights)
    return Trial(rows_of(features, known), one_hot, rows_of(features, tried))


def with_strangers(
    fitted: Fitted, members: Members, second: Array, unlabeled: Array, named: Array
) -> Fitted:
    """Second-best scores (P,), rows of the pile (U,), named strangers (P,): how probable strangers are.

    The prior of how strangers score holds for scores in which members have a given variance: scores are
    brought to that unit, and the result back.
    """
    unit = SPREAD / members.spread
    own = replace(members, mean=0.0, spread=SPREAD)
    scores = (fitted.answer.scores - members.mean) * unit  # (P,)
    second = (second - members.mean) * unit  # (P,)

    others = unlabeled if len(unlabeled) else np.flatnonzero(~named)
    others = others[:0] if fitted.answer.classes.shape[1] == 1 else others
    found = strangers_by(scores[unlabeled], second[others], own, scores[named])
    error = members.spread / (1 + members.freedom) ** 0.5
    strangers = Strangers(members.mean + found.mean / unit, found.variance / unit**2, found.share)
    stranger = stranger_probability(fitted.answer.scores, members, strangers)
    return replace(
        fitted,
        members=members,
        strangers=strangers,
        count=count_strangers(fitted.answer.scores[unlabeled], stranger[unlabeled], members, error),
        answer=fitted.answer._replace(stranger=stranger),
    )


def rows_of(features: Array, places: Array) -> Tensor:
    return torch.from_numpy(np.array(features[places]))
