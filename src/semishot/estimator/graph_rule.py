"""What labels, a pile and named strangers teach, on a graph of neighbours.

Labels held out in turn show how members score and how much graph and prototypes count in the class
probabilities. Rows that are not in the graph are read off it (`models`).
Letters: P rows, K of them in the graph, L different ones, U unlabeled, H held out, N classes, D features.
"""

from typing import NamedTuple

import numpy as np
import torch
from scipy.special import log_softmax, softmax

from semishot.estimator.blocks import Array, Space
from semishot.estimator.evidence import (
    LANDMARKS,
    Evidence,
    Given,
    Spread,
    evidence,
    graph_rows,
    logarithm,
    spread_labels,
)
from semishot.estimator.graph import SMALLEST, SPREAD, Graph, cosines_without_itself, summed, unit
from semishot.estimator.graph_scores import (
    MORE_PULL,
    Scores,
    Trials,
    WithAll,
    apart,
    held_out,
    membership,
    prior_of,
    prior_with_named,
    pulls,
    room,
    scores_of,
    shared_out,
)
from semishot.estimator.lift import Lift
from semishot.estimator.models import PULL, SHARE, Answer, OffTheGraph
from semishot.estimator.neighbours import Anew, Finder
from semishot.estimator.strangers import (
    Members,
    Prior,
    StrangerCount,
    Strangers,
    count_strangers,
    members_by,
    stranger_probability,
    strangers_by,
)

STEPS = 3
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


class Weighing(NamedTuple):
    """What counts how much."""

    shares: Array  # (L, N), of each row in each prototype
    lean: float
    graph_weight: float
    pull: float
    answers: Array  # (L, N + 1), logits and scores


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
    full = WithAll(member, scores.best, lean, options.steps)
    prior = prior_with_all(seen, spread, pulled, full)
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


def prior_with_all(seen: Evidence, spread: Spread, pulled: Array, full: WithAll) -> Prior:
    """How members are expected to score; named strangers lower that."""
    if not seen.named.any():
        return prior_of(seen, full.scores, seen.pile, full.lean)
    plain = scores_of(seen, spread._replace(from_named=0 * spread.from_named), pulled)
    return prior_with_named(seen, plain.best, full.scores, full.member * seen.pile, full.lean)


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
    weights = weighing.graph_weight, weighing.pull, SHARE * room(seen)
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
