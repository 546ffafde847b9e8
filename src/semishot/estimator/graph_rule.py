"""The default rule: what labels, a pile and named strangers teach, on a graph of neighbours.

A pile of at most `EXACT` rows is in the graph. Of a larger one, `LANDMARKS` rows are: evenly spaced in the
ranking by cosine to the nearest prototype, which neither order nor rotation changes.
The score of a row, high for members:   s = smooth(max_c [log Z_c + 12 cos(x, prototype_c)]),
where Z is what arrives of the labels, and a prototype is the mean of what a label reaches. Labels held out
in turn show how members score and how much graph and prototypes count in the class probabilities.
Letters: P rows, K of them in the graph, L different ones, H held out, N classes, F folds, D features.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from semishot.estimator import constants as const
from semishot.estimator import models
from semishot.estimator.graph import (
    NeighbourGraph,
    Neighbours,
    cosines_without_itself,
    landmarks_of,
    propagate,
    smoothed,
    summed,
)
from semishot.estimator.labels import NAMED_STRANGER
from semishot.estimator.spaces import (
    Array,
    Space,
    evenly_spaced,
    mean_direction,
    one_thread,
    unit,
)
from semishot.estimator.strangers import (
    MemberPrior,
    count_strangers,
    members_by,
    stranger_probability,
    strangers_by,
)


class LabeledPile:
    """P rows whose neighbours are found once; what is learned depends on the current labels alone."""

    @one_thread()
    def __init__(self, features: Array) -> None:
        center = mean_direction(features)
        space, landmarks = Space("centered", center), landmarks_of(features, center)
        self.features, self.neighbours = features, Neighbours(features, space, landmarks)

    @one_thread()
    def learn(self, labels: Array) -> models.Learned:
        """(P,), 0 to N - 1, -1 in the pile, -2 for named strangers -> what is learned."""
        weights = (labels[:, None] == np.arange(labels.max() + 1)).astype(np.float64)
        return learn(self.neighbours, weights, labels == NAMED_STRANGER)


def learn(
    neighbours: Neighbours,
    labels: Array,
    named: Array,
    steps: int = const.GRAPH_STEPS,
    temperature: float | None = None,
) -> models.Learned:
    """Weights of labels (P, N) and named strangers (P,): learn with the pile, or without it where held-out
    labels are predicted much worse with it. A temperature of None is chosen by held-out labels."""
    special = named | (labels.sum(1) > 0)
    rows = graph_rows(neighbours, labels, special)  # (K,)
    learned, gain, right_alone = learn_on(neighbours, rows, labels, named, steps, temperature)
    if special.all():
        return learned
    if learned.held_out is None:
        return replace(learned, message=models.NOTHING_TELLS)
    count = learned.held_out.examples
    used = gain >= -const.HARM - const.HARM_EACH * count
    right: int | None = round(learned.held_out.accuracy * count)
    if not used:
        rows, right = rows[special[rows]], None
        learned, _, right_alone = learn_on(neighbours, rows, labels, named, steps, temperature)
    message = models.pile_verdict(count, right, right_alone, gain, used)
    return replace(learned, pile_helps=used, message=message)


def graph_rows(neighbours: Neighbours, labels: Array, special: Array) -> Array:
    """The rows (K,) that make the graph, of P rows of which some are labeled or named strangers: all, or
    evenly spaced ones of a ranking."""
    pile, special = np.flatnonzero(~special), np.flatnonzero(special)

    def thinned(rows: Array, most: int, wanted: int) -> Array:
        """Of more than `most` rows the `wanted` ones evenly spaced in the ranking by nearness to a class."""
        if len(rows) <= most:
            return rows
        labeled = labels.sum(1) > 0
        own = neighbours.space(neighbours.features[labeled])
        prototypes = unit(summed(own, labels[labeled])).astype(own.dtype)  # (N, D)
        by_prototypes = models.PrototypeModel(neighbours.space, prototypes)
        near = models.predict_in_blocks(by_prototypes, neighbours.features)[1][rows]
        ranking: Array = rows[np.argsort(near, kind="stable")]
        return ranking[evenly_spaced(len(rows), wanted)]

    kept = thinned(special, const.MOST_LABELED, const.MOST_LABELED)
    if neighbours.landmarks is not None:
        return np.union1d(np.setdiff1d(neighbours.landmarks, special), kept)
    if len(special) <= const.MOST_LABELED and len(pile) <= const.EXACT:
        return np.arange(len(labels))
    return np.concatenate([kept, thinned(pile, const.EXACT, const.LANDMARKS)])


def learn_on(
    neighbours: Neighbours,
    rows: Array,
    labels: Array,
    named: Array,
    steps: int,
    temperature: float | None,
) -> tuple[models.Learned, float, int]:
    """Learn on a graph of these rows (K,). Also the log-probability of held-out labels that the pile adds,
    and how many of them the prototypes of the other labels predict, without the pile."""
    graph = neighbours.graph(rows)
    known = spread_labels(graph, labels[rows], named[rows])
    z, pile, count = known.arrived, known.pile, labels.shape[1]
    others = (pile if pile.any() else ~known.named) & (count > 1)
    by_labels = scores_of(known, pulls(known, z, 0.0))
    prior = prior_of(known, by_labels.best, pile, 0.0)
    members = members_by(np.empty(0), prior)
    own, of_named = by_labels.best[pile], by_labels.best[known.named]
    strangers = strangers_by(own, by_labels.second[others], members, of_named)
    member = np.where(known.named, 0.0, 1.0)  # (L,), the probability
    member[pile] -= stranger_probability(own, members, strangers)
    shares = shared_out(known, member, steps)  # (L, N)

    lean = apart(known, by_labels.best)
    pulled = pulls(known, shares, lean)  # (L, N)
    scores = scores_of(known, pulled)
    prior = prior_with_named(known, pulled, scores.best, member, lean)
    held_out = held_out_rows(known, scores.best, member, lean, steps)
    members = members_by(held_out.scores, prior)
    own, of_named = scores.best[pile], scores.best[known.named]
    strangers = strangers_by(own, scores.second[others], members, of_named)
    cosines = cosines_without_itself(graph.rows, shares)  # (L, N)
    expected = const.PULL * roundness(graph, z, cosines, member)
    graph_weight, pull = graph_and_pull(held_out, temperature, expected)
    logits = graph_weight * logarithm(z) + pull * cosines  # (L, N)

    dtype, refined = neighbours.space.center.dtype, unit(summed(graph.rows, shares))  # (N, D)
    scale = const.PASSED_ON / np.sqrt(np.maximum(graph.degree, const.TINY))[:, None]  # (L, 1)
    reached = (1 - lean) * unit(summed(graph.rows, z)) + lean * refined  # (N, D)
    model = models.GraphModel(
        neighbours.space,
        graph.rows.astype(dtype),
        (scale * np.column_stack([z, known.from_named])).astype(dtype),
        scores.raw.max(1).astype(dtype),
        np.column_stack([logits, scores.best]).astype(dtype),
        ((const.PULL + const.MORE_PULL * lean) * reached).astype(dtype),
        refined.astype(dtype),
        graph_weight,
        pull,
        const.NEIGHBOURS_SHARE * room(known),
    )
    every_logit, every_score = np.empty((len(labels), count)), np.empty(len(labels))
    if len(rows) < len(labels):  # the others are predicted from their neighbours in the graph
        every_logit[:], every_score[:] = neighbours.predict(model)
    every_logit[rows], every_score[rows] = logits[graph.copy_of], scores.best[graph.copy_of]
    stranger = stranger_probability(every_score, members, strangers)  # (P,)
    unknown = ~named & (labels.sum(1) == 0)  # (P,)
    error = members.spread / (1 + prior.worth + len(held_out.scores)) ** 0.5
    trials = graph_weight * held_out.by_graph + pull * held_out.cosines  # (H, N)
    probabilities, classes = softmax(trials, 1), held_out.classes
    alone = min(models.loss_of(const.PULL * move * held_out.alone, classes) for move in const.MOVES)
    gain = alone - models.loss_of(trials, classes) if pile.any() else 0.0
    learned = models.Learned(
        model,
        members,
        strangers,
        count_strangers(every_score[unknown], stranger[unknown], members, error),
        None,
        "no unlabeled examples: the labels alone",
        models.held_out_summary(probabilities, classes),
        models.doubts(probabilities, rows[graph.first[held_out.rows]], classes),
        models.Answer(softmax(every_logit, 1), every_score, stranger),
    )
    return learned, gain, int((held_out.alone.argmax(1) == classes).sum())


# Labels on the graph, and scores


class SpreadLabels(NamedTuple):
    """What is known of the rows of a graph, and what arrives of it at the others."""

    graph: NeighbourGraph
    labels: Array  # (L, N), weights
    named: Array  # (L,), whether it is named a stranger
    pile: Array  # (L,), whether nothing is known of it
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


class HeldOutRows(NamedTuple):
    """H labeled rows, scored without their own labels."""

    rows: Array  # (H,)
    scores: Array  # (H,)
    by_graph: Array  # (H, N), log Z
    cosines: Array  # (H, N), with refined prototypes
    alone: Array  # (H, N), with the prototypes of the other labels
    classes: Array  # (H,)


def spread_labels(graph: NeighbourGraph, labels: Array, named: Array) -> SpreadLabels:
    """Labels (K, N) and named strangers (K,) of the given rows, of which copies share theirs, spread.

    A label is held out in the fold of its rank by nearness to its class's prototype: the order of rows
    does not matter. A label alone in its class is never held out.
    """
    together = np.zeros((len(graph.rows), labels.shape[1]))
    np.add.at(together, graph.copy_of, labels)  # (L, N)
    is_named = np.zeros(len(graph.rows), bool)
    is_named[graph.copy_of[named]] = True
    unlabeled = together.sum(1) == 0
    fold = np.full(len(together), -1)
    sizes = (together > 0).sum(0)
    for number in np.flatnonzero(sizes > 1):
        own = np.flatnonzero(together[:, number])
        rows = graph.rows[own]
        near = (rows @ rows.sum(0)).round(5)  # two of a class are equally near
        ranking = np.lexsort([graph.degree[own], near])
        fold[own[ranking]] = np.arange(len(own)) % min(const.FOLDS, sizes.max())
    each = fold[:, None] == np.array([*range(fold.max() + 1), -1])  # (L, F + 1)
    by_fold = propagate(graph, each[:, :, None] * together[:, None])  # (L, F + 1, N)
    is_named &= unlabeled
    from_named = propagate(graph, is_named[:, None].astype(np.float64))[:, 0]  # (L,)
    pile = unlabeled & ~is_named
    return SpreadLabels(graph, together, is_named, pile, fold, by_fold, from_named)


def logarithm(arrived: Array) -> Array:
    log_z: Array = np.log(np.maximum(arrived, const.TINY))
    return log_z


def pulls(known: SpreadLabels, shares: Array, lean: float) -> Array:
    """Shares (L, N) -> (L, N): cosines with prototypes of what labels reach, which lean towards prototypes of
    these shares, times 12 to 16."""
    cosines = cosines_without_itself(known.graph.rows, known.arrived)
    if lean > 0:
        refined = cosines_without_itself(known.graph.rows, shares)
        cosines = (1 - lean) * cosines + lean * refined
    return (const.PULL + const.MORE_PULL * lean) * cosines


def room(known: SpreadLabels) -> float:
    """0 to 1: how far classes reach beyond the neighbours of one row. Where the pile has few rows of each
    class, the neighbours of a single stranger are members, and it must not be scored by them."""
    classes: int = known.labels.shape[1]
    return min(1.0, float(known.pile.sum()) / classes / const.ROOMY)


def scores_of(known: SpreadLabels, pulled: Array) -> GraphScores:
    """`pulls` (L, N) -> log Z + pulls, the best of each row, and that of its second-best class.

    Where more arrives from named strangers than from the class, Z shrinks: Z' = Z / (1 + 0.4 z_named / Z).
    """
    arrived = np.maximum(known.arrived, const.TINY)
    lost = np.log1p(const.NAMED_WEIGHT * known.from_named[:, None] / arrived)
    raw = np.log(arrived) + pulled - lost
    ordered, share = np.sort(raw, 1), const.NEIGHBOURS_SHARE * room(known)
    best, second = ordered[:, -1], ordered[:, -min(2, raw.shape[1])]
    return GraphScores(
        raw, smoothed(known.graph, best, share), smoothed(known.graph, second, share)
    )


def shared_out(known: SpreadLabels, member: Array, steps: int) -> Array:
    """Soft k-means on the graph (Eqs. 4, 9): the probability of a member (L,) -> each row's share (L, N) in
    each prototype. A label counts as given."""
    labels, log_z = known.labels, logarithm(known.arrived)
    labeled, shares = labels.sum(1) > 0, labels
    for _ in range(steps):
        logits = log_z + const.PULL * cosines_without_itself(known.graph.rows, shares)
        shares = np.where(labeled[:, None], labels, member[:, None] * softmax(logits, 1))
    return shares


def apart(known: SpreadLabels, scores: Array) -> float:
    """Scores (L,) -> 0 where strangers are crowds, which could pull a prototype: the score keeps to what
    labels reach. 1 where they are single, or none: prototypes of the whole pile know the classes better."""
    dense = np.log(np.maximum(known.graph.degree[known.pile], const.TINY))
    own = scores[known.pile]
    if len(own) < 3 or dense.std() * own.std() < const.TINY:
        return 0.0
    alike = float(np.corrcoef(own, dense)[0, 1])
    return min(1.0, max(0.0, (alike - const.CROWDED) / (const.SINGLE - const.CROWDED)))


# How members are expected to score


def prior_of(known: SpreadLabels, scores: Array, pile: Array, lean: float) -> MemberPrior:
    """Scores (L,), rows of the pile (L,) -> how members are expected to score: lower than the neighbours of
    labeled rows, by a number that is much the same in all data where classes are large."""
    labels, weights = known.labels, known.graph.weights
    shots = float(np.exp(np.log(labels.sum(0)).mean()))  # labels per class
    weight = weights @ pile.astype(np.float64)  # (L,), of neighbours in the pile
    beside = (labels.sum(1) > 0) & (weight > 0)
    around = (weights @ (pile * scores))[beside] / weight[beside]
    mean = const.USUAL_MEAN + const.USUAL_GROWTH * np.log(shots)
    if len(around):
        below = (const.BELOW - const.NEARER * lean) / shots**const.DECLINE
        mean = around.mean() - room(known) * below
    variance = const.LEAST_VARIANCE + const.MORE_VARIANCE * max(1 / shots, lean)
    return MemberPrior(float(mean), variance, const.MEAN_WORTH * labels.shape[1])


def prior_with_named(
    known: SpreadLabels, pulled: Array, scores: Array, member: Array, lean: float
) -> MemberPrior:
    """The prior, made without named strangers, and moved by what they take from likely members of the pile:
    neighbours of labels are lowered less than these."""
    if not known.named.any():
        return prior_of(known, scores, known.pile, lean)
    plain = scores_of(known._replace(from_named=0 * known.from_named), pulled).best
    member = member * known.pile
    prior = prior_of(known, plain, member > 0, lean)
    weights = member / max(member.sum(), const.TINY)  # (L,)
    means = [weights @ each for each in (scores, plain)]
    variances = [weights @ (each - weights @ each) ** 2 for each in (scores, plain)]
    moved, wider = float(means[0] - means[1]), float(variances[0] - variances[1])
    return prior._replace(mean=prior.mean + moved, variance=prior.variance + max(wider, 0.0))


def held_out_rows(
    known: SpreadLabels, scores: Array, member: Array, lean: float, steps: int
) -> HeldOutRows:
    """All of scoring once more for each fold, without its labels: Z is a sum over folds, so that is cheap.
    Fewer labels score lower: held-out scores are raised by what the pile's surer half has lost."""
    rows, labels = known.graph.rows, known.labels
    none = np.empty((0, labels.shape[1]))
    parts = [HeldOutRows(np.empty(0, int), np.empty(0), none, none, none, np.empty(0, int))]
    unlabeled = labels.sum(1) == 0
    surer = ~unlabeled
    if unlabeled.any():
        surer = unlabeled & (scores >= np.median(scores[unlabeled]))
    for number in range(known.fold.max() + 1):
        out = known.fold == number
        others = np.arange(known.by_fold.shape[1]) != number
        fewer = known._replace(labels=labels * ~out[:, None], by_fold=known.by_fold[:, others])
        shares = shared_out(fewer, np.where(out, 1.0, member), steps)
        lower = scores_of(fewer, pulls(fewer, shares, lean)).best
        parts.append(
            HeldOutRows(
                np.flatnonzero(out),
                lower[out] + (scores - lower)[surer].mean(),
                logarithm(fewer.arrived[out]),
                cosines_without_itself(rows, shares)[out],
                rows[out] @ unit(summed(rows, fewer.labels)).T,
                labels[out].argmax(1),
            )
        )
    return HeldOutRows(*(np.concatenate(each) for each in zip(*parts, strict=True)))


