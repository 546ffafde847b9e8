"""A rule for piles with strangers in them: what labels, a pile and named strangers teach, as pure functions.

    model = learn(features, labels)          labels: 0..N-1, -1 for the pile, -2 for named strangers
    answer = read(model, rows)               class probabilities, the score, the probability of a stranger

A pile of at most `EXACT` rows is the graph. Of a larger one, `LANDMARKS` rows are: evenly spaced in the
ranking by cosine to the nearest prototype, which neither order nor rotation changes. All other rows, of
the pile or new, are read off the graph (`reading`).
Letters: M rows, L of them in the graph, U of the pile, H held out, N classes, F folds, D features.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import softmax
from strangers.graph import (
    SMALLEST,
    Array,
    Graph,
    cosines_without_itself,
    directions,
    neighbour_graph,
    propagate,
    prototypes,
    unit,
)
from strangers.reading import Answer, Model, cosines_with, mean_direction, read
from strangers.scores import (
    FOLDS,
    MORE_PULL,
    PULL,
    Members,
    Prior,
    apart,
    class_scores,
    cutoff,
    graph_and_pull,
    members_by,
    prior_of,
    pulls,
    refined,
    roundness,
    stranger_probability,
    strangers_by,
    two_best,
)

__all__ = ["Answer", "Model", "learn", "learn_and_read", "read", "strangers_expected"]

UNLABELED, NAMED_STRANGER = -1, -2
EXACT, LANDMARKS = 2000, 500
"""Rows of the pile up to which all are in the graph, and how many are beyond that."""
MOST_LABELED = 2000
"""Labeled rows in the graph, at most."""


def learn(features: Array, labels: Array, landmarks: int = LANDMARKS) -> Model:
    """(M, D), (M,) -> the model. Memory: one block and the graph, whatever M is."""
    return learned(features, labels, landmarks)[0]


def learn_and_read(
    features: Array, labels: Array, landmarks: int = LANDMARKS
) -> tuple[Model, Answer]:
    """The model, and what it says of all M rows: those in the graph by the graph itself."""
    model, places, answer = learned(features, labels, landmarks)
    if len(places) == len(features):
        order = np.argsort(places)
        return model, Answer(*(values[order] for values in answer))
    whole = read(model, features)
    for mine, exact in zip(whole, answer, strict=True):
        mine[places] = exact
    return model, whole


def learned(features: Array, labels: Array, landmarks: int) -> tuple[Model, Array, Answer]:
    center = mean_direction(features)
    places = graph_rows(features, labels, center, landmarks)  # (L,)
    graph = neighbour_graph(directions(np.asarray(features[places]), center))
    kept = labels[places]
    one_hot = (kept[:, None] == np.arange(labels.max() + 1)).astype(np.float64)  # (L, N)
    pile, is_named = kept == UNLABELED, kept == NAMED_STRANGER

    fold = folds(graph.rows, graph.degree, one_hot)  # (L,)
    split = (fold[:, None] == np.arange(max(1, fold.max() + 1)))[:, :, None] * one_hot[:, None]
    split[:, 0] += (fold < 0)[:, None] * one_hot  # labels that are never held out
    by_fold = propagate(graph, split)  # (L, F, N)
    arrived = by_fold.sum(1)  # (L, N)
    named = propagate(graph, is_named[:, None].astype(np.float64))[:, 0]  # (L,)

    by_labels = pulls(graph, arrived, arrived, 0)  # (L, N)
    scores, second = two_best(graph, class_scores(arrived, by_labels, named))  # (L,), (L,)
    prior = prior_of(graph, scores, one_hot, pile)
    member = membership(scores, second, members_by(np.empty(0), prior), pile, is_named)  # (L,)
    weights = refined(graph, arrived, one_hot, member)  # (L, N)

    lean = apart(graph, scores, pile)
    pulled = pulls(graph, arrived, weights, lean)  # (L, N)
    raw = class_scores(arrived, pulled, named)
    scores, second = two_best(graph, raw)
    prior = prior_of(graph, scores, one_hot, pile, lean)
    if is_named.any():
        plain, _ = two_best(graph, class_scores(arrived, pulled))
        prior = prior_with_named(graph, plain, scores, one_hot, member * pile, lean)
    held = held_out(graph, by_fold, one_hot, fold, named, member, scores, lean)
    members = members_by(held.scores, prior)
    others = pile if pile.any() else ~is_named
    strangers = strangers_by(scores[pile], second[others], members, scores[is_named])
    cosines = cosines_without_itself(graph.rows, weights)  # (L, N)
    expected = roundness(graph, arrived, cosines, member)
    graph_weight, pull = graph_and_pull(held.by_graph, held.cosines, held.classes, expected)
    logits = graph_weight * np.log(np.maximum(arrived, SMALLEST)) + pull * cosines
    answer = Answer(softmax(logits, 1), scores, stranger_probability(scores, members, strangers))
    model = Model(
        center,
        graph.rows,
        graph.degree,
        arrived,
        named,
        raw.max(1),
        (PULL + MORE_PULL * lean)
        * (
            (1 - lean) * unit(prototypes(graph.rows, arrived))
            + lean * unit(prototypes(graph.rows, weights))
        ),
        unit(prototypes(graph.rows, weights)),
        graph_weight,
        pull,
        members,
        strangers,
    )
    return model, places, answer


class HeldOut(NamedTuple):
    """Labeled rows scored without their own labels."""

    scores: Array  # (H,)
    by_graph: Array  # (H, N), log Z
    cosines: Array  # (H, N), with refined prototypes
    classes: Array  # (H,)


def held_out(
    graph: Graph,
    by_fold: Array,
    one_hot: Array,
    fold: Array,
    named: Array,
    member: Array,
    scores: Array,
    lean: float,
) -> HeldOut:
    """All of scoring once more for each fold, without its labels: Z is a sum over folds, so that is cheap.

    Fewer labels score lower. The pile's surer half shows by how much, and held-out scores are raised by it.
    """
    count = one_hot.shape[1]
    parts = [
        HeldOut(np.empty(0), np.empty((0, count)), np.empty((0, count)), np.empty(0, np.int64))
    ]
    unlabeled = one_hot.sum(1) == 0
    surer = unlabeled & (scores >= np.median(scores[unlabeled])) if unlabeled.any() else ~unlabeled
    arrived = by_fold.sum(1)
    for number in range(fold.max() + 1):
        out = fold == number
        fewer, labels = arrived - by_fold[:, number], one_hot * ~out[:, None]
        if number == 0:  # its part also holds the labels that are never held out
            fewer = fewer + propagate(graph, one_hot * (fold < 0)[:, None])
        weights = refined(graph, fewer, labels, np.where(out, 1.0, member))
        lower, _ = two_best(graph, class_scores(fewer, pulls(graph, fewer, weights, lean), named))
        raised = lower[out] + (scores - lower)[surer].mean()
        cosines = cosines_without_itself(graph.rows, weights)[out]
        by_graph = np.log(np.maximum(fewer[out], SMALLEST))
        parts.append(HeldOut(raised, by_graph, cosines, one_hot[out].argmax(1)))
    return HeldOut(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def prior_with_named(
    graph: Graph, plain: Array, scores: Array, one_hot: Array, member: Array, lean: float
) -> Prior:
    """The prior of scores (L,) that named strangers have lowered, from those without them (L,).

    Labels' neighbours are lowered less than other members, so the prior is made without named strangers
    and moved by what they take from rows that are likely members (L,), zero outside the pile.
    """
    prior = prior_of(graph, plain, one_hot, member > 0, lean)
    weights = member / max(member.sum(), SMALLEST)
    moved = weights @ (scores - plain)
    wider = spread_of(scores, weights) - spread_of(plain, weights)
    return prior._replace(
        mean=float(prior.mean + moved), variance=float(prior.variance + max(wider, 0.0))
    )


def spread_of(scores: Array, weights: Array) -> Array:
    """(L,), weights (L,) that sum to 1 -> the variance."""
    return weights @ (scores - weights @ scores) ** 2


def membership(
    scores: Array, second: Array, members: Members, pile: Array, is_named: Array
) -> Array:
    """(L,), the probability that a row of the graph is a member; labeled rows are."""
    found = np.where(is_named, 0.0, 1.0)
    if pile.any():
        strangers = strangers_by(scores[pile], second[pile], members, scores[is_named])
        found[pile] = 1 - stranger_probability(scores[pile], members, strangers)
    return found


def folds(rows: Array, degree: Array, one_hot: Array) -> Array:
    """(L, D), (L,), (L, N) -> (L,): the fold in which a label is held out, -1 for never (alone in its class).

    The i-th nearest to its class's prototype is in fold i, modulo their number: no matter the order of rows.
    """
    fold = np.full(len(rows), -1)
    sizes = one_hot.sum(0).astype(int)
    for number, size in enumerate(sizes):
        if size > 1:
            own = np.flatnonzero(one_hot[:, number])
            near = (rows[own] @ rows[own].sum(0)).round(5)  # two of a class are equally near
            ranking = np.lexsort([degree[own], near])
            fold[own[ranking]] = np.arange(size) % min(FOLDS, sizes.max())
    return fold


def graph_rows(features: Array, labels: Array, center: Array, landmarks: int) -> Array:
    """Places (L,) of the rows that make the graph: all, or evenly spaced ones of a ranking."""
    special = np.flatnonzero(labels != UNLABELED)
    pile = np.flatnonzero(labels == UNLABELED)
    if len(special) > MOST_LABELED:
        special = special[np.linspace(0, len(special) - 1, MOST_LABELED).round().astype(int)]
    if len(pile) > max(EXACT, landmarks):
        labeled = np.flatnonzero(labels >= 0)
        rows = directions(np.asarray(features[labeled]), center)
        one_hot = labels[labeled][:, None] == np.arange(labels.max() + 1)
        p = unit(prototypes(rows, one_hot))  # (N, D)
        nearness = np.concatenate([c.max(1) for _, c in cosines_with(p, features, center)])  # (M,)
        ranking = pile[np.argsort(nearness[pile], kind="stable")]
        pile = ranking[np.linspace(0, len(pile) - 1, landmarks).round().astype(int)]
    return np.concatenate([special, pile])


def strangers_expected(
    model: Model, stranger: Array, scores: Array, reject: float
) -> tuple[float, float]:
    """How many rows of the pile are strangers, and how many of them a cutoff at `reject` leaves unfound."""
    found = scores < cutoff(model.members, reject)
    return float(stranger.sum()), float(stranger[~found].sum())
