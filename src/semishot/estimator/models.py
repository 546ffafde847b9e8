"""What fitting learns: a model that answers for any rows, and what it says of the rows that were fitted.

Letters: P rows, U of them without a label, C rows at once, N classes, D features.
"""

from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct
from scipy.special import softmax

from semishot.estimator.answers import Answer, Doubt, HeldOut, StrangerCount, cutoff_of
from semishot.estimator.neighbours import Near
from semishot.estimator.rule import PileTerms, learned_rule
from semishot.estimator.spaces import Array, Normalized, Space, squared_distances, unit
from semishot.estimator.statistics import Reference


class RuleModel(Struct, frozen=True, tag=True):
    """The learned rule beside a pile: answers for any rows."""

    space: Space
    reference: Reference
    shared: PileTerms

    @property
    def classes(self) -> int:
        count: int = self.reference.labels.shape[1]
        return count

    @property
    def prototypes(self) -> Array:
        """(N, D), of the labels and of what the pile adds to them, unit length."""
        return unit(self.reference.sums[2])

    def __call__(self, features: Array, x: Array | None = None, near: Near | None = None) -> Answer:
        """(C, D) -> what is said of these rows. Their place in the space and neighbours may be known."""
        x = self.space(features) if x is None else x
        near = self.reference.near(x) if near is None else near
        seen = self.reference.statistics(x, self.space.directions(features), near)
        logits, log_odds = learned_rule().logits(self.shared, seen)
        return Answer(softmax(logits.astype(np.float64), 1), log_odds.astype(np.float64))


class PrototypeModel(Struct, frozen=True, tag=True):
    """Classes by minus the squared distances to prototypes (Eq. 2), strangers by the learned rule."""

    space: Normalized
    prototypes: Array  # (N, D), in the space
    rule: RuleModel

    @property
    def classes(self) -> int:
        return len(self.prototypes)

    @property
    def temperature(self) -> float:
        """What squared distances to prototypes are divided by in the logits."""
        return self.space.length**2

    def logits(self, features: Array) -> Array:
        """(C, D) -> (C, N)."""
        return -squared_distances(self.space(features), self.prototypes)

    def __call__(self, features: Array) -> Answer:
        """(C, D) -> what is said of these rows."""
        return self.rule(features)._replace(classes=softmax(self.logits(features), 1))


AnyModel = RuleModel | PrototypeModel


@dataclass(frozen=True)
class Learned:
    """What labels and a pile teach."""

    model: AnyModel
    count: StrangerCount  # of strangers in the pile
    pile_strangers: Array = field(repr=False)  # (U,), their probabilities in the pile, ascending
    message: str  # how the pile was used, in words
    held_out: HeldOut | None
    doubts: list[Doubt] = field(default_factory=list)
    answer: Answer | None = None  # for the rows that were fitted. None for a saved model
    evidence: float = 0.0  # the mean log-probability of held-out labels

    def cutoff(self, reject: float | str | None) -> float | None:
        """The probability of a stranger above which rows are put out; None: where that is most probable."""
        if reject is None or isinstance(reject, str):
            return None
        return cutoff_of(self.pile_strangers, reject)
