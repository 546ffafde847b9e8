"""The default rule: what labels, a pile and named strangers teach, on a graph of neighbours.

A pile of at most `EXACT` rows is in the graph. Of a larger one, `LANDMARKS` rows are: evenly spaced in the
ranking by cosine to the nearest prototype, which neither order nor rotation changes. Labels held out in turn
show how members score and how much graph and prototypes count in the class probabilities.
Letters: P rows, K of them in the graph, L different ones, U unlabeled, H held out, N classes, D features.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import softmax

from semishot.estimator import constants as const
from semishot.estimator import graph_scores, models
from semishot.estimator.graph import KnownNeighbours, NewNeighbours, cosines_without_itself, summed
from semishot.estimator.labels import NAMED_STRANGER
from semishot.estimator.spaces import Array, evenly_spaced, one_thread, unit
from semishot.estimator.strangers import (
    count_strangers,
    members_by,
    stranger_probability,
    strangers_by,
)

Neighbours = NewNeighbours | KnownNeighbours


class LabeledPile:
    """P rows whose neighbours are found once; what is learned depends on the current labels alone."""

    @one_thread()
    def __init__(self, features: Array) -> None:
        self.features, self.neighbours = features, KnownNeighbours(features)

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
    rows = graph_rows(neighbours, labels, named)  # (K,)
    learned, gain, right_alone = learn_on(neighbours, rows, labels, named, steps, temperature)
    count = learned.held_out.examples if learned.held_out else 0
    if not (named | (labels.sum(1) > 0)).all():
        used = gain >= -const.HARM - const.HARM_EACH * count
        right = round(learned.held_out.accuracy * count) if used and learned.held_out else None
        if not used:
            rows = rows[named[rows] | (labels[rows].sum(1) > 0)]
            learned, _, right_alone = learn_on(neighbours, rows, labels, named, steps, temperature)
        message = (
            models.pile_verdict(count, right, right_alone, gain, used)
            if count
            else models.NOTHING_TELLS
        )
        return replace(learned, pile_helps=used if count else None, message=message)
    return learned


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
    known = graph_scores.known_rows(graph, labels[rows], named[rows])
    spread = graph_scores.spread_labels(known)
    z, pile, count = spread.arrived, known.pile, labels.shape[1]
    others = (pile if pile.any() else ~known.named) & (count > 1)
    by_labels = graph_scores.scores_of(known, spread, graph_scores.pulls(known, z, z, 0.0))
    prior = graph_scores.prior_of(known, by_labels.best, pile, 0.0)
    member = graph_scores.membership(known, by_labels, prior, others)  # (L,)
    shares = graph_scores.shared_out(graph.rows, z, known.labels, member, steps)  # (L, N)

    lean = graph_scores.apart(known, by_labels.best)
    pulled = graph_scores.pulls(known, z, shares, lean)  # (L, N)
    scores = graph_scores.scores_of(known, spread, pulled)
    full = graph_scores.WithAllLabels(member, scores.best, lean, steps)
    prior = graph_scores.prior_with_named(known, spread, pulled, full)
    held_out = graph_scores.held_out_rows(known, spread, full)
    members = members_by(held_out.scores, prior)
    own, second = scores.best[pile], scores.second[others]
    strangers = strangers_by(own, second, members, scores.best[known.named])
    cosines = cosines_without_itself(graph.rows, shares)  # (L, N)
    expected = const.PULL * roundness(graph.weights, z, cosines, member)
    graph_weight, pull = graph_and_pull(held_out, temperature, expected)
    logits = graph_weight * graph_scores.logarithm(z) + pull * cosines  # (L, N)

    dtype, refined = neighbours.space.center.dtype, unit(summed(graph.rows, shares))  # (N, D)
    scale = const.PASSED_ON / np.sqrt(np.maximum(graph.degree, const.TINY))[:, None]  # (L, 1)
    reached = (1 - lean) * unit(summed(graph.rows, z)) + lean * refined  # (N, D)
    model = models.GraphModel(
        neighbours.space,
        graph.rows.astype(dtype),
        (scale * np.column_stack([z, spread.from_named])).astype(dtype),
        scores.raw.max(1).astype(dtype),
        np.column_stack([logits, scores.best]).astype(dtype),
        ((const.PULL + const.MORE_PULL * lean) * reached).astype(dtype),
        refined.astype(dtype),
        graph_weight,
        pull,
        const.NEIGHBOURS_SHARE * graph_scores.room(known),
    )
    every_logit, every_score = np.empty((len(labels), count)), np.empty(len(labels))
    if len(rows) < len(labels):  # the others are predicted from their neighbours in the graph
        every_logit[:], every_score[:] = neighbours.predict(model)
    every_logit[rows], every_score[rows] = logits[graph.copy_of], scores.best[graph.copy_of]
    stranger = stranger_probability(every_score, members, strangers)  # (P,)
    unknown = ~named & (labels.sum(1) == 0)  # (P,)
    error = members.spread / (1 + prior.worth + len(held_out.scores)) ** 0.5
    trials = graph_weight * held_out.by_graph + pull * held_out.cosines  # (H, N)
    probabilities = softmax(trials, 1)
    alone = min(
        models.loss_of(const.PULL * move * held_out.alone, held_out.classes) for move in const.MOVES
    )
    gain = alone - models.loss_of(trials, held_out.classes) if pile.any() else 0.0
    learned = models.Learned(
        model,
        members,
        strangers,
        count_strangers(every_score[unknown], stranger[unknown], members, error),
        None,
        "no unlabeled examples: the labels alone",
        models.held_out_summary(probabilities, held_out.classes),
        models.doubts(probabilities, rows[graph.first[held_out.rows]], held_out.classes),
        models.Answer(softmax(every_logit, 1), every_score, stranger),
    )
    return learned, gain, int((held_out.alone.argmax(1) == held_out.classes).sum())


def graph_rows(neighbours: Neighbours, labels: Array, named: Array) -> Array:
    """The rows (K,) that make the graph: all, or evenly spaced ones of a ranking."""
    labeled = labels.sum(1) > 0
    pile = np.flatnonzero(~labeled & ~named)
    special = np.flatnonzero(labeled | named)

    def thinned(rows: Array, most: int, wanted: int) -> Array:
        """Of more than `most` rows the `wanted` ones evenly spaced in the ranking by nearness to a class."""
        if len(rows) <= most:
            return rows
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


def roundness(weights: Any, arrived: Array, cosines: Array, member: Array) -> float:
    """Z (L, N), cosines with prototypes (L, N), probability of a member (L,) -> 1 for blobs, 0 for shapes,
    where prototypes part more neighbours than the graph's own answer does."""
    edges = weights.tocoo()  # (L, L)
    row, column = edges.coords
    weights = edges.data * member[row] * member[column]
    by_graph, by_prototype = arrived.argmax(1), cosines.argmax(1)
    parted = (by_prototype[row] != by_prototype[column]).astype(np.float64)
    parted -= by_graph[row] != by_graph[column]
    more = float(weights @ parted / max(weights.sum(), const.TINY))
    return min(1.0, max(0.0, 1 - more / const.ROUGHER))


def graph_and_pull(
    held_out: graph_scores.HeldOutRows, temperature: float | None, expected: float
) -> tuple[float, float]:
    """How much log Z and the cosines count in the class probabilities; `expected` is the pull without trials.
    A given temperature divides squared distances, which are 2 - 2 cos."""
    if temperature is not None:
        return 2 / temperature / const.PULL, 2 / temperature
    best, least = (const.CAUTION, const.CAUTION * expected), np.inf
    if not len(held_out.classes):
        return best
    for move in const.MOVES:
        for share in const.PULLS:
            weight, pull = const.CAUTION * move, const.CAUTION * move * share * const.PULL
            loss = models.loss_of(
                weight * held_out.by_graph + pull * held_out.cosines, held_out.classes
            )
            prior = np.log(move) ** 2 + (np.log((const.PULL * share + 1) / (expected + 1))) ** 2
            if loss + prior / (2 * const.MOVES_SPREAD**2) < least:
                best, least = (
                    (float(weight), float(pull)),
                    loss + prior / (2 * const.MOVES_SPREAD**2),
                )
    return best
