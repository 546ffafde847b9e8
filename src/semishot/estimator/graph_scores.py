"""How much each row of a graph seems a member, and how members are expected to score.

The score of a row, high for members:   s = smooth(max_c [log Z_c + 12 cos(x, prototype_c)]),
where Z is what arrives of the labels, and a prototype is the mean of what a label reaches.
Letters: L rows of the graph, H held out, N classes, D features.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from semishot.estimator.blocks import Array
from semishot.estimator.evidence import Evidence, Spread, logarithm
from semishot.estimator.graph import SMALLEST, cosines_without_itself, smoothed, summed, unit
from semishot.estimator.models import NAMED, PULL, SHARE
from semishot.estimator.strangers import (
    MEAN_WORTH,
    Prior,
    members_by,
    stranger_probability,
    strangers_by,
)

MORE_PULL = 4.0
"""Where refined prototypes take part in the score."""
CROWDED, SINGLE = 0.3, 0.45
"""Correlation of score and density in the pile: strangers are crowds below, single above."""
BELOW, NEARER, DECLINE = 2.0, 0.5, 0.7
"""Members score 2 below the neighbours of labeled rows at one label per class, 2 / K^0.7 at K labels;
0.5 less where refined prototypes take part, and less where there is little `room`."""
ROOMY = 20.0
"""Rows of the pile for each class: with fewer, a class hardly reaches beyond the neighbours of one row."""
USUAL_MEAN, USUAL_GROWTH = 3.0, 1.5
"""Where labels have no neighbours in the pile: at one label per class, and what each e-fold adds."""
LEAST_VARIANCE, MORE_VARIANCE = 4.0, 2.0
"""Of members' scores: 4 + 2 / K, and up to 6 where refined prototypes take part."""


class Scores(NamedTuple):
    raw: Array  # (L, N), of each class before smoothing
    best: Array  # (L,)
    second: Array  # (L,), as if the row's own class were not there


class WithAll(NamedTuple):
    """What all labels together gave."""

    member: Array  # (L,)
    scores: Array  # (L,)
    lean: float
    steps: int


class Trials(NamedTuple):
    """H labeled rows, scored without their own labels."""

    places: Array  # (H,)
    scores: Array  # (H,)
    by_graph: Array  # (H, N), log Z
    cosines: Array  # (H, N), with refined prototypes
    alone: Array  # (H, N), with the prototypes of the other labels
    classes: Array  # (H,)


def apart(seen: Evidence, scores: Array) -> float:
    """Scores (L,) -> 0 where strangers are crowds, 1 where they are single.

    Rows of low score are strangers, if any are. Where they have as many near neighbours as others have,
    they could pull a prototype, and the score keeps to what labels reach. Where they lie apart, or there
    are none, prototypes made of the whole pile know the classes better.
    """
    dense = np.log(np.maximum(seen.graph.degree[seen.pile], SMALLEST))
    own = scores[seen.pile]
    if len(own) < 3 or dense.std() * own.std() < SMALLEST:
        return 0.0
    alike = float(np.corrcoef(own, dense)[0, 1])
    return min(1.0, max(0.0, (alike - CROWDED) / (SINGLE - CROWDED)))


def pulls(seen: Evidence, arrived: Array, shares: Array, lean: float) -> Array:
    """Z (L, N), shares (L, N) -> (L, N): cosines with prototypes of both, times 12 to 16."""
    found = cosines_without_itself(seen.graph.rows, arrived)
    if lean > 0:
        found = (1 - lean) * found + lean * cosines_without_itself(seen.graph.rows, shares)
    return (PULL + MORE_PULL * lean) * found


def room(seen: Evidence) -> float:
    """0 to 1: how far classes reach beyond the neighbours of one row.

    In a large class all neighbours are of it, and their scores tell. Where the pile has few rows of each
    class, neighbours are of other classes too: those of a single stranger are members, and it must not be
    scored by them. Also, all members are then neighbours of a label. Strangers are counted with the rows,
    as nothing is known of them yet.
    """
    each: float = seen.pile.sum() / seen.labels.shape[1]
    return min(1.0, float(each) / ROOMY)


def scores_of(seen: Evidence, spread: Spread, pulled: Array) -> Scores:
    """`pulls` (L, N) -> log Z + pulls, the best of each row, and that of its second-best class.

    Where more arrives from named strangers than from the class, Z shrinks: Z' = Z / (1 + 0.4 z_named / Z).
    """
    arrived = np.maximum(spread.arrived, SMALLEST)
    raw = np.log(arrived) + pulled - np.log1p(NAMED * spread.from_named[:, None] / arrived)
    ordered = np.sort(raw, 1)
    best, second = ordered[:, -1], ordered[:, -min(2, raw.shape[1])]
    share = SHARE * room(seen)
    return Scores(raw, smoothed(seen.graph, best, share), smoothed(seen.graph, second, share))


