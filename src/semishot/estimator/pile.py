"""A pile whose neighbours are found once, and what the learned rule says of it for the current labels.

Letters: P rows, C rows at once, S labeled, N classes, D features.
"""

from typing import Any

import numpy as np
from scipy.special import softmax

from semishot.estimator.answers import (
    Answer,
    count_strangers,
    doubts,
    held_out_summary,
)
from semishot.estimator.labels import NAMED_STRANGER
from semishot.estimator.models import Learned, RuleModel
from semishot.estimator.neighbours import Near, find_near, neighbour_graph
from semishot.estimator.rule import learned_rule
from semishot.estimator.spaces import Array, blocks, dense, fit_space, one_thread
from semishot.estimator.statistics import Known, Support

ENOUGH_LABELS = 2
"""Labels of a class from which on they are asked whether its name helps."""
CLEARLY = 0.1
"""By how much more probable, as a mean logarithm, names must make held-out labels."""
SMALLEST = 1e-12


class LabeledPile:
    """P rows whose neighbours are found once; what is learned depends on the current labels alone."""

    @one_thread()
    def __init__(self, features: Any, normalize: str = "auto", pile: Array | None = None) -> None:
        """Directions are seen from the mean of the pile's rows (P,): by default of all."""
        self.features = features
        pile = np.ones(features.shape[0], bool) if pile is None else pile
        self.space = fit_space(features, normalize, pile)
        self.graph = neighbour_graph(features, self.space)
        parts = [
            find_near(self.space(block), self.graph.rows, self.graph.same)
            for _, block in blocks(features)
        ]
        self.near = Near(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    @one_thread()
    def learn(
        self, labels: Array, weights: Array | None = None, names: Array | None = None
    ) -> Learned:
        """(P,), 0 to N - 1, -1 in the pile, -2 for named strangers -> what is learned.

        Labels may have weights (P, N), and classes names: rows of features (N, D), NaN for no name. Names of
        classes that have labels are left out unless held-out labels are clearly more probable with them.
        """
        if weights is None:
            count = labels.max(initial=-1) + 1 if names is None else len(names)
            weights = (labels[:, None] == np.arange(count)).astype(np.float64)
        learned = self._learn(labels, weights, names)
        labeled = (weights > 0).sum(0) >= ENOUGH_LABELS  # (N,)
        if names is None or not labeled.any():
            return learned
        others = np.where(labeled[:, None], np.nan, names)
        without = self._learn(labels, weights, None if np.isnan(others).all() else others)
        return learned if learned.evidence > without.evidence + CLEARLY else without

    def _learn(self, labels: Array, weights: Array, names: Array | None) -> Learned:
        """The same with these names."""
        special = np.flatnonzero((labels == NAMED_STRANGER) | (weights.sum(1) > 0))  # (S,)
        rows = dense(self.features[special])
        named = labels[special] == NAMED_STRANGER
        support = Support(
            *(self.near.take(special), self.space(rows), self.space.directions(rows)),
            *(weights[special] * ~named[:, None], named),
        )
        placed = None
        if names is not None:
            unnamed = np.isnan(names.sum(1, keepdims=True))
            placed = np.where(unnamed, 0, self.space(np.nan_to_num(names)))
        known = Known(self.graph, support, placed)
        own = dense(self.features[self.graph.sources])
        context = known.context(
            known.reference.statistics(
                self.graph.rows, self.space.directions(own), self.near.take(self.graph.sources)
            )
        )
        unknown = np.ones(len(self.near.copy), bool)
        unknown[special] = False
        held_out, held = known.held_out()
        given = weights[special[held]].argmax(1)
        rule = learned_rule()
        numbers = known.of_pile(context, int(unknown.sum()))
        shared = rule.summarize(numbers, context, held_out, given)
        model = RuleModel(self.space, known.reference, shared)
        answers = [
            model(block, near=self.near.take(part)) for part, block in blocks(self.features, 4000)
        ]
        answer = Answer(*(np.concatenate(each) for each in zip(*answers, strict=True)))
        logits, log_odds = rule.logits(shared, held_out)
        of_labels = Answer(softmax(logits.astype(np.float64), 1), log_odds.astype(np.float64))
        pile = answer.take(unknown)
        return Learned(
            model,
            count_strangers(pile.log_odds, shared.doubt),
            np.sort(pile.stranger),
            message_of(int(unknown.sum()), given, of_labels),
            held_out_summary(of_labels.classes, given),
            doubts(of_labels, special[held], given),
            answer,
            evidence_of(of_labels, given),
        )


def evidence_of(of_labels: Answer, given: Array) -> float:
    """The mean log-probability of the classes of held-out labels (H,)."""
    right = of_labels.classes[np.arange(len(given)), given]
    return float(np.log(np.maximum(right, SMALLEST)).sum() / max(len(given), 1))


def message_of(pile: int, given: Array, of_labels: Answer) -> str:
    """How the pile was used, and whether labels held out in turn are predicted right, in words."""
    used = (
        f"{pile:,} unlabeled examples are used" if pile else "no unlabeled examples: labels alone"
    )
    if not len(given):
        return f"{used}; one label per class: nothing could be held out as a check, so cutoffs are wide"
    right = int((of_labels.classes.argmax(1) == given).sum())
    return f"{used}; {right} of {len(given)} labels are predicted right by the others"
