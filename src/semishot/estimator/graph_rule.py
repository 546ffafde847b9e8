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

from semishot.estimator.blocks import Array, Space
from semishot.estimator.graph import (
    SMALLEST,
    SPREAD,
    Graph,
    cosines_without_itself,
    propagate,
    smoothed,
    summed,
    unit,
)
from semishot.estimator.lift import Lift
from semishot.estimator.neighbours import Anew, Finder
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
MORE_PULL = 4.0
"""Where refined prototypes take part in the score."""
CROWDED, SINGLE = 0.3, 0.45
"""Correlation of score and density in the pile: strangers are crowds below, single above."""
BELOW, NEARER, DECLINE = 2.0, 0.5, 0.7
"""Members score 2 below the neighbours of labeled rows at one label per class, 2 / K^0.7 at K labels;
0.5 less where refined prototypes take part."""
USUAL_MEAN, USUAL_GROWTH = 3.0, 1.5
"""Where labels have no neighbours in the pile: at one label per class, and what each e-fold adds."""
LEAST_VARIANCE, MORE_VARIANCE = 4.0, 2.0
"""Of members' scores: 4 + 2 / K, and up to 6 where refined prototypes take part."""
STEPS = 3
FOLDS = 5
HARM, HARM_EACH = 4.0, 0.1
"""Held-out log-probability that the pile may cost before it is ignored: in all, and for each label."""
CAUTION = 0.5
"""Of the weights 1 and 12 by which rows were shared out: what the class probabilities take of them."""
MOVES = np.array([0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8])
PULLS = np.array([0.0, 0.17, 0.33, 0.67, 1.0, 1.33, 2.0])
LOG_SPREAD = 0.9
"""How far, in natural logarithms, held-out labels are expected to move these two."""
ROUGHER = 0.015
"""The share of edges that prototypes part, beyond those that the graph parts: from here on only the graph
counts."""


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
    finder: Finder | None = None
    """Where neighbours are remembered; None: they are found anew."""


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

    @property
    def arrived(self) -> Array:
        """(L, N), Z."""
        found: Array = self.by_fold.sum(1)
        return found


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


class Weighing(NamedTuple):
    """What counts how much."""

    shares: Array  # (L, N), of each row in each prototype
    lean: float
    graph_weight: float
    pull: float
    answers: Array  # (L, N + 1), logits and scores


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


def learn(given: Given, options: Options) -> Learned:
    """Learn with the pile, or without it where held-out labels are predicted much worse with it."""
    places = graph_rows(given, options.landmarks)  # (K,)
    found = learned_on(given, places, options)
    if found.gain < -HARM - HARM_EACH * len(found.held_out.classes):
        special = places[given.named[places] | (given.labels[places].sum(1) > 0)]
        alone = learned_on(given, special, options)
        return alone._replace(pile_used=False, gain=found.gain)
    return found


def learned_on(given: Given, places: Array, options: Options) -> Learned:
    """Learn on a graph of these rows (K,)."""
    finder = given.finder or Anew(given.features, given.space)
    graph, first, copy_of = finder.graph(places)
    rows = graph.rows  # (L, D)
    seen = evidence(graph, given.labels[places], given.named[places], copy_of)
    spread = spread_labels(seen)
    pile, count = seen.pile, seen.labels.shape[1]
    others = (pile if pile.any() else ~seen.named) & (count > 1)
    by_labels = scores_of(seen, spread, pulls(seen, spread.arrived, spread.arrived, 0.0))
    member = membership(seen, by_labels, prior_of(seen, by_labels.best, pile, 0.0), others)  # (L,)
    shares = shared_out(seen, spread.arrived, seen.labels, member, options.steps)  # (L, N)

    lean = apart(seen, by_labels.best)
    pulled = pulls(seen, spread.arrived, shares, lean)  # (L, N)
    scores = scores_of(seen, spread, pulled)
    prior = prior_of(seen, scores.best, pile, lean)
    if seen.named.any():
        plain = scores_of(seen, spread._replace(from_named=0 * spread.from_named), pulled)
        prior = prior_with_named(seen, plain.best, scores.best, member * pile, lean)
    full = WithAll(member, scores.best, lean, options.steps)
    held = held_out(seen, spread, full)
    members = members_by(held.scores, prior)
    named = scores.best[seen.named]
    strangers = strangers_by(scores.best[pile], scores.second[others], members, named)
    cosines = cosines_without_itself(rows, shares)  # (L, N)
    expected = PULL * roundness(graph, spread.arrived, cosines, member)
    graph_weight, pull = graph_and_pull(held, options.temperature, expected)
    logits = graph_weight * logarithm(spread.arrived) + pull * cosines  # (L, N)
    weighing = Weighing(shares, lean, graph_weight, pull, np.column_stack([logits, scores.best]))
    model = reader(seen, spread, scores, given.space, weighing)
    logits, every_score = all_rows(model, finder, places, logits[copy_of], scores.best[copy_of])
    stranger = stranger_probability(every_score, members, strangers)  # (P,)
    answer = Answer(softmax(logits, 1), every_score, stranger)
    unknown = ~given.named & (given.labels.sum(1) == 0)  # (P,)
    error = members.spread / (1 + prior.worth + len(held.scores)) ** 0.5
    found = count_strangers(every_score[unknown], stranger[unknown], members, error)
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


