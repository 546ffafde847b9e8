"""What labels, a pile and named strangers teach, on a graph of neighbours.

The score of a row, high for members:   s = smooth(max_c [log Z_c + 12 cos(x, sum_j Z_jc x_j)]),
where Z is what arrives of the labels. Labels held out in turn show how members score and how much graph and
prototypes count in the class probabilities. A pile of at most `EXACT` rows is in the graph. Of a larger
one, `LANDMARKS` rows are: evenly spaced in the ranking by cosine to the nearest prototype, which neither
order nor rotation changes. All other rows are read off the graph (`reading`).
Letters: P rows, L of them in the graph, U unlabeled, H held out, N classes, F folds, D features.
"""

from typing import NamedTuple

import numpy as np
import torch
from scipy.special import log_softmax, softmax

from semishot.estimator.blocks import Array, Space, mean_direction
from semishot.estimator.graph import (
    SMALLEST,
    SPREAD,
    Graph,
    cosines_without_itself,
    neighbour_graph,
    propagate,
    smoothed,
    summed,
    unit,
)
from semishot.estimator.lift import Lift
from semishot.estimator.reading import (
    NAMED,
    PULL,
    SHARE,
    Answer,
    NearestPrototypes,
    OffTheGraph,
    read_in_blocks,
)
from semishot.estimator.strangers import (
    MEAN_WORTH,
    Members,
    Prior,
    StrangerCount,
    Strangers,
    count_strangers,
    members_by,
    stranger_probability,
    strangers_by,
)

UNLABELED, NAMED_STRANGER = -1, -2
EXACT, LANDMARKS = 2000, 500
"""Rows of the pile up to which all are in the graph, and how many are beyond that."""
MOST_LABELED = 2000
"""Labeled rows in the graph, at most."""
BELOW, DECLINE = 2.0, 0.7
"""Members score 2 below the neighbours of labeled rows at one label per class, 2 / K^0.7 at K labels."""
USUAL_MEAN, USUAL_GROWTH = 3.0, 1.5
"""Where labels have no neighbours in the pile: at one label per class, and what each e-fold adds."""
LEAST_VARIANCE, MORE_VARIANCE = 4.0, 2.0
"""Of members' scores: 4 + 2 / K."""
STEPS = 3
FOLDS = 5
HARM = 4.0
"""Held-out log-probability, times labels per class, that the pile may cost before it is ignored."""
CAUTION = 0.5
"""Of the weights 1 and 12 by which rows were shared out: what the class probabilities take of them."""
MOVES = np.array([0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8])
PULLS = np.array([0.0, 0.17, 0.33, 0.67, 1.0, 1.33, 2.0])
LOG_SPREAD = 0.45
"""How far, in natural logarithms, held-out labels are expected to move these two."""


class Options(NamedTuple):
    steps: int = STEPS
    temperature: float | None = None
    """None: chosen by held-out labels."""
    landmarks: int = LANDMARKS


class Given(NamedTuple):
    """What the user knows of P rows."""

    features: Array  # (P, D)
    labels: Array
    """(P, N), the weight of the label; zeros without one."""
    named: Array  # (P,), whether it is named a stranger
    space: Space | Lift


class Evidence(NamedTuple):
    """What is known of the rows of a graph. Copies are one row: they are not each other's neighbours."""

    graph: Graph
    labels: Array  # (L, N)
    named: Array  # (L,)
    pile: Array  # (L,)


class Spread(NamedTuple):
    """The labels, spread over the graph."""

    fold: Array  # (L,), in which a label is held out, -1 for never
    by_fold: Array  # (L, F + 1, N), what arrives of each fold's labels, the last for those never held out
    from_named: Array  # (L,), what arrives from named strangers
    raw: Array  # (L, N), scores of each class before smoothing
    scores: Array  # (L,)
    second: Array  # (L,), as if the row's own class were not there

    @property
    def arrived(self) -> Array:
        """(L, N), Z."""
        found: Array = self.by_fold.sum(1)
        return found


