"""What labels and a pile say of each row and class: the numbers that the learned rule reads.

For a row and a class: cosines with the prototype of its labels, with the nearest of its labels, with
prototypes that the pile has refined in three ways (by what labels reach, by OSLO, by soft k-means), what
arrives of its labels in three ways, the cosine before centering, and with the class's name. For a row: how
near its neighbours are and what is said of them, and named strangers. For the pile: its size, its labels and
how all these numbers are distributed in it. Labels held out in turn show how members of a class look.
Letters: P rows, L of them in the graph, C rows at once, S labeled, H held out, G groups of labels held out
together, N classes, D features, A numbers.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from scipy.special import expit, softmax

from semishot.estimator.neighbours import TINY, Near, NeighbourGraph, arriving
from semishot.estimator.spaces import Array, evenly_spaced, unit

SCALE, KMEANS_STEPS, OSLO_STEPS = 12.0, 5, 2
SMALLEST = 1e-9
NO_NAMED_STRANGER = -0.2
"""In place of the cosine with the nearest one."""
PAIR, ROW, PILE = 10, 10, 62
"""Numbers of a row and a class, of a row, of a pile."""
FOLDS = 4
"""Groups of a class's labels that are held out in turn, at most."""
CONTEXT = 400
"""Rows of the pile that a pile is known by, at most."""


class Statistics(NamedTuple):
    """What is said of C rows."""

    pairs: Array  # (C, N, 10)
    rows: Array  # (C, 10)


class Reference(Struct, frozen=True):
    """What any row is compared with: a graph, what labels have left in it, and prototypes."""

    rows: Array  # (L, D), unit length
    same: float  # near copies have a larger cosine
    degrees: Array  # (3, L)
    arrived: Array  # (3, L, N + 1), of classes and of named strangers
    sums: Array  # (4, N, D), weighted sums of labeled rows and of the graph's
    weights: Array  # (4, L, N), of the graph's rows in them
    around: Array  # (3, L), what neighbours tell of each other
    labeled: Array  # (S, D), unit length
    labels: Array  # (S, N), weights; zeros for named strangers
    by_direction: Array  # (N, D), prototypes before centering, unit length
    names: Array  # (N, D), unit length, zeros for a class without a name

    def statistics(self, x: Array, directions: Array, near: Near) -> Statistics:
        """Rows (C, D), their directions before centering (C, D) and their neighbours -> numbers."""
        arrived = arriving(near, self.degrees, self.arrived)  # (3, C, N + 1)
        along = x @ self.labeled.T  # (C, S)
        nearest = np.zeros((len(x), self.labels.shape[1]))
        for number, given in enumerate(self.labels.T > 0):
            if given.any():
                nearest[:, number] = along[:, given].max(1)
        log_z = np.log(arrived + SMALLEST) / 4
        pairs = [
            *cosines_without_copies(x, self.rows, near.copy, self.sums, self.weights),
            nearest,
            *log_z[:, :, :-1],
            directions @ self.by_direction.T,
            x @ self.names.T,
        ]
        named = self.labels.sum(1) == 0
        last = near.cosines.shape[1] - 1
        rows = [
            *(near.cosines[:, min(index, last)] for index in (0, 2, 6, 14)),
            *(near.around(each) for each in self.around),
            *log_z[1:, :, -1],
            along[:, named].max(1) if named.any() else np.full(len(x), NO_NAMED_STRANGER),
        ]
        single = [np.stack(each, -1).astype(np.float32) for each in (pairs, rows)]
        return Statistics(*single)


def cosines_without_copies(
    x: Array, rows: Array, copy: Array, sums: Array, weights: Array
) -> Array:
    """Of x (C, D) with prototypes (4, N, D), each made without the graph's row that x is a copy of.

    copy: which of the graph's rows (L, D) that is (C,), -1 for none; weights (4, L, N): theirs in the sums.
    For p = sum_j w_j x_j and unit rows, x.(p - w x_i) = x.p - w x.x_i and
    |p - w x_i|^2 = |p|^2 - 2 w x_i.p + w^2, where x_i is about x.
    """
    same = np.einsum("cd,cd->c", x, rows[copy])[:, None]  # (C, 1)
    along = x @ sums.swapaxes(1, 2)  # (4, C, N)
    own = np.where((copy >= 0)[:, None], weights[:, copy], 0)  # (4, C, N)
    squares = (sums**2).sum(-1)[:, None] - 2 * own * along + own**2
    cosines = (along - own * same) / np.sqrt(np.maximum(squares, TINY))
    return np.where(squares > 1e-9, cosines.clip(-1, 1), 0)


