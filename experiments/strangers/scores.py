"""Who belongs to no class: a score on the graph, how members score, where to cut, and how probable it is.

The score of a row, high for members:   s = smooth(max_c [log Z_c + 12 cos(x, sum_j Z_jc x_j)]).
Labels held out say how members score; without any (one label per class) a prior does. Since Z and cosines
have no unit, the prior's numbers hold for any features. Letters: L rows of the graph, U of the pile,
H held-out labels, N classes, F folds, D features.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, gammaln, log_softmax, softmax
from scipy.stats import t as student
from strangers.graph import (
    SMALLEST,
    Array,
    Graph,
    cosines_without_itself,
    smoothed,
)

PULL = 12.0
"""Of a cosine with a prototype, beside the logarithm of what the graph brings."""
MORE_PULL = 4.0
"""Where refined prototypes take part in the score."""
CROWDED, SINGLE = 0.3, 0.45
"""Correlation of score and density in the pile: strangers are crowds below, single above."""
SHARE = 0.6
"""Of a score that is its neighbours'."""
STEPS = 3
FOLDS = 5
NAMED = 0.4
"""How much a label of a named stranger takes away, beside one of a class."""

BELOW, NEARER, DECLINE = 2.0, 0.5, 0.7
"""Members score 2 below the neighbours of labeled rows at one label per class, 2 / K^0.7 at K labels."""
USUAL_MEAN, USUAL_GROWTH = 3.0, 1.5
"""Where labels have no neighbours in the pile: at one label, and what each e-fold of labels adds."""
LEAST_VARIANCE, MORE_VARIANCE = 4.0, 2.0
"""Of members' scores: 4 + 2 / K, and up to 6 where refined prototypes take part."""
MEAN_WORTH, VARIANCE_WORTH = 0.7, 20.0
"""Held-out labels that the prior is worth: of the mean, for each class; of the variance."""
STRANGER_VARIANCE, STRANGER_WORTH = 7.0, 10.0
ANCHOR = 0.3
"""What a second-best score of a member says of how strangers score: worth this many strangers."""
ROUNDS = 50


class Members(NamedTuple):
    """How members score: Student's distribution, and the held-out scores it was made of."""

    mean: float
    spread: float
    freedom: float
    held_out: Array
    """(H,), ascending."""


class Strangers(NamedTuple):
    """How strangers score, and their share of the pile."""

    mean: float
    variance: float
    share: float


def apart(graph: Graph, scores: Array, pile: Array) -> float:
    """Scores (L,), which rows are the pile's (L,) -> 0 where strangers are crowds, 1 where single.

    Rows of low score are strangers, if any are. Where they have as many near neighbours as others have,
    they could pull a prototype, and prototypes keep to what labels reach. Where they lie apart, or there are
    none, prototypes made of the whole pile know the classes better.
    """
    if pile.sum() < 3:
        return 0.0
    dense = np.log(np.maximum(graph.degree[pile], SMALLEST))
    if dense.std() * scores[pile].std() < SMALLEST:
        return 0.0
    alike = np.corrcoef(scores[pile], dense)[0, 1]
    return float(np.clip((alike - CROWDED) / (SINGLE - CROWDED), 0, 1))


def pulls(graph: Graph, arrived: Array, refined: Array, lean: float) -> Array:
    """Z (L, N), refined weights (L, N) -> (L, N): cosines with prototypes of both, times 12 to 16."""
    found = cosines_without_itself(graph.rows, arrived)
    if lean > 0:
        found = (1 - lean) * found + lean * cosines_without_itself(graph.rows, refined)
    return (PULL + MORE_PULL * lean) * found


def class_scores(arrived: Array, pulled: Array, named: Array | None = None) -> Array:
    """Z (L, N), `pulls` (L, N), what arrives from named strangers (L,) -> (L, N), log Z + 12 cos.

    Where more arrives from named strangers than from the class, Z shrinks: Z' = Z / (1 + z_named / Z).
    """
    found = np.log(np.maximum(arrived, SMALLEST)) + pulled
    if named is not None:
        found -= np.log1p(NAMED * named[:, None] / np.maximum(arrived, SMALLEST))
    return found


