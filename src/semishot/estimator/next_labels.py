"""Which unlabeled examples to label next: uncertain ones that represent many others and differ.

Facility location: a chosen example covers its neighborhood by a kernel, prototypes already cover theirs,
and each choice is the one that adds most coverage. Examples are weighted in two ways, one after the other:
by how uncertain the label is, where "stranger" is one of the labels; and by how uncertain the class is of
what seems to be a member. Held-out labels say how members score. Labels chosen in the first way alone would
say that they score low, so that few strangers are found; in the second way alone, that they score high, so
that members are lost.
Letters: U unlabeled examples, S labeled examples, C candidates, V examples to cover, N classes, D features.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from semishot.estimator.blocks import one_thread
from semishot.estimator.classifier import PrototypeClassifier, as_array
from semishot.prototypes import squared_distances

__all__ = ["next_to_label"]

CANDIDATES, COVERED = 1000, 2000
"""Of a larger pile, only the examples of most weight may be chosen, and evenly spaced ones are covered."""
UNSURE = 0.4
"""The share of examples that are chosen in the first way."""
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
    free = np.ones(len(features), bool) if leave_out is None else ~np.asarray(leave_out, bool)
    known = features[:0] if labeled is None else np.asarray(as_array(labeled))
    worth = worth_of_a_label(features, classifier)
    first = Wanted(round(UNSURE * count), worth.unsure, free, known, features[:0])
    chosen = most_covering(features, classifier, first)
    free[chosen] = False
    rest = Wanted(count - len(chosen), worth.typical, free, known, features[chosen])
    return np.concatenate([chosen, most_covering(features, classifier, rest)])


class Worth(NamedTuple):
    """What the label of each example is worth, (U,)."""

    unsure: NDArray[np.float64]
    """The entropy of its label, where "stranger" is one of the labels."""
    typical: NDArray[np.float64]
    """The entropy of its class, times the share of members that are less clearly members."""


class Wanted(NamedTuple):
    """How many examples, by which worth, and which not."""

    most: int
    worth: NDArray[np.float64]
    """(U,)"""
    free: NDArray[np.bool_]
    """(U,): False for those that are not returned."""
    known: NDArray[np.floating]
    """(S, D): nor are copies of these."""
    chosen: NDArray[np.floating]
    """Examples that are covered already, with what lies near them."""


def most_covering(
    features: NDArray[np.floating], classifier: PrototypeClassifier, wanted: Wanted
) -> NDArray[np.int64]:
    """(U, D) -> the rows that cover most of the worth, the best first."""
    worth = np.where(wanted.free, wanted.worth, 0.0)  # (U,)
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
    left = torch.from_numpy(wanted.free[most])
    known = np.concatenate([wanted.known, wanted.chosen])
    for start in range(0, len(known), COVERED):
        rows = torch.from_numpy(known[start : start + COVERED]).to(prototypes)
        left &= squared_distances(candidates, space(rows)).amin(-1) > COPY * reach
    for row in torch.from_numpy(np.array(wanted.chosen)).to(prototypes):
        near = (-squared_distances(space(row[None]), covered)[0] / reach).exp()  # (V,)
        cover = torch.maximum(cover, near)
    chosen: list[int] = []
    while len(chosen) < wanted.most and left.any():
        gains = ((kernel - cover).clamp_min(0) @ weights) * left  # (C,)
        gain, best = gains.max(0)
        if gain <= 0:
            break
        chosen.append(int(most[best]))
        cover = torch.maximum(cover, kernel[best])
        left &= squared_distances(candidates, candidates[best : best + 1])[:, 0] > COPY * reach
    return np.array(chosen, np.int64)


def worth_of_a_label(features: NDArray[np.floating], classifier: PrototypeClassifier) -> Worth:
    """(U, D) -> what a label would be worth, in both ways.

    With the probability s of a stranger, and q of each class given that it is none, the entropy of the
    label is h(s) + (1 - s) H(q). To it MEMBER (1 - s) is added.
    """
    entropy = _entropy(classifier.predict_proba(features))  # (U,)
    if classifier.members_ is None or classifier.strangers_ is None:
        return Worth(entropy, entropy)
    stranger = classifier.stranger_proba(features)  # (U,)
    either = _entropy(np.stack([stranger, 1 - stranger], 1))
    typical = entropy * (1 - classifier.distractor_score(features))
    return Worth(either + (1 - stranger) * (entropy + MEMBER), typical)


def _entropy(probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
    """(U, N) -> (U,)."""
    logs = np.log(np.maximum(probabilities, 1e-12))
    found: NDArray[np.float64] = -(probabilities * logs).sum(1, dtype=np.float64)
    return found