def evidence(graph: Graph, labels: Array, named: Array, copy_of: Array) -> Evidence:
    """Labels (K, N), named (K,) and the row of the graph (K,) of each of K rows with copies."""
    together = np.zeros((len(graph.rows), labels.shape[1]))
    np.add.at(together, copy_of, labels)  # (L, N)
    is_named = np.zeros(len(graph.rows), bool)
    is_named[copy_of[named]] = True
    unlabeled = together.sum(1) == 0
    return Evidence(graph, together, is_named & unlabeled, ~is_named & unlabeled)


def spread_labels(seen: Evidence) -> Spread:
    graph, labels = seen.graph, seen.labels
    fold = folds(graph, labels)
    each = fold[:, None] == np.array([*range(fold.max() + 1), -1])  # (L, F + 1)
    by_fold = propagate(graph, each[:, :, None] * labels[:, None])  # (L, F + 1, N)
    from_named = propagate(graph, seen.named[:, None].astype(np.float64))[:, 0]  # (L,)
    return Spread(fold, by_fold, from_named)


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


def scores_of(seen: Evidence, spread: Spread, pulled: Array) -> Scores:
    """`pulls` (L, N) -> log Z + pulls, the best of each row, and that of its second-best class.

    Where more arrives from named strangers than from the class, Z shrinks: Z' = Z / (1 + 0.4 z_named / Z).
    """
    arrived = np.maximum(spread.arrived, SMALLEST)
    raw = np.log(arrived) + pulled - np.log1p(NAMED * spread.from_named[:, None] / arrived)
    ordered = np.sort(raw, 1)
    best, second = ordered[:, -1], ordered[:, -min(2, raw.shape[1])]
    return Scores(raw, smoothed(seen.graph, best, SHARE), smoothed(seen.graph, second, SHARE))


def prior_of(seen: Evidence, scores: Array, pile: Array, lean: float) -> Prior:
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
        mean = around.mean() - (BELOW - NEARER * lean) / shots**DECLINE
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


def roundness(graph: Graph, arrived: Array, cosines: Array, member: Array) -> float:
    """Z (L, N), cosines with prototypes (L, N), probability of a member (L,) -> 1 for blobs, 0 for shapes.

    Neighbours mostly are of one class. Where prototypes part more neighbours than the graph's own answer
    does, classes have a shape that prototypes do not follow.
    """
    edges = graph.weights.tocoo()
    row, column = edges.coords
    weights = edges.data * member[row] * member[column]
    by_graph, by_prototype = arrived.argmax(1), cosines.argmax(1)
    parted = (by_prototype[row] != by_prototype[column]).astype(np.float64)
    parted -= by_graph[row] != by_graph[column]
    more = float(weights @ parted / max(weights.sum(), SMALLEST))
    return min(1.0, max(0.0, 1 - more / ROUGHER))


def graph_and_pull(held: Trials, temperature: float | None, expected: float) -> tuple[float, float]:
    """How much log Z and the cosines count in the class probabilities; `expected` is the pull without trials.

    Where classes are not blobs, held-out labels find the graph right and prototypes wrong: the pull shrinks.
    A given temperature divides squared distances, which are 2 - 2 cos.
    """
    if temperature is not None:
        return 2 / temperature / PULL, 2 / temperature
    best, least = (CAUTION, CAUTION * expected), np.inf
    if not len(held.classes):
        return best
    for move in MOVES:
        for share in PULLS:
            g, pull = CAUTION * move, CAUTION * move * share * PULL
            loss = loss_of(g * held.by_graph + pull * held.cosines, held.classes)
            prior = np.log(move) ** 2 + (np.log((PULL * share + 1) / (expected + 1))) ** 2
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
    seen: Evidence, spread: Spread, scores: Scores, space: Space | Lift, weighing: Weighing
) -> OffTheGraph:
    """What answers for rows that are not in the graph."""
    graph, arrived = seen.graph, spread.arrived
    scale = SPREAD / np.sqrt(np.maximum(graph.degree, SMALLEST))[:, None]  # (L, 1)
    reached, refined = unit(summed(graph.rows, arrived)), unit(summed(graph.rows, weighing.shares))
    lean = weighing.lean
    held = (
        graph.rows,
        scale * np.column_stack([arrived, spread.from_named]),
        scores.raw.max(1),
        weighing.answers,
        (PULL + MORE_PULL * lean) * ((1 - lean) * reached + lean * refined),
        refined,
    )
    rows, passed, best, answers, scoring, prototypes = (
        torch.from_numpy(np.ascontiguousarray(each)).to(space.center) for each in held
    )
    weights = weighing.graph_weight, weighing.pull
    return OffTheGraph(space, rows, passed, best, answers, scoring, prototypes, *weights)


def all_rows(
    model: OffTheGraph, finder: Finder, places: Array, logits: Array, scores: Array
) -> tuple[Array, Array]:
    """Logits (P, N) and scores (P,) of all rows: those at `places` (K,) by the graph, others read off it."""
    if len(places) == len(finder.features):
        order = np.argsort(places)
        return logits[order], scores[order]
    read = finder.read(model)
    every_logit, every_score = (each.double().numpy() for each in read)
    every_logit[places], every_score[places] = logits, scores
    return every_logit, every_score


def graph_rows(given: Given, landmarks: int) -> Array:
    """Places (K,) of the rows that make the graph: all, or evenly spaced ones of a ranking."""
    labeled = given.labels.sum(1) > 0
    pile = np.flatnonzero(~labeled & ~given.named)
    special = np.flatnonzero(labeled | given.named)
    if given.finder is not None and given.finder.landmarks is not None:
        kept = evenly(special, MOST_LABELED, MOST_LABELED, given)
        return np.union1d(np.setdiff1d(given.finder.landmarks, special), kept)
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
