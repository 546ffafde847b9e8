"""Which unlabeled examples to label next: uncertain ones that represent many others and differ.

Facility location: a chosen example covers its neighborhood by a kernel, prototypes already cover theirs,
and each choice is the one that adds most coverage. Every example is weighted by how uncertain its label is,
where "stranger" is one of the labels.
Letters: U unlabeled examples, S labeled examples, C candidates, V examples to cover, N classes, D features.
"""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from semishot.estimator.blocks import one_thread
from semishot.estimator.classifier import PrototypeClassifier, as_array
from semishot.prototypes import squared_distances

__all__ = ["next_to_label"]

CANDIDATES, COVERED = 1000, 2000
"""Of a larger pile, only the examples of most weight may be chosen, and evenly spaced ones are covered."""
MEMBER = 0.1
"""What a member's label is worth, in nats, however certain it is: the classes should be covered, too."""
COPY = 1e-3
"""As a share of the usual distance to a prototype: an example nearer to a chosen one is a copy of it."""


@one_thread()
def next_to_label(
    X: ArrayLike,  # noqa: N803
    classifier: PrototypeClassifier,
    count: int = 10,
    *,
    labeled: ArrayLike | None = None,
    leave_out: ArrayLike | None = None,
) -> NDArray[np.int64]:
    """The rows of `X` whose labels would help most, the most helpful first.

    Chooses examples that the classifier is unsure about, that represent many others, and that differ
    from each other. Examples that may or may not belong to a class are among them; those that surely do
    not are rarely chosen.

    Parameters
    ----------
    X
        Features of the unlabeled examples, of shape (U, D).
    classifier
        A fitted classifier.
    count
        How many rows to return. Fewer are returned if the remaining ones are copies of those already
        chosen, or certain.
    labeled
        Features of examples that have a label already, named strangers too, of shape (S, D): copies of
        them are not returned.
    leave_out
        True for rows that are not returned, of shape (U,).
    """
    features = np.asarray(as_array(X))
    if not len(features):
        return np.empty(0, np.int64)
    worth = worth_of_a_label(features, classifier)  # (U,)
    free = np.ones(len(worth), bool) if leave_out is None else ~np.asarray(leave_out, bool)
    worth = np.where(free, worth, 0.0)
    spaced = np.arange(0, len(worth), max(1, -(-len(worth) // COVERED)))
    most = np.sort(np.argpartition(-worth, min(CANDIDATES, len(worth)) - 1)[:CANDIDATES])
    space, prototypes = classifier.space_, torch.from_numpy(classifier.prototypes_)
    candidates, covered = (
        space(torch.from_numpy(np.array(features[rows])).to(prototypes)) for rows in (most, spaced)
    )
    nearest = squared_distances(covered, prototypes).amin(-1)  # (V,)
    reach = nearest.median().clamp_min(torch.finfo(nearest.dtype).tiny)
    kernel = (-squared_distances(candidates, covered) / reach).exp()  # (C, V)
    cover = (-nearest / reach).exp()  # (V,)
    weights = torch.from_numpy(worth[spaced]).to(kernel)  # (V,)
    left = torch.from_numpy(free[most])
    if labeled is not None and len(known := np.asarray(as_array(labeled))):
        for rows in np.array_split(known, -(-len(known) // COVERED)):
            there = space(torch.from_numpy(np.array(rows)).to(prototypes))
            left &= squared_distances(candidates, there).amin(-1) > COPY * reach
    chosen: list[int] = []
    while len(chosen) < count and left.any():
        gains = ((kernel - cover).clamp_min(0) @ weights) * left  # (C,)
        gain, best = gains.max(0)
        if gain <= 0:
            break
        chosen.append(int(most[best]))
        cover = torch.maximum(cover, kernel[best])
        left &= squared_distances(candidates, candidates[best : best + 1])[:, 0] > COPY * reach
    return np.array(chosen, np.int64)


def worth_of_a_label(
    features: NDArray[np.floating], classifier: PrototypeClassifier
) -> NDArray[np.float64]:
    """(U, D) -> (U,): the entropy of the answer, one of the classes or a stranger; some more for members.

    With the probability s of a stranger, and q of each class given that it is none, that is
    h(s) + (1 - s) (H(q) + MEMBER).
    """
    entropy = _entropy(classifier.predict_proba(features))  # (U,)
    if classifier.members_ is None or classifier.strangers_ is None:
        return entropy
    stranger = classifier.stranger_proba(features)  # (U,)
    either = _entropy(np.stack([stranger, 1 - stranger], 1))
    worth: NDArray[np.float64] = either + (1 - stranger) * (entropy + MEMBER)
    return worth


def _entropy(probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
    """(U, N) -> (U,)."""
    logs = np.log(np.maximum(probabilities, 1e-12))
    found: NDArray[np.float64] = -(probabilities * logs).sum(1, dtype=np.float64)
    return found
