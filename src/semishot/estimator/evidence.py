"""What is known of the rows of a graph, and what arrives of their labels.

A pile of at most `EXACT` rows is in the graph. Of a larger one, `LANDMARKS` rows are: evenly spaced in the
ranking by cosine to the nearest prototype, which neither order nor rotation changes.
Letters: P rows, K of them in the graph, L different ones, N classes, F folds, D features.
"""

from typing import NamedTuple

import numpy as np
import torch

from semishot.estimator.blocks import Array, Space, evenly_spaced
from semishot.estimator.graph import SMALLEST, Graph, propagate, summed, unit
from semishot.estimator.lift import Lift
from semishot.estimator.models import NearestPrototypes, read_in_blocks
from semishot.estimator.neighbours import Finder

EXACT, LANDMARKS = 2000, 500
"""Rows of the pile up to which all are in the graph, and how many are beyond that."""
MOST_LABELED = 2000
"""Labeled rows in the graph, at most."""
FOLDS = 5


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
    found: Array = ranking[evenly_spaced(len(places), wanted)]
    return found
