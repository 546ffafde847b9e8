"""A pile whose neighbours are found once, and what labels and the pile teach the learned rule.

Letters: P rows, U of them without a label, S labeled, H held out, N classes, D features.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit

from semishot.estimator.answers import (
    Answer,
    Doubt,
    HeldOut,
    StrangerCount,
    count_strangers,
    cutoff_of,
    doubts,
    held_out_summary,
)
from semishot.estimator.labels import UNLABELED
from semishot.estimator.neighbours import find_near, neighbour_graph
from semishot.estimator.prototype_rule import PrototypeModel
from semishot.estimator.rule import RuleModel, answer_of, learned_rule
from semishot.estimator.spaces import Array, dense, fit_space, one_thread
from semishot.estimator.statistics import Known

ENOUGH_LABELS = 2
"""Labels of a class from which on they are asked whether names help."""
CLEARLY = 0.2
"""By how much more probable, as a mean logarithm, names must make held-out labels."""
SMALLEST = 1e-12


@dataclass(frozen=True)
class Learned:
    """What labels and a pile teach."""

    model: RuleModel | PrototypeModel
    pile: Array = field(repr=False)  # (U,), log-odds of strangers in the pile, ascending
    message: str  # how the pile was used, in words
    held_out: HeldOut | None
    doubts: list[Doubt] = field(default_factory=list)
    evidence: float = 0.0  # the mean log-probability of held-out labels

    @property
    def rule(self) -> RuleModel:
        """What tells strangers."""
        return self.model if isinstance(self.model, RuleModel) else self.model.rule

    @property
    def count(self) -> StrangerCount:
        """Of strangers in the pile."""
        return count_strangers(self.pile, self.rule.shared.doubt)

    def cutoff(self, reject: float | str | None) -> float | None:
        """The probability of a stranger above which rows are put out; None: where that is most probable."""
        if reject is None or isinstance(reject, str):
            return None
        return cutoff_of(expit(self.pile), reject)


class LabeledPile:
    """P rows whose neighbours are found once; what is learned depends on the current labels alone."""

    @one_thread()
    def __init__(self, features: Any, normalize: str = "auto", pile: Array | None = None) -> None:
        """Directions are seen from the mean of the pile's rows (P,): by default of all."""
        self.features = features
        pile = np.ones(features.shape[0], bool) if pile is None else pile
        self.space = fit_space(features, normalize, pile)
        self.graph = neighbour_graph(features, self.space)
        self.near = find_near(features, self.graph.rows, self.graph.same, self.space)

    @one_thread()
    def learn(
        self, labels: Array, weights: Array | None = None, names: Array | None = None
    ) -> tuple[Learned, Answer]:
        """(P,), 0 to N - 1, -1 in the pile, -2 for named strangers -> what is learned and what is said of
        these rows.

        Labels may have weights (P, N), zeros for a row without one, and classes names: rows of features
        (N, D), NaN for no name. Names of classes that have labels are left out unless held-out labels are
        clearly more probable with them all.
        """
        if weights is None:
            count = labels.max(initial=-1) + 1 if names is None else len(names)
            weights = (labels[:, None] == np.arange(count)).astype(np.float64)
        found = self._learn(labels, weights, names)
        counts = (weights > 0).sum(0)  # (N,)
        if names is None or counts.max() < ENOUGH_LABELS:
            return found
        others = np.where(counts[:, None] > 0, np.nan, names)
        without = self._learn(labels, weights, None if np.isnan(others).all() else others)
        return found if found[0].evidence > without[0].evidence + CLEARLY else without

    def _learn(self, labels: Array, weights: Array, names: Array | None) -> tuple[Learned, Answer]:
        """The same with these names."""
        unknown, special = labels == UNLABELED, np.flatnonzero(labels != UNLABELED)  # (P,), (S,)
        rows, space = dense(self.features[special]), self.space
        if names is not None:
            unnamed = np.isnan(names.sum(1, keepdims=True))
            names = np.where(unnamed, 0, space(np.nan_to_num(names)))
        places = self.near.take(special), space(rows), space.directions(rows)
        known = Known(self.graph, *places, weights[special], names)
        some = known.context
        sources = self.graph.sources[some]
        directions = space.directions(dense(self.features[sources]))
        beside = (self.graph.rows[some], directions, self.near.take(sources))
        context = known.reference.statistics(*beside)
        held_out, held = known.held_out()
        given, count = labels[special[held]], int(unknown.sum())  # (H,)
        numbers = known.of_pile(context, count)
        shared = learned_rule().summarize(numbers, context, held_out, given)
        model = RuleModel(space, known.reference, shared)
        answer, of_labels = model(self.features, self.near), answer_of(shared, held_out)
        summary = held_out_summary(of_labels.classes, given)
        right = of_labels.classes[np.arange(len(given)), given]
        learned = Learned(
            model,
            np.sort(answer.log_odds[unknown]),
            message_of(count, summary),
            summary,
            doubts(of_labels, special[held], given),
            float(np.log(np.maximum(right, SMALLEST)).sum() / max(len(given), 1)),
        )
        return learned, answer


def message_of(pile: int, held_out: HeldOut | None) -> str:
    """How the pile was used, and whether labels held out in turn are predicted right, in words."""
    used = f"{pile:,} unlabeled examples are used" if pile else "only labels are used"
    if held_out is None:
        return (
            f"{used}; one label per class leaves none to check with: a second makes cutoffs surer"
        )
    right = round(held_out.accuracy * held_out.examples)
    return f"{used}; {right} of {held_out.examples} labels are predicted right by the others"
