"""A pile whose neighbours are found once, to be judged by labels again and again."""

import numpy as np

from semishot.estimator.blocks import Array, mean_direction, one_thread
from semishot.estimator.evidence import EXACT, LANDMARKS, Given
from semishot.estimator.graph_rule import Learned, Options, learn
from semishot.estimator.labels import NAMED_STRANGER
from semishot.estimator.neighbours import Remembered


class Pile:
    """P rows of features; what is learned depends on the labels alone, not on earlier ones."""

    @one_thread()
    def __init__(self, features: Array, landmarks: int = LANDMARKS) -> None:
        self.features = features
        exact = max(EXACT, landmarks)
        self.neighbours = Remembered(features, mean_direction(features), exact, landmarks)

    @one_thread()
    def learn(self, labels: Array) -> Learned:
        """(P,), 0 to N - 1, -1 in the pile, -2 for named strangers -> what is learned."""
        weights = (labels[:, None] == np.arange(labels.max() + 1)).astype(np.float64)
        space = self.neighbours.space
        given = Given(self.features, weights, labels == NAMED_STRANGER, space, self.neighbours)
        return learn(given, Options())
