"""Which unlabeled examples to label next: those whose two likeliest answers are close, unlike each other.

Letters: P rows, C candidates, V rows that show how far rows lie apart, S labeled rows, N classes, D features.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from semishot.estimator.fitted_model import FittedModel
from semishot.estimator.spaces import (
    AnySpace,
    Array,
    as_array,
    evenly_spaced,
    like,
    one_thread,
    squared_distances,
)

if TYPE_CHECKING:  # it imports scikit-learn
    from semishot.estimator.classifier import PrototypeClassifier

__all__ = ["next_to_label", "question_worth", "worth_asking"]

SMALLEST = 1e-12
WORTH_FROM = 0.2
"""A row that is sorted wrong with a smaller probability is not worth a question."""
CANDIDATES, SHOWN = 300, 300
"""The rows of most worth, that are chosen from; rows that show how far rows lie apart."""
CLOSE = 3
"""Two rows are the same question to the degree cos^3."""
COPY = 1e-3
"""Of the mean squared distance between rows: a nearer one is a copy."""


@one_thread()
def next_to_label(
    X: Any,  # noqa: N803
    classifier: "PrototypeClassifier | FittedModel",
    count: int = 10,
    *,
    labeled: ArrayLike | None = None,
    leave_out: ArrayLike | None = None,
) -> NDArray[np.int64]:
    """The rows of `X` whose labels would help most, the most helpful first.

    Chooses examples whose two likeliest answers, two classes or a class and a stranger, are nearly equally
    likely, and that differ from each other. None is returned that is sorted right with more than 80 %.

    Parameters
    ----------
    X
        Features of the unlabeled examples, of shape (U, D).
    classifier
        A fitted classifier; commands pass what it has learned.
    count
        How many rows to return. Fewer are returned if the remaining ones are copies of those already
        chosen, or not worth a question: with none left, it is time to stop.
    labeled
        Features of examples that have a label already, named strangers too, of shape (S, D): copies of
        them are not returned.
    leave_out
        True for rows that are not returned, of shape (U,).
    """
    fitted: FittedModel = classifier if isinstance(classifier, FittedModel) else classifier.fitted_
    space = fitted.learned.model.space
    features = X if issparse(X) else like(space.center, as_array(X))
    if not features.shape[0]:
        return np.empty(0, np.int64)
    joint = fitted.predict(features).joint
    worth = np.where(1 - joint.max(1) >= WORTH_FROM, question_worth(joint), 0.0)
    if leave_out is not None:
        worth[np.asarray(leave_out, bool)] = 0.0
    answered = None if labeled is None else like(space.center, as_array(labeled))
    return worth_asking(features, space, worth, count, answered=answered)


def question_worth(joint: Array) -> NDArray[np.float64]:
    """The N + 1 probabilities of P rows, of each class and of a stranger -> (P,): one minus the distance of
    the two largest."""
    ordered = np.partition(joint, -2, axis=1)
    worth: NDArray[np.float64] = 1 - (ordered[:, -1] - ordered[:, -2])
    return worth


@one_thread()
def worth_asking(
    features: Any,
    space: AnySpace,
    worth: Array,
    count: int,
    *,
    answered: Array | None = None,
    kept: Sequence[int] = (),
) -> NDArray[np.int64]:
    """Up to `count` rows of (P, D): those `kept`, then those of most worth (P,) that differ; none of worth 0.

    The worth of a row shrinks by the largest c^3 with a chosen one, where c = 1 - d / m of their squared
    distance d and its mean m: for directions seen from their mean, the cosine. Copies of chosen rows and
    of `answered` (S, D) are left out.
    """
    chosen = [int(row) for row in kept][:count]
    ranking = np.argsort(-worth, kind="stable")[: np.count_nonzero(worth > 0)]
    best = ranking[:CANDIDATES]
    if not len(best) or len(chosen) == count:
        return np.array(chosen, np.int64)
    shown = space(features[ranking[evenly_spaced(len(ranking), SHOWN)]])
    usual = max(2 * float(((shown - shown.mean(0)) ** 2).sum(1).mean()), SMALLEST)  # mean distance
    rows = space(features[best])  # (C, D)
    worth = np.where(np.isin(best, chosen), 0.0, worth[best])  # (C,)
    if answered is not None and len(answered):
        near = squared_distances(rows, space(answered)).min(1)
        worth = np.where(near > COPY * usual, worth, 0.0)
    apart = squared_distances(rows, space(features[np.array(chosen, np.int64)])) / usual
    new = _different(apart).min(1, initial=1.0)  # (C,), how unlike all chosen rows
    while len(chosen) < count and (worth * new).max() > 0:
        index = int((worth * new).argmax())
        chosen.append(int(best[index]))
        new = np.minimum(new, _different(squared_distances(rows, rows[[index]])[:, 0] / usual))
    return np.array(chosen, np.int64)


def _different(apart: Array) -> Array:
    """Squared distances over the usual one -> 1 for unlike rows, 0 for copies."""
    return np.where(apart <= COPY, 0.0, 1 - np.clip(1 - apart, 0, 1) ** CLOSE)
