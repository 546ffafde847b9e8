"""How much each row of a graph seems a member, and how members are expected to score.

The score of a row, high for members:   s = smooth(max_c [log Z_c + 12 cos(x, prototype_c)]),
where Z is what arrives of the labels, and a prototype is the mean of what a label reaches.
Letters: K given rows, L rows of the graph, H held out, N classes, F folds, D features.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from semishot.estimator import constants as const
from semishot.estimator.graph import (
    NeighbourGraph,
    cosines_without_itself,
    propagate,
    smoothed,
    summed,
)
from semishot.estimator.spaces import Array, unit
from semishot.estimator.strangers import (
    MemberPrior,
    members_by,
    stranger_probability,
    strangers_by,
)


class KnownRows(NamedTuple):
    """What is known of the rows of a graph."""

    graph: NeighbourGraph
    labels: Array  # (L, N), weights
    named: Array  # (L,), whether it is named a stranger
    pile: Array  # (L,), whether nothing is known of it


class SpreadLabels(NamedTuple):
    """The labels, spread over the graph."""

    fold: Array  # (L,), in which a label is held out, -1 for never
    by_fold: Array  # (L, F + 1, N), what arrives of each fold's labels, the last for those never held out
    from_named: Array  # (L,), what arrives from named strangers

    @property
    def arrived(self) -> Array:
        """(L, N), Z."""
        z: Array = self.by_fold.sum(1)
        return z


class GraphScores(NamedTuple):
    raw: Array  # (L, N), of each class before smoothing
    best: Array  # (L,)
    second: Array  # (L,), as if the row's own class were not there


class WithAllLabels(NamedTuple):
    """What all labels together gave."""

    member: Array  # (L,), the probability
    scores: Array  # (L,)
    lean: float
    steps: int


class HeldOutRows(NamedTuple):
    """H labeled rows, scored without their own labels."""

    rows: Array  # (H,)
    scores: Array  # (H,)
    by_graph: Array  # (H, N), log Z
    cosines: Array  # (H, N), with refined prototypes
    alone: Array  # (H, N), with the prototypes of the other labels
    classes: Array  # (H,)


def known_rows(graph: NeighbourGraph, labels: Array, named: Array) -> KnownRows:
    """Labels (K, N) and named strangers (K,) of the given rows: copies share theirs."""
    together = np.zeros((len(graph.rows), labels.shape[1]))
    np.add.at(together, graph.copy_of, labels)  # (L, N)
    is_named = np.zeros(len(graph.rows), bool)
    is_named[graph.copy_of[named]] = True
    unlabeled = together.sum(1) == 0
    return KnownRows(graph, together, is_named & unlabeled, ~is_named & unlabeled)


def spread_labels(known: KnownRows) -> SpreadLabels:
    """A label is held out in the fold of its rank by nearness to its class's prototype: the order of rows
    does not matter. A label alone in its class is never held out."""
    graph, labels = known.graph, known.labels
    fold = np.full(len(labels), -1)
    sizes = (labels > 0).sum(0)
    for number, size in enumerate(sizes):
        if size > 1:
            own = np.flatnonzero(labels[:, number])
            rows = graph.rows[own]
            near = (rows @ rows.sum(0)).round(5)  # two of a class are equally near
            ranking = np.lexsort([graph.degree[own], near])
            fold[own[ranking]] = np.arange(size) % min(const.FOLDS, sizes.max())
    each = fold[:, None] == np.array([*range(fold.max() + 1), -1])  # (L, F + 1)
    by_fold = propagate(graph, each[:, :, None] * labels[:, None])  # (L, F + 1, N)
    from_named = propagate(graph, known.named[:, None].astype(np.float64))[:, 0]  # (L,)
    return SpreadLabels(fold, by_fold, from_named)


def logarithm(arrived: Array) -> Array:
    log_z: Array = np.log(np.maximum(arrived, const.TINY))
    return log_z


def apart(known: KnownRows, scores: Array) -> float:
    """Scores (L,) -> 0 where strangers are crowds, which could pull a prototype: the score keeps to what
    labels reach. 1 where they are single, or none: prototypes of the whole pile know the classes better."""
    dense = np.log(np.maximum(known.graph.degree[known.pile], const.TINY))
    own = scores[known.pile]
    if len(own) < 3 or dense.std() * own.std() < const.TINY:
        return 0.0
    alike = float(np.corrcoef(own, dense)[0, 1])
    return min(1.0, max(0.0, (alike - const.CROWDED) / (const.SINGLE - const.CROWDED)))


def pulls(known: KnownRows, arrived: Array, shares: Array, lean: float) -> Array:
    """Z (L, N), shares (L, N) -> (L, N): cosines with prototypes of both, times 12 to 16."""
    cosines = cosines_without_itself(known.graph.rows, arrived)
    if lean > 0:
        refined = cosines_without_itself(known.graph.rows, shares)
        cosines = (1 - lean) * cosines + lean * refined
    return (const.PULL + const.MORE_PULL * lean) * cosines


def room(known: KnownRows) -> float:
    """0 to 1: how far classes reach beyond the neighbours of one row. Where the pile has few rows of each
    class, the neighbours of a single stranger are members, and it must not be scored by them."""
    classes: int = known.labels.shape[1]
    return min(1.0, float(known.pile.sum()) / classes / const.ROOMY)


def scores_of(known: KnownRows, spread: SpreadLabels, pulled: Array) -> GraphScores:
    """`pulls` (L, N) -> log Z + pulls, the best of each row, and that of its second-best class.

    Where more arrives from named strangers than from the class, Z shrinks: Z' = Z / (1 + 0.4 z_named / Z).
    """
    arrived = np.maximum(spread.arrived, const.TINY)
    raw = (
        np.log(arrived)
        + pulled
        - np.log1p(const.NAMED_WEIGHT * spread.from_named[:, None] / arrived)
    )
    ordered = np.sort(raw, 1)
    best, second = ordered[:, -1], ordered[:, -min(2, raw.shape[1])]
    share = const.NEIGHBOURS_SHARE * room(known)
    return GraphScores(
        raw, smoothed(known.graph, best, share), smoothed(known.graph, second, share)
    )


def prior_of(known: KnownRows, scores: Array, pile: Array, lean: float) -> MemberPrior:
    """Scores (L,), rows of the pile (L,) -> how members are expected to score: lower than the neighbours of
    labeled rows, by a number that is much the same in all data where classes are large."""
    labels, weights = known.labels, known.graph.weights
    shots = float(np.exp(np.log(labels.sum(0)).mean()))  # labels per class
    weight = weights @ pile.astype(np.float64)  # (L,), of neighbours in the pile
    beside = (labels.sum(1) > 0) & (weight > 0)
    around = (weights @ (pile * scores))[beside] / weight[beside]
    mean = const.USUAL_MEAN + const.USUAL_GROWTH * np.log(shots)
    if len(around):
        mean = (
            around.mean() - room(known) * (const.BELOW - const.NEARER * lean) / shots**const.DECLINE
        )
    variance = const.LEAST_VARIANCE + const.MORE_VARIANCE * max(1 / shots, lean)
    return MemberPrior(float(mean), variance, const.MEAN_WORTH * labels.shape[1])


def prior_with_named(
    known: KnownRows, spread: SpreadLabels, pulled: Array, full: WithAllLabels
) -> MemberPrior:
    """The prior, made without named strangers, and moved by what they take from likely members of the pile:
    neighbours of labels are lowered less than these."""
    if not known.named.any():
        return prior_of(known, full.scores, known.pile, full.lean)
    plain = scores_of(known, spread._replace(from_named=0 * spread.from_named), pulled).best
    member = full.member * known.pile
    prior = prior_of(known, plain, member > 0, full.lean)
    weights = member / max(member.sum(), const.TINY)  # (L,)
    means = [weights @ each for each in (full.scores, plain)]
    variances = [weights @ (each - weights @ each) ** 2 for each in (full.scores, plain)]
    moved, wider = float(means[0] - means[1]), float(variances[0] - variances[1])
    return prior._replace(mean=prior.mean + moved, variance=prior.variance + max(wider, 0.0))


def membership(known: KnownRows, scores: GraphScores, prior: MemberPrior, others: Array) -> Array:
    """(L,), the probability that a row is a member; labeled rows are."""
    own, named = scores.best[known.pile], scores.best[known.named]
    members = members_by(np.empty(0), prior)
    strangers = strangers_by(own, scores.second[others], members, named)
    member = np.where(known.named, 0.0, 1.0)
    member[known.pile] -= stranger_probability(own, members, strangers)
    return member


def shared_out(rows: Array, arrived: Array, labels: Array, member: Array, steps: int) -> Array:
    """Soft k-means on the graph (Eqs. 4, 9): Z (L, N), labels (L, N), probability of a member (L,) -> each
    row's share (L, N) in each prototype. A label counts as given."""
    labeled = labels.sum(1) > 0
    shares = labels
    for _ in range(steps):
        logits = logarithm(arrived) + const.PULL * cosines_without_itself(rows, shares)
        shares = np.where(labeled[:, None], labels, member[:, None] * softmax(logits, 1))
    return shares