class Trials(NamedTuple):
    """H labeled rows, scored without their own labels."""

    places: Array  # (H,)
    scores: Array  # (H,)
    by_graph: Array  # (H, N), log Z
    cosines: Array  # (H, N), with refined prototypes
    alone: Array  # (H, N), with the prototypes of the other labels
    classes: Array  # (H,)


class Learned(NamedTuple):
    model: OffTheGraph
    members: Members
    strangers: Strangers
    n_strangers: StrangerCount
    """Of the pile."""
    answer: Answer
    """For all P rows."""
    held_out: Trials
    """Its places are rows of the features."""
    right_alone: int
    """Held-out labels that the prototypes of the other labels predict, without the pile."""
    gain: float
    """The log-probability of held-out labels that the pile adds."""
    pile_used: bool

    def cutoff(self, reject: float) -> float:
        """The score below which a share `reject` of the members lies."""
        return self.members.cutoff(reject)


class Pile:
    """Features that are judged by labels again and again."""

    def __init__(self, features: Array, options: Options | None = None) -> None:
        self.features, self.options = features, options or Options()
        self.space = Space("centered", mean_direction(features))

    def learn(self, labels: Array) -> Learned:
        """(P,), 0 to N - 1, -1 in the pile, -2 for named strangers -> what is learned."""
        weights = (labels[:, None] == np.arange(labels.max() + 1)).astype(np.float64)
        return learn(
            Given(self.features, weights, labels == NAMED_STRANGER, self.space), self.options
        )


def learn(given: Given, options: Options) -> Learned:
    """Learn with the pile, or without it where held-out labels are predicted much worse with it."""
    places = graph_rows(given, options.landmarks)  # (K,)
    found = learned_on(given, places, options)
    labels = given.labels[places]
    per_class = (labels.sum(1) > 0).sum() / labels.shape[1]
    if found.gain < -HARM / per_class:
        special = places[given.named[places] | (labels.sum(1) > 0)]
        alone = learned_on(given, special, options)
        return alone._replace(pile_used=False, gain=found.gain)
    return found


def learned_on(given: Given, places: Array, options: Options) -> Learned:
    """Learn on a graph of these rows (K,)."""
    chosen = given.space(torch.from_numpy(np.array(given.features[places]))).numpy()
    rows, first, copy_of = np.unique(chosen, axis=0, return_index=True, return_inverse=True)
    copy_of = copy_of.reshape(-1)  # (K,)
    seen = evidence(rows, given.labels[places], given.named[places], copy_of)
    spread = spread_labels(seen)
    scores, second, pile, named = spread.scores, spread.second, seen.pile, spread.scores[seen.named]
    count = seen.labels.shape[1]
    others = (pile if pile.any() else ~seen.named) & (count > 1)
    prior = prior_of(seen, scores, pile)
    member = membership(seen, spread, prior, others)  # (L,)
    if seen.named.any():
        prior = prior_with_named(seen, spread, member * pile)
        member = membership(seen, spread, prior, others)
    shares = shared_out(seen, spread.arrived, seen.labels, member, options.steps)  # (L, N)

    held = held_out(seen, spread, member, options.steps)
    members = members_by(held.scores, prior)
    strangers = strangers_by(scores[pile], second[others], members, named)
    graph_weight, pull = graph_and_pull(held, options.temperature)
    logits = graph_weight * logarithm(spread.arrived)
    logits += pull * cosines_without_itself(rows, shares)  # (L, N)
    model = reader(seen, spread, shares, given.space, (graph_weight, pull))
    logits, every_score = all_rows(model, given.features, places, logits[copy_of], scores[copy_of])
    answer = Answer(
        softmax(logits, 1), every_score, stranger_probability(every_score, members, strangers)
    )
    unknown = ~given.named & (given.labels.sum(1) == 0)  # (P,)
    error = members.spread / (1 + prior.worth + len(held.scores)) ** 0.5
    found = count_strangers(
        every_score[unknown],
        members,
        lambda moved: strangers_by(scores[pile], second[others], moved, named),
        error,
    )
    gain, right = help_of_the_pile(held, graph_weight, pull)
    return Learned(
        model,
        members,
        strangers,
        found,
        answer,
        held._replace(places=places[first[held.places]]),
        right,
        gain if pile.any() else 0.0,
        bool(pile.any()),
    )