# Class probabilities


def roundness(graph: NeighbourGraph, arrived: Array, cosines: Array, member: Array) -> float:
    """Z (L, N), cosines with prototypes (L, N), probability of a member (L,) -> 1 for blobs, 0 for shapes,
    where prototypes part more neighbours than the graph's own answer does."""
    edges = graph.weights.tocoo()  # (L, L)
    row, column = edges.coords
    weights = edges.data * member[row] * member[column]
    by_graph, by_prototype = arrived.argmax(1), cosines.argmax(1)
    parted = (by_prototype[row] != by_prototype[column]).astype(np.float64)
    parted -= by_graph[row] != by_graph[column]
    more = float(weights @ parted / max(weights.sum(), const.TINY))
    return min(1.0, max(0.0, 1 - more / const.ROUGHER))


def graph_and_pull(
    held_out: HeldOutRows, temperature: float | None, expected: float
) -> tuple[float, float]:
    """How much log Z and the cosines count in the class probabilities; `expected` is the pull without trials.
    A given temperature divides squared distances, which are 2 - 2 cos."""
    if temperature is not None:
        return 2 / temperature / const.PULL, 2 / temperature
    if not len(held_out.classes):
        return const.CAUTION, const.CAUTION * expected
    costs = {}
    for move in const.MOVES.tolist():
        for share in const.PULLS.tolist():
            weight, pull = const.CAUTION * move, const.CAUTION * move * share * const.PULL
            logits = weight * held_out.by_graph + pull * held_out.cosines
            prior = np.log(move) ** 2 + (np.log((const.PULL * share + 1) / (expected + 1))) ** 2
            loss = models.loss_of(logits, held_out.classes)
            costs[weight, pull] = loss + prior / (2 * const.MOVES_SPREAD**2)
    return min(costs, key=costs.__getitem__)