@dataclass(frozen=True)
class Known:
    """A graph and what the user said: labels and named strangers; statistics of any rows beside it."""

    graph: NeighbourGraph
    near: Near  # of the S rows with a label or named a stranger
    x: Array  # (S, D), unit length
    directions: Array  # (S, D), before centering
    labels: Array  # (S, N), weights; zeros for named strangers
    names: Array | None = None  # (N, D), unit length: of the classes; zeros for no name

    @property
    def named(self) -> Array:
        """(S,), named strangers."""
        named: Array = self.labels.sum(1) == 0
        return named

    @cached_property
    def group(self) -> Array:
        """(S,), with which labels of its class each is held out; -1 for a label that never is.

        The group of a label is its rank by nearness to the prototype, so that order does not matter.
        Copies are held out together.
        """
        found, copy, count = np.full(len(self.x), -1), self.near.copy, 0
        for given in self.labels.T > 0:
            own = np.flatnonzero(given)
            keys = np.where(copy[own] >= 0, copy[own], -1 - own)
            _, first, unit_of = np.unique(keys, return_index=True, return_inverse=True)
            folds = min(FOLDS, len(first))
            if folds < 2:
                continue
            rows = self.x[own[first]]
            ranking = np.lexsort([rows[:, 0], (rows @ rows.sum(0)).round(5)])
            fold = np.empty(len(first), int)
            fold[ranking] = np.arange(len(first)) % folds
            found[own] = count + fold[unit_of]
            count += folds
        return found

    @cached_property
    def by_group(self) -> Array:
        """(S, G), the weight of a label in the column of its group."""
        groups = np.arange(self.group.max(initial=-1) + 1)
        weights: Array = (self.group[:, None] == groups) * self.labels.sum(1, keepdims=True)
        return weights

    @cached_property
    def arrived(self) -> tuple[Array, Array]:
        """What arrives of classes and named strangers (3, L, N + 1), and of each group (3, L, G).

        A labeled row that is not in the graph, nor a copy of one, gives its label to its neighbours."""
        near, given = self.near, np.column_stack([self.labels, self.named])  # (S, N + 1)
        alone = given * (self.group < 0)[:, None]
        columns = np.concatenate([self.by_group, alone], 1)  # (S, G + N + 1)
        seeds = np.zeros((len(self.graph.rows), columns.shape[1]))
        inside, outside = near.copy >= 0, near.copy < 0
        np.add.at(seeds, near.copy[inside], columns[inside])
        weights = near.weights / np.maximum(near.weights.sum(1, keepdims=True), TINY)  # (S, k)
        spread = weights[outside][:, :, None] * columns[outside][:, None]
        np.add.at(seeds, near.indices[outside], spread)
        groups, alone = np.split(self.graph.spread(seeds), [self.by_group.shape[1]], axis=2)
        class_of = (self.by_group.T @ given > 0).astype(float)  # (G, N + 1)
        return alone + groups @ class_of, groups

    @cached_property
    def pile(self) -> Array:
        """(L,), which rows of the graph nothing is said of."""
        pile: Array = ~np.isin(np.arange(len(self.graph.rows)), self.near.copy)
        return pile

    @cached_property
    def reference(self) -> Reference:
        graph, near, labels = self.graph, self.graph.near, self.labels
        rows, dtype = graph.rows, graph.rows.dtype
        names = np.zeros((labels.shape[1], rows.shape[1])) if self.names is None else self.names
        given = (labels.T @ self.x).astype(np.float64)  # (N, D)
        given = np.where(labels.sum(0)[:, None] > 0, given, names)  # a class begins with its name
        weights = self._refinements(given).astype(dtype)  # (4, L, N)
        sums = (given + weights.swapaxes(1, 2) @ rows).astype(dtype)  # (4, N, D)
        arrived = self.arrived[0].astype(dtype)
        reached = arriving(near, graph.degrees, arrived)[1, :, :-1]  # (L, N)
        around = [
            np.log(reached + SMALLEST).max(1) / 4,
            cosines_without_copies(rows, rows, near.copy, sums, weights)[2].max(1),
            near.cosines[:, min(6, near.cosines.shape[1] - 1)],
        ]
        arrays = (
            *(graph.degrees, arrived, sums, weights, np.stack(around)),
            *(self.x, labels, unit(labels.T @ self.directions), names),
        )
        return Reference(rows, graph.same, *(each.astype(dtype) for each in arrays))

    def _refinements(self, given: Array) -> Array:
        """Sums of labeled rows (N, D) -> weights of the graph's rows (4, L, N) in prototypes of the labels
        alone, and refined by what labels reach, by OSLO and by soft k-means."""
        rows, pile = self.graph.rows, self.pile[:, None].astype(np.float64)

        def cosines(weights: Array) -> Array:
            """With the prototypes that these weights make: (L, N)."""
            prototypes = unit(given + weights.T.astype(rows.dtype) @ rows)
            along: Array = rows @ prototypes.T.astype(rows.dtype)
            return along

        none = by_oslo = by_kmeans = np.zeros((len(rows), len(given)))
        shares = np.full(none.shape, 1 / len(given))
        for _ in range(OSLO_STEPS):
            along = cosines(by_oslo)
            member = expit((shares * along).sum(1, keepdims=True) / 0.05)
            shares = softmax(member * along / 0.1, 1)
            by_oslo = pile * member * shares
        for _ in range(KMEANS_STEPS):
            by_kmeans = pile * softmax(SCALE * cosines(by_kmeans), 1)
        return np.stack([none, pile * self.arrived[0][1][:, :-1], by_oslo, by_kmeans])

    def held_out(self) -> tuple[Statistics, Array]:
        """Labeled rows as if their group had no labels: statistics of H rows, and which of S they are."""
        rows = np.flatnonzero(self.group >= 0)  # (H,)
        reference, near = self.reference, self.near.take(rows)
        x, directions = self.x[rows], self.directions[rows]
        seen = reference.statistics(x, directions, near)
        own, group = self.labels[rows].argmax(1), self.group[rows]
        pairs, here = seen.pairs, np.arange(len(rows))

        def likeness(y: Array, sums: Array, labeled: Array) -> Array:
            """(H,), of y (H, D) with the sum of their class but for their group."""
            left = unit(sums[own] - (self.by_group.T @ labeled)[group])
            along: Array = np.einsum("hd,hd->h", left, y)
            return along

        for number, sums in enumerate(reference.sums):
            pairs[here, own, number] = likeness(x, sums, self.x)
        along = x @ self.x.T  # (H, S)
        others = (self.labels[:, own].T > 0) & (self.group != group[:, None])  # (H, S)
        pairs[here, own, 4] = np.where(others, along, -1.0).max(1, initial=-1.0)
        total = arriving(near, reference.degrees, self.arrived[0])[:, here, own]
        part = arriving(near, reference.degrees, self.arrived[1])[:, here, group]
        pairs[here, own, 5:8] = (np.log(np.maximum(total - part, 0) + SMALLEST) / 4).T
        by_direction = self.labels.T @ self.directions
        pairs[here, own, 8] = likeness(directions, by_direction, self.directions)
        return seen, rows

    @property
    def context(self) -> Array:
        """(K,), evenly spaced rows of the graph that nothing is said of."""
        rows = np.flatnonzero(self.pile)
        return rows[evenly_spaced(len(rows), CONTEXT)]

    def of_pile(self, context: Statistics, unlabeled: int) -> Array:
        """What is said of the pile's rows, how many rows have no label -> (A,), numbers of the pile."""
        pairs, rows = (each if len(each) else np.zeros((1, *each.shape[1:])) for each in context)
        labels = self.labels
        worth = labels.sum(0) ** 2 / np.maximum((labels**2).sum(0), TINY)  # (N,), labels
        count = len(worth)
        ranked = np.sort(pairs, 1)
        best, second = ranked[:, -1], ranked[:, -min(2, count)]
        numbers = [
            np.log(count),
            np.log1p(worth).mean(),
            np.log1p(worth.min()),
            np.log1p(unlabeled) / 4,
            np.log1p(unlabeled / count) / 4,
            np.log1p(self.named.sum()),
            float(count == 1),
            float(unlabeled == 0),
            float(self.names is not None),
            *self._among_labels(),
        ]
        spread = [best.mean(0), best.std(0), second.mean(0), rows.mean(0), rows.std(0)]
        return np.concatenate([numbers, *spread]).astype(np.float32)

    def _among_labels(self) -> tuple[float, float, float]:
        """Mean cosines of labels of one class, of different classes, and with their five nearest rows."""
        labeled = np.flatnonzero(~self.named)
        labeled = labeled[evenly_spaced(len(labeled), CONTEXT)]
        x, labels = self.x[labeled], self.labels[labeled]
        along = x @ x.T  # (S, S)
        alike = (labels > 0).astype(float) @ (labels > 0).T > 0
        others = ~np.eye(len(along), dtype=bool)
        near = np.sort(x @ self.graph.rows[self.pile].T, 1)[:, -5:]

        def mean(cosines: Array) -> float:
            return float(cosines.mean()) if cosines.size else 0.0

        return mean(along[alike & others]), mean(along[~alike]), mean(near)