def evidence(rows: Array, labels: Array, named: Array, copy_of: Array) -> Evidence:
    """Unit rows (L, D); labels (K, N), named (K,) and the row (K,) of each of K rows with copies."""
    together = np.zeros((len(rows), labels.shape[1]))
    np.add.at(together, copy_of, labels)  # (L, N)
    is_named = np.zeros(len(rows), bool)
    is_named[copy_of[named]] = True
    unlabeled = together.sum(1) == 0
    return Evidence(neighbour_graph(rows), together, is_named & unlabeled, ~is_named & unlabeled)


def spread_labels(seen: Evidence) -> Spread:
    graph, labels = seen.graph, seen.labels
    fold = folds(graph, labels)
    each = fold[:, None] == np.array([*range(fold.max() + 1), -1])  # (L, F + 1)
    by_fold = propagate(graph, each[:, :, None] * labels[:, None])  # (L, F + 1, N)
    from_named = propagate(graph, seen.named[:, None].astype(np.float64))[:, 0]  # (L,)
    raw = class_scores(graph, by_fold.sum(1), from_named)  # (L, N)
    return Spread(fold, by_fold, from_named, raw, *two_best(graph, raw))


def folds(graph: Graph, labels: Array) -> Array:
    """(L, N) -> (L,): the fold in which a label is held out, -1 for never (alone in its class).

    The i-th nearest to its class's prototype is in fold i, modulo their number: no matter the order of rows.
    """
    fold = np.full(len(labels), -1)
    sizes = (labels > 0).sum(0)
    for number, size in enumerate(sizes):
        if size > 1:
            own = np.flatnonzero(labels[:, number])
            rows = graph.rows[own]
            near = (rows @ rows.sum(0)).round(5)  # two of a class are equally near
            ranking = np.lexsort([graph.degree[own], near])
            fold[own[ranking]] = np.arange(size) % min(FOLDS, sizes.max())
    return fold


def logarithm(arrived: Array) -> Array:
    found: Array = np.log(np.maximum(arrived, SMALLEST))
    return found


def class_scores(graph: Graph, arrived: Array, from_named: Array) -> Array:
    """Z (L, N), and what arrives from named strangers (L,) -> (L, N), log Z + 12 cos with Z's prototypes.

    Where more arrives from named strangers than from the class, Z shrinks: Z' = Z / (1 + 0.4 z_named / Z).
    """
    found = logarithm(arrived) + PULL * cosines_without_itself(graph.rows, arrived)
    found -= np.log1p(NAMED * from_named[:, None] / np.maximum(arrived, SMALLEST))
    return found


def two_best(graph: Graph, scores: Array) -> tuple[Array, Array]:
    """(L, N) -> the score (L,), and that of the second-best class (L,): how a stranger might score."""
    ordered = np.sort(scores, 1)
    best, second = ordered[:, -1], ordered[:, -min(2, scores.shape[1])]
    return smoothed(graph, best, SHARE), smoothed(graph, second, SHARE)