def two_best(graph: Graph, scores: Array) -> tuple[Array, Array]:
    """(L, N) -> the score (L,), and the second-best class's (L,): how a row would score without its own."""
    ordered = np.sort(scores, 1)
    best, second = ordered[:, -1], ordered[:, -min(2, scores.shape[1])]
    return smoothed(graph, best, SHARE), smoothed(graph, second, SHARE)


class Prior(NamedTuple):
    """How members are expected to score before any label is held out."""

    mean: float
    variance: float
    worth: float
    """Held-out labels that the mean is worth."""


def prior_of(graph: Graph, scores: Array, labels: Array, pile: Array, lean: float = 0.0) -> Prior:
    """Scores (L,), one-hot (L, N), which rows are the pile's (L,) -> the prior.

    A labeled row is a member like any other, but its own score holds its own label. The scores of its
    neighbours in the pile do not, and those of members lie below them by a number that is much the same in
    all data: the neighbours of a label are nearer to a label than members are.
    """
    shots = float(np.exp(np.log(labels.sum(0)).mean()))  # labels per class
    beside = graph.weights[np.flatnonzero(labels.sum(1) > 0)] * pile  # (S, L)
    total = beside.sum(1)  # (S,)
    around = (beside @ scores)[total > 0] / total[total > 0]
    mean = USUAL_MEAN + USUAL_GROWTH * np.log(shots)
    if len(around):
        mean = around.mean() - (BELOW - NEARER * lean) / shots**DECLINE
    variance = LEAST_VARIANCE + MORE_VARIANCE * max(1 / shots, lean)
    return Prior(float(mean), variance, MEAN_WORTH * labels.shape[1])


def members_by(held_out: Array, prior: Prior) -> Members:
    """Held-out scores (H,), the prior: the prediction of one more, of unknown mean and variance."""
    count, own = len(held_out), prior.worth
    mean = held_out.mean() if count else prior.mean
    worth = own + count
    squares = ((held_out - mean) ** 2).sum() + own * count / worth * (mean - prior.mean) ** 2
    variance = (VARIANCE_WORTH * prior.variance + squares) / (VARIANCE_WORTH + count)
    center = (own * prior.mean + count * mean) / worth
    spread = np.sqrt(variance * (1 + 1 / worth))
    return Members(float(center), float(spread), VARIANCE_WORTH + count, np.sort(held_out))


SKEW = 1.08
"""Members have a longer tail towards strangers than Student's."""
EMPIRICAL = 40
"""Held-out scores from which on their own quantile counts as much as Student's."""


def cutoff(members: Members, reject: float) -> float:
    """The score below which a share `reject` of members lies."""
    found = members.mean + SKEW * members.spread * float(student.ppf(reject, members.freedom))
    count = len(members.held_out)
    place = (
        reject * (count + 1) - 1
    )  # the share of new scores below the i-th smallest is i / (H + 1)
    if place < 0:
        return found
    own = float(np.interp(place, np.arange(count), members.held_out))
    weight = count / (count + EMPIRICAL)
    return (1 - weight) * found + weight * own


def strangers_by(scores: Array, second: Array, members: Members, named: Array) -> Strangers:
    """Pile scores (U,), second-best ones (U,), those of named strangers -> the rest of the mixture, by EM.

    Members stay as they are. Second-best scores of members, and a prior variance, keep it defined where
    the pile has no stranger at all.
    """
    mean, variance, share = float(second.mean()), STRANGER_VARIANCE, 0.4
    for _ in range(ROUNDS):
        p = stranger_probability(scores, members, Strangers(mean, variance, share))  # (U,)
        anchors = (
            ANCHOR * (1 - p) if len(p) else np.full(len(second), ANCHOR)
        )  # no pile: the labels' own
        weights = np.concatenate([p, anchors, np.ones(len(named))])
        values = np.concatenate([scores, second, named])
        total = weights.sum()
        mean = min((weights @ values) / max(total, SMALLEST), members.mean - members.spread)
        squares = weights @ (values - mean) ** 2
        variance = (squares + STRANGER_WORTH * STRANGER_VARIANCE) / (total + STRANGER_WORTH)
        share = float(np.clip((p.sum() + 1) / (len(p) + 4), 0.001, 0.999))
    return Strangers(float(mean), float(variance), share)


