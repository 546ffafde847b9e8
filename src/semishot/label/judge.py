"""Answers -> what the model says of every image of the pile, and which images are worth asking about.

Letters: P rows of the pile, N classes, D features.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.estimator.by_graph import held_out_probabilities
from semishot.estimator.fitted import Doubt, doubts
from semishot.estimator.next_labels import doubt, varied, worth_asking
from semishot.estimator.pile import Pile
from semishot.estimator.strangers import Members, StrangerCount

Array = NDArray[Any]
SURE = 0.01
"""Of doubt: what is surer than this is not asked about."""


@dataclass(frozen=True)
class Judgement:
    classes: Array
    """(P, N) probabilities, if the row belongs to one of the classes."""
    scores: Array
    """(P,), high for members."""
    stranger: Array
    """(P,), the probability of a stranger."""
    cutoffs: Array
    """For each of the given shares, the score below which rows are taken for strangers."""
    strangers: StrangerCount
    """How many rows of the pile are likely strangers."""
    doubtful: list[Doubt]
    """Labels that the other labels contradict, strongest first."""
    members: Members
    """How members score."""


class Judge:
    """A pile whose neighbours are found once, and judged anew for each set of labels."""

    def __init__(self, features: Array) -> None:
        self.pile = Pile(features)

    def learn(self, labels: Array, rejects: Array) -> Judgement:
        """(P,) of 0..N-1, -1 for the pile, -2 for named strangers -> what follows for all P rows.

        rejects: shares of true members that may be taken for strangers.
        """
        learned = self.pile.learn(labels)
        held, stranger = learned.held_out, learned.answer.stranger
        assert stranger is not None  # it is None for other rules only
        return Judgement(
            learned.answer.classes,
            learned.answer.scores,
            stranger,
            np.array([learned.members.cutoff(float(reject)) for reject in rejects]),
            learned.n_strangers,
            doubts(held_out_probabilities(learned), held.places, held.classes),
            learned.members,
        )

    def varied(self, count: int) -> Array:
        """Rows to begin with, where nothing is known."""
        return varied(self.pile.features, self.pile.neighbours.space, count)

    def worth_asking(self, worth: Array, kept: Sequence[int], count: int) -> Array:
        """Up to `count` rows: those of `kept`, then those of most worth (P,) that differ."""
        space = self.pile.neighbours.space
        return worth_asking(self.pile.features, space, worth, count, kept=kept)


def doubt_of(classes: Array, judgement: Judgement) -> Array:
    """(P, N), class probabilities without excluded classes -> (P,), how likely a row is sorted wrong."""
    found: Array = doubt(classes, judgement.scores, judgement.members)
    return np.where(found < SURE, 0.0, found)