def prior_of(seen: Evidence, scores: Array, pile: Array) -> Prior:
    """Scores (L,), rows of the pile (L,) -> how members are expected to score.

    A labeled row is a member like any other, but its score holds its own label. Those of its neighbours in
    the pile do not, and members score lower than these by a number that is much the same in all data.
    """
    labels = seen.labels
    shots = float(np.exp(np.log(labels.sum(0)).mean()))  # labels per class
    weight = seen.graph.weights @ pile.astype(np.float64)  # (L,), of neighbours in the pile
    beside = (labels.sum(1) > 0) & (weight > 0)
    around = (seen.graph.weights @ (pile * scores))[beside] / weight[beside]
    mean = USUAL_MEAN + USUAL_GROWTH * np.log(shots)
    if len(around):
        mean = around.mean() - BELOW / shots**DECLINE
    variance = LEAST_VARIANCE + MORE_VARIANCE / shots
    return Prior(float(mean), variance, MEAN_WORTH * labels.shape[1])


def prior_with_named(seen: Evidence, spread: Spread, member: Array) -> Prior:
    """The prior of scores that named strangers have lowered; likely members (L,), zero outside the pile.

    Neighbours of labels are lowered less than other members. So the prior is made without named strangers,
    and moved by what they take from likely members.
    """
    nobody = np.zeros_like(spread.from_named)
    plain, _ = two_best(seen.graph, class_scores(seen.graph, spread.arrived, nobody))
    prior = prior_of(seen, plain, member > 0)
    weights = member / max(member.sum(), SMALLEST)
    moved = float(weights @ (spread.scores - plain))
    wider = variance_of(spread.scores, weights) - variance_of(plain, weights)
    return prior._replace(mean=prior.mean + moved, variance=prior.variance + max(wider, 0.0))


def variance_of(scores: Array, weights: Array) -> float:
    """(L,), weights (L,) that sum to 1."""
    return float(weights @ (scores - weights @ scores) ** 2)


def membership(seen: Evidence, spread: Spread, prior: Prior, others: Array) -> Array:
    """(L,), the probability that a row is a member; labeled rows are."""
    pile, scores = seen.pile, spread.scores
    members = members_by(np.empty(0), prior)
    strangers = strangers_by(scores[pile], spread.second[others], members, scores[seen.named])
    member = np.where(seen.named, 0.0, 1.0)
    member[pile] -= stranger_probability(scores[pile], members, strangers)
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