def stranger_probability(scores: Array, members: Members, strangers: Strangers) -> Array:
    """(U,) -> (U,), Bayes' rule: falls with the score, and stays where a component's tail would turn it."""
    s = np.clip(scores, min(strangers.mean, members.mean), members.mean)
    f, v = members.freedom, strangers.variance
    z = (s - members.mean) / members.spread
    inside = -(f + 1) / 2 * np.log1p(z**2 / f) - np.log(members.spread)
    inside += gammaln((f + 1) / 2) - gammaln(f / 2) - np.log(np.pi * f) / 2  # Student's density
    outside = -((s - strangers.mean) ** 2) / (2 * v) - np.log(2 * np.pi * v) / 2
    odds = np.log(strangers.share) - np.log1p(-strangers.share)
    found: Array = expit(outside - inside + odds)
    return found


def refined(graph: Graph, arrived: Array, labels: Array, member: Array) -> Array:
    """Z (L, N), one-hot (L, N), probability of a member (L,) -> weights (L, N) of each row in each prototype.

    Soft k-means on the graph: a label counts 1, a row of the pile by its class and by how surely it is one.
    """
    labeled = labels.sum(1) > 0
    by_graph = np.log(np.maximum(arrived, SMALLEST))
    weights = labels
    for _ in range(STEPS):
        shares = softmax(by_graph + PULL * cosines_without_itself(graph.rows, weights), 1)  # (L, N)
        weights = np.where(labeled[:, None], labels, member[:, None] * shares)
    return weights


CAUTION = 0.5
"""Of the weights 1 and 12 by which rows were shared out: what the class probabilities take of them."""
MOVES = np.array([0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8])
PULLS = np.array([0.0, 0.17, 0.33, 0.67, 1.0, 1.33, 2.0])
LOG_SPREAD = 0.9
"""How far, in natural logarithms, held-out labels are expected to move these two."""
ROUGHER = 0.015
"""Share of edges, more than the graph's own, that prototypes must cut to be trusted no longer."""


def roundness(graph: Graph, arrived: Array, cosines: Array, member: Array) -> float:
    """Z (L, N), cosines with prototypes (L, N), probability of a member (L,) -> 1 for blobs, 0 for shapes.

    Neighbours mostly are of one class. Where prototypes part more neighbours than the graph's own answer
    does, classes have a shape that prototypes do not follow.
    """
    edges = graph.weights.tocoo()
    row, column = edges.coords
    weights = edges.data * member[row] * member[column]
    by_graph, by_prototype = arrived.argmax(1), cosines.argmax(1)
    parted = (by_prototype[row] != by_prototype[column]).astype(float)
    parted -= by_graph[row] != by_graph[column]
    return float(np.clip(1 - weights @ parted / max(weights.sum(), SMALLEST) / ROUGHER, 0, 1))


def graph_and_pull(
    by_graph: Array, cosines: Array, classes: Array, round_: float = 1.0
) -> tuple[float, float]:
    """Held-out log Z (H, N), cosines (H, N), classes (H,) -> how much each counts in the class probabilities.

    The expectation is `roundness` of the whole pull; held-out labels move both from there.
    """
    expected = PULL * round_
    best, least = (CAUTION, CAUTION * expected), np.inf
    if not len(classes):
        return best
    here = np.arange(len(classes))
    for move in MOVES:
        for share in PULLS:
            g, pull = CAUTION * move, CAUTION * move * share * PULL
            loss = -log_softmax(g * by_graph + pull * cosines, 1)[here, classes].sum()
            prior = np.log(move) ** 2 + (np.log((PULL * share + 1) / (expected + 1))) ** 2
            if loss + prior / (2 * LOG_SPREAD**2) < least:
                best, least = (float(g), float(pull)), loss + prior / (2 * LOG_SPREAD**2)
    return best