def prior_of(seen: Evidence, scores: Array, pile: Array, lean: float) -> Prior:
    """Scores (L,), rows of the pile (L,) -> how members are expected to score.

    A labeled row is a member like any other, but its score holds its own label. Those of its neighbours in
    the pile do not, and members score lower than these by a number that is much the same in all data
    where classes are large.
    """
    labels = seen.labels
    shots = float(np.exp(np.log(labels.sum(0)).mean()))  # labels per class
    weight = seen.graph.weights @ pile.astype(np.float64)  # (L,), of neighbours in the pile
    beside = (labels.sum(1) > 0) & (weight > 0)
    around = (seen.graph.weights @ (pile * scores))[beside] / weight[beside]
    mean = USUAL_MEAN + USUAL_GROWTH * np.log(shots)
    if len(around):
        mean = around.mean() - room(seen) * (BELOW - NEARER * lean) / shots**DECLINE
    variance = LEAST_VARIANCE + MORE_VARIANCE * max(1 / shots, lean)
    return Prior(float(mean), variance, MEAN_WORTH * labels.shape[1])


def prior_with_named(
    seen: Evidence, plain: Array, scores: Array, member: Array, lean: float
) -> Prior:
    """The prior of scores (L,) that named strangers have lowered, from those without them (L,).

    Neighbours of labels are lowered less than other members. So the prior is made without named strangers,
    and moved by what they take from likely members (L,), zero outside the pile.
    """
    prior = prior_of(seen, plain, member > 0, lean)
    weights = member / max(member.sum(), SMALLEST)
    moved = float(weights @ (scores - plain))
    wider = variance_of(scores, weights) - variance_of(plain, weights)
    return prior._replace(mean=prior.mean + moved, variance=prior.variance + max(wider, 0.0))


def variance_of(scores: Array, weights: Array) -> float:
    """(L,), weights (L,) that sum to 1."""
    return float(weights @ (scores - weights @ scores) ** 2)


def membership(seen: Evidence, scores: Scores, prior: Prior, others: Array) -> Array:
    """(L,), the probability that a row is a member; labeled rows are."""
    own, named = scores.best[seen.pile], scores.best[seen.named]
    members = members_by(np.empty(0), prior)
    strangers = strangers_by(own, scores.second[others], members, named)
    member = np.where(seen.named, 0.0, 1.0)
    member[seen.pile] -= stranger_probability(own, members, strangers)
    return member


def shared_out(seen: Evidence, arrived: Array, labels: Array, member: Array, steps: int) -> Array:
    """Z (L, N), labels (L, N), probability of a member (L,) -> each row's share (L, N) in each prototype.

    Soft k-means on the graph (Eqs. 4, 9): a label counts as given, a row of the pile by its class and by
    how surely it belongs to one.
    """
    labeled = labels.sum(1) > 0
    shares = labels
    for _ in range(steps):
        logits = logarithm(arrived) + PULL * cosines_without_itself(seen.graph.rows, shares)
        shares = np.where(labeled[:, None], labels, member[:, None] * softmax(logits, 1))
    return shares


def held_out(seen: Evidence, spread: Spread, full: WithAll) -> Trials:
    """All of scoring once more for each fold, without its labels: Z is a sum over folds, so that is cheap.

    Fewer labels score lower. The pile's surer half shows by how much, and held-out scores are raised by it.
    """
    rows, labels = seen.graph.rows, seen.labels
    none = np.empty((0, labels.shape[1]))
    parts = [Trials(np.empty(0, np.int64), np.empty(0), none, none, none, np.empty(0, np.int64))]
    unlabeled = labels.sum(1) == 0
    surer = ~unlabeled
    if unlabeled.any():
        surer = unlabeled & (full.scores >= np.median(full.scores[unlabeled]))
    for number in range(spread.fold.max() + 1):
        out = spread.fold == number
        kept = labels * ~out[:, None]
        others = np.arange(spread.by_fold.shape[1]) != number
        fewer = spread._replace(by_fold=spread.by_fold[:, others])
        member = np.where(out, 1.0, full.member)
        shares = shared_out(seen, fewer.arrived, kept, member, full.steps)
        lower = scores_of(seen, fewer, pulls(seen, fewer.arrived, shares, full.lean)).best
        parts.append(
            Trials(
                np.flatnonzero(out),
                lower[out] + (full.scores - lower)[surer].mean(),
                logarithm(fewer.arrived[out]),
                cosines_without_itself(rows, shares)[out],
                rows[out] @ unit(summed(rows, kept)).T,
                labels[out].argmax(1),
            )
        )
    return Trials(*(np.concatenate(each) for each in zip(*parts, strict=True)))