def held_out(seen: Evidence, spread: Spread, member: Array, steps: int) -> Trials:
    """All of scoring once more for each fold, without its labels: Z is a sum over folds, so that is cheap.

    Fewer labels score lower. The pile's surer half shows by how much, and held-out scores are raised by it.
    """
    graph, labels, arrived = seen.graph, seen.labels, spread.arrived
    count = labels.shape[1]
    none = np.empty((0, count))
    parts = [Trials(np.empty(0, np.int64), np.empty(0), none, none, none, np.empty(0, np.int64))]
    unlabeled = labels.sum(1) == 0
    surer = ~unlabeled
    if unlabeled.any():
        surer = unlabeled & (spread.scores >= np.median(spread.scores[unlabeled]))
    for number in range(spread.fold.max() + 1):
        out = spread.fold == number
        fewer, kept = arrived - spread.by_fold[:, number], labels * ~out[:, None]
        lower, _ = two_best(graph, class_scores(graph, fewer, spread.from_named))
        raised = lower[out] + (spread.scores - lower)[surer].mean()
        shares = shared_out(seen, fewer, kept, np.where(out, 1.0, member), steps)
        parts.append(
            Trials(
                np.flatnonzero(out),
                raised,
                logarithm(fewer[out]),
                cosines_without_itself(graph.rows, shares)[out],
                graph.rows[out] @ unit(summed(graph.rows, kept)).T,
                labels[out].argmax(1),
            )
        )
    return Trials(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def graph_and_pull(held: Trials, temperature: float | None) -> tuple[float, float]:
    """How much log Z and the cosines count in the class probabilities.

    Where classes are not blobs, held-out labels find the graph right and prototypes wrong: the pull shrinks.
    A given temperature divides squared distances, which are 2 - 2 cos.
    """
    if temperature is not None:
        return 2 / temperature / PULL, 2 / temperature
    best, least = (CAUTION, CAUTION * PULL), np.inf
    for move in MOVES:
        for share in PULLS:
            g, pull = CAUTION * move, CAUTION * move * share * PULL
            loss = loss_of(g * held.by_graph + pull * held.cosines, held.classes)
            prior = np.log(move) ** 2 + (np.log((PULL * share + 1) / (PULL + 1))) ** 2
            if loss + prior / (2 * LOG_SPREAD**2) < least:
                best, least = (float(g), float(pull)), loss + prior / (2 * LOG_SPREAD**2)
    return best


def loss_of(logits: Array, classes: Array) -> float:
    """(H, N), (H,) -> minus the log-probability of all together."""
    return -float(log_softmax(logits, 1)[np.arange(len(classes)), classes].sum())


def help_of_the_pile(held: Trials, graph_weight: float, pull: float) -> tuple[float, int]:
    """The log-probability that the pile adds to held-out labels, and how many are right without it."""
    alone = min(loss_of(PULL * move * held.alone, held.classes) for move in MOVES)
    with_it = loss_of(graph_weight * held.by_graph + pull * held.cosines, held.classes)
    return alone - with_it, int((held.alone.argmax(1) == held.classes).sum())


def reader(
    seen: Evidence, spread: Spread, shares: Array, space: Space | Lift, weights: tuple[float, float]
) -> OffTheGraph:
    """What answers for rows that are not in the graph."""
    graph, arrived = seen.graph, spread.arrived
    scale = SPREAD / np.sqrt(np.maximum(graph.degree, SMALLEST))[:, None]  # (L, 1)
    held = (
        graph.rows,
        scale * np.column_stack([arrived, spread.from_named]),
        spread.raw.max(1),
        unit(summed(graph.rows, arrived)),
        unit(summed(graph.rows, shares)),
    )
    like = space.center
    rows, passed, best, reached, refined = (
        torch.from_numpy(np.ascontiguousarray(each)).to(like) for each in held
    )
    return OffTheGraph(space, rows, passed, best, reached, refined, *weights)


def all_rows(
    model: OffTheGraph, features: Array, places: Array, logits: Array, scores: Array
) -> tuple[Array, Array]:
    """Logits (P, N) and scores (P,) of all rows: those at `places` (K,) by the graph, others read off it."""
    if len(places) == len(features):
        order = np.argsort(places)
        return logits[order], scores[order]
    read = read_in_blocks(model, features)
    every_logit, every_score = (each.double().numpy() for each in read)
    every_logit[places], every_score[places] = logits, scores
    return every_logit, every_score


def graph_rows(given: Given, landmarks: int) -> Array:
    """Places (K,) of the rows that make the graph: all, or evenly spaced ones of a ranking."""
    labeled = given.labels.sum(1) > 0
    pile = np.flatnonzero(~labeled & ~given.named)
    special = np.flatnonzero(labeled | given.named)
    if len(special) <= MOST_LABELED and len(pile) <= max(EXACT, landmarks):
        return np.arange(len(labeled))
    return np.concatenate(
        [
            evenly(special, MOST_LABELED, MOST_LABELED, given),
            evenly(pile, max(EXACT, landmarks), landmarks, given),
        ]
    )


def evenly(places: Array, most: int, wanted: int, given: Given) -> Array:
    """Of more than `most` places the `wanted` ones evenly spaced in the ranking by nearness to a class."""
    if len(places) <= most:
        return places
    labeled = np.flatnonzero(given.labels.sum(1) > 0)
    rows = given.space(torch.from_numpy(np.array(given.features[labeled])))
    p = unit(summed(rows.numpy(), given.labels[labeled]))  # (N, D)
    nearness = read_in_blocks(
        NearestPrototypes(given.space, torch.from_numpy(p).to(rows)), given.features
    )[1]
    ranking = places[np.argsort(nearness.numpy()[places], kind="stable")]
    found: Array = ranking[np.linspace(0, len(places) - 1, wanted).round().astype(int)]
    return found
