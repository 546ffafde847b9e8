"""Answers -> what the model says of every image of the pile: the one place that knows the estimator.

Letters: P rows of the pile, N classes, D features.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Doubtful", "Judge", "Judgement"]

UNLABELED, NAMED_STRANGER = -1, -2
REJECTS = np.concatenate([[0.001], np.geomspace(0.002, 0.5, 60)]).round(4)
"""The stops of the slider: shares of true members that may be taken for strangers."""
SURE = 0.6
"""How probable another class must be for a label to be doubted."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Doubtful:
    """A label that the other labels contradict."""

    row: int
    suggested: int
    """A class; -2 for none of them."""
    probability: float


@dataclass(frozen=True)
class Judgement:
    classes: Array
    """(P, N) probabilities, if the row belongs to one of the classes."""
    scores: Array
    """(P,), high for members."""
    stranger: Array
    """(P,), the probability of a stranger."""
    cutoffs: Array
    """For each of REJECTS, the score below which rows are taken for strangers."""
    doubtful: list[Doubtful]


class Judge:
    """A pile whose neighbours are found once, and judged anew for each set of labels."""

    def __init__(self, features: Array) -> None:
        self.features = features

    def learn(self, labels: Array) -> Judgement:
        """(P,) of 0..N-1, -1 for the pile, -2 for named strangers -> what follows for all P rows."""
        from strangers.rule import learn_and_read  # type: ignore[import-not-found]
        from strangers.scores import cutoff  # type: ignore[import-not-found]

        model, answer = learn_and_read(self.features, labels)
        cutoffs = np.array([cutoff(model.members, reject) for reject in REJECTS])
        return Judgement(answer.classes, answer.scores, answer.stranger, cutoffs, [])