def held_out_rows(known: KnownRows, spread: SpreadLabels, full: WithAllLabels) -> HeldOutRows:
    """All of scoring once more for each fold, without its labels: Z is a sum over folds, so that is cheap.
    Fewer labels score lower: held-out scores are raised by what the pile's surer half has lost."""
    rows, labels = known.graph.rows, known.labels
    none = np.empty((0, labels.shape[1]))
    parts = [HeldOutRows(np.empty(0, int), np.empty(0), none, none, none, np.empty(0, int))]
    unlabeled = labels.sum(1) == 0
    surer = ~unlabeled
    if unlabeled.any():
        surer = unlabeled & (full.scores >= np.median(full.scores[unlabeled]))
    for number in range(spread.fold.max() + 1):
        out = spread.fold == number
        kept = labels * ~out[:, None]
        others = np.arange(spread.by_fold.shape[1]) != number
        fewer = spread._replace(by_fold=spread.by_fold[:, others])
        z, member = fewer.arrived, np.where(out, 1.0, full.member)
        shares = shared_out(rows, z, kept, member, full.steps)
        lower = scores_of(known, fewer, pulls(known, z, shares, full.lean)).best
        parts.append(
            HeldOutRows(
                np.flatnonzero(out),
                lower[out] + (full.scores - lower)[surer].mean(),
                logarithm(z[out]),
                cosines_without_itself(rows, shares)[out],
                rows[out] @ unit(summed(rows, kept)).T,
                labels[out].argmax(1),
            )
        )
    return HeldOutRows(*(np.concatenate(each) for each in zip(*parts, strict=True)))
