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
from msgspec.structs import replace
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

    def take(self, rows: Array) -> "Statistics":
        return Statistics(self.pairs[rows], self.rows[rows])


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
        same = np.einsum("cd,cd->c", x, self.rows[near.copy])  # (C,)
        arrived = arriving(near, self.degrees, self.arrived)  # (3, C, N + 1)
        along = x @ self.labeled.T  # (C, S)
        nearest = np.zeros((len(x), self.labels.shape[1]))
        for number, given in enumerate(self.labels.T > 0):
            if given.any():
                nearest[:, number] = along[:, given].max(1)
        log_z = np.log(arrived + SMALLEST) / 4
        pairs = [
            *(self.cosines(number, x, near.copy, same) for number in range(len(self.sums))),
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

    def cosines(self, number: int, x: Array, copy: Array, same: Array) -> Array:
        """Of rows (C, D) with the prototypes of `sums[number]` (C, N); the graph's row that is a copy of each
        (C,) and its cosine with it (C,).

        A row is compared with the prototype made without it: for p = sum_j w_j x_j and unit rows,
        x.(p - w x_i) = x.p - w x.x_i and |p - w x_i|^2 = |p|^2 - 2 w x_i.p + w^2, where x_i is about x.
        """
        sums, weights = self.sums[number], self.weights[number]
        along = x @ sums.T  # (C, N)
        own = np.where((copy >= 0)[:, None], weights[copy], 0)  # (C, N)
        squares = (sums**2).sum(1) - 2 * own * along + own**2
        cosines = (along - own * same[:, None]) / np.sqrt(np.maximum(squares, TINY))
        return np.where(squares > 1e-9, cosines.clip(-1, 1), 0)


class Support(NamedTuple):
    """Labeled rows and named strangers beside a graph."""

    near: Near
    x: Array  # (S, D), unit length
    directions: Array  # (S, D), before centering
    labels: Array  # (S, N), weights; zeros for named strangers
    named: Array  # (S,), named strangers


@dataclass(frozen=True)
class Known:
    """A graph and what the user said of it; statistics of any rows beside it."""

    graph: NeighbourGraph
    support: Support
    names: Array | None = None  # (N, D), unit length: of the classes; zeros for no name

    @cached_property
    def group(self) -> Array:
        """(S,), with which labels of its class each is held out; -1 for a label that never is.

        The group of a label is its rank by nearness to the prototype, so that order does not matter.
        Copies are held out together.
        """
        near, x, _, labels, _ = self.support
        found = np.full(len(x), -1)
        count = 0
        for number in range(labels.shape[1]):
            own = np.flatnonzero(labels[:, number] > 0)
            keys = np.where(near.copy[own] >= 0, near.copy[own], -1 - own)
            _, first, unit_of = np.unique(keys, return_index=True, return_inverse=True)
            folds = min(FOLDS, len(first))
            if folds < 2:
                continue
            rows = x[own[first]]
            ranking = np.lexsort([rows[:, 0], (rows @ rows.sum(0)).round(5)])
            fold = np.empty(len(first), int)
            fold[ranking] = np.arange(len(first)) % folds
            found[own] = count + fold[unit_of]
            count += folds
        return found

    @cached_property
    def arrived(self) -> tuple[Array, Array]:
        """What arrives of classes and named strangers (3, L, N + 1), and of each group (3, L, G).

        A labeled row that is not in the graph, nor a copy of one, gives its label to its neighbours."""
        near, _, _, labels, named = self.support
        given = np.column_stack([labels, named])  # (S, N + 1)
        inside = np.flatnonzero(near.copy >= 0)
        outside = np.flatnonzero(near.copy < 0)
        weights = near.weights / np.maximum(near.weights.sum(1, keepdims=True), TINY)  # (S, k)
        in_group = self._of_group * labels.sum(1)[:, None]  # (S, G)
        alone = given * (self.group < 0)[:, None]
        columns = np.concatenate([in_group, alone], 1)  # (S, G + N + 1)
        seeds = np.zeros((len(self.graph.rows), columns.shape[1]))
        np.add.at(seeds, near.copy[inside], columns[inside])
        spread = weights[outside][:, :, None] * columns[outside][:, None]
        np.add.at(seeds, near.indices[outside], spread)
        walked, groups = self.graph.spread(seeds), in_group.shape[1]
        class_of = (self._of_group.T @ given > 0).astype(float)  # (G, N + 1)
        by_group = walked[:, :, :groups]
        return walked[:, :, groups:] + by_group @ class_of, by_group

    @cached_property
    def _of_group(self) -> Array:
        """(S, G), 1 where a label is of the group."""
        groups = int(self.group.max(initial=-1)) + 1
        found: Array = (self.group[:, None] == np.arange(groups)).astype(float)
        return found

    @cached_property
    def pile(self) -> Array:
        """(L,), which rows of the graph nothing is said of."""
        said = np.zeros(len(self.graph.rows), bool)
        said[self.support.near.copy[self.support.near.copy >= 0]] = True
        return ~said

    @cached_property
    def reference(self) -> Reference:
        graph, support = self.graph, self.support
        dtype, labels = graph.rows.dtype, support.labels
        names = (
            np.zeros((labels.shape[1], graph.rows.shape[1])) if self.names is None else self.names
        )
        given = (labels.T @ support.x).astype(np.float64)  # (N, D)
        given = np.where(labels.sum(0)[:, None] > 0, given, names)  # a class begins with its name
        weights = self._refinements(given)
        sums = [given + (each.T.astype(dtype) @ graph.rows) for each in weights]
        arrays = (
            *(graph.degrees, self.arrived[0], np.stack(sums), np.stack(weights)),
            np.zeros((3, len(graph.rows))),
            *(support.x, labels, unit(labels.T @ support.directions), names),
        )
        reference = Reference(graph.rows, graph.same, *(each.astype(dtype) for each in arrays))
        near = graph.near
        same = np.einsum("ld,ld->l", graph.rows, graph.rows[near.copy])
        around = [
            np.log(arriving(near, graph.degrees, reference.arrived)[1, :, :-1] + SMALLEST).max(1)
            / 4,
            reference.cosines(2, graph.rows, near.copy, same).max(1),
            near.cosines[:, min(6, near.cosines.shape[1] - 1)],
        ]
        return replace(reference, around=np.stack(around).astype(dtype))

    def _refinements(self, given: Array) -> list[Array]:
        """Sums of labeled rows (N, D) -> weights of the graph's rows (L, N) in prototypes of the labels
        alone, and refined by what labels reach, by OSLO and by soft k-means."""
        rows, pile = self.graph.rows, self.pile[:, None].astype(np.float64)

        def refined(weights: Array, count: Array | float = 0.0) -> Array:
            sums = given + (weights.T.astype(rows.dtype) @ rows)
            return sums / count[:, None] if isinstance(count, np.ndarray) else unit(sums)

        none = np.zeros((len(rows), len(given)))
        labels = np.maximum(self.support.labels.sum(0), 1.0)  # (N,)
        shares, prototypes, by_oslo = np.full(none.shape, 1 / len(given)), unit(given), none
        for _ in range(OSLO_STEPS):
            cosines = rows @ prototypes.T.astype(rows.dtype)  # (L, N)
            member = expit((shares * cosines).sum(1, keepdims=True) / 0.05)
            shares = softmax(member * cosines / 0.1, 1)
            by_oslo = pile * member * shares
            prototypes = unit(refined(by_oslo, labels + by_oslo.sum(0)))
        prototypes, by_kmeans = unit(given), none
        for _ in range(KMEANS_STEPS):
            by_kmeans = pile * softmax(SCALE * (rows @ prototypes.T.astype(rows.dtype)), 1)
            prototypes = refined(by_kmeans)
        return [none, pile * self.arrived[0][1][:, :-1], by_oslo, by_kmeans]

    def held_out(self) -> tuple[Statistics, Array]:
        """Labeled rows as if their group had no labels: statistics of H rows, and which of S they are."""
        near, x, directions, labels, _ = self.support
        rows = np.flatnonzero(self.group >= 0)  # (H,)
        reference, x, directions = self.reference, x[rows], directions[rows]
        own, group, near = labels[rows].argmax(1), self.group[rows], near.take(rows)
        seen = reference.statistics(x, directions, near)
        if not len(rows):
            return seen, rows
        member = self._of_group * labels.sum(1)[:, None]  # (S, G)
        without = member.T @ self.support.x  # (G, D)
        pairs, here = seen.pairs.copy(), np.arange(len(rows))
        for number, sums in enumerate(reference.sums):
            pairs[here, own, number] = np.einsum("hd,hd->h", unit(sums[own] - without[group]), x)
        along = x @ self.support.x.T  # (H, S)
        others = (labels[:, own].T > 0) & (self.group[None, :] != group[:, None])  # (H, S)
        pairs[here, own, 4] = np.where(others, along, -1.0).max(1)
        total = arriving(near, reference.degrees, self.arrived[0])[:, here, own]
        part = arriving(near, reference.degrees, self.arrived[1])[:, here, group]
        pairs[here, own, 5:8] = (np.log(np.maximum(total - part, 0) + SMALLEST) / 4).T
        left = labels.T @ self.support.directions
        left = unit(left[own] - (member.T @ self.support.directions)[group])
        pairs[here, own, 8] = np.einsum("hd,hd->h", left, directions)
        return Statistics(pairs, seen.rows), rows

    @property
    def context(self) -> Array:
        """(K,), evenly spaced rows of the graph that nothing is said of."""
        rows = np.flatnonzero(self.pile)
        return rows[evenly_spaced(len(rows), min(len(rows), CONTEXT))]

    def of_pile(self, context: Statistics, unlabeled: int) -> Array:
        """What is said of the pile's rows, how many rows have no label -> (A,), numbers of the pile."""
        pairs, rows = context
        if not len(rows):  # no pile
            pairs, rows = np.zeros((1, 1, PAIR)), np.zeros((1, ROW))
        labels = self.support.labels
        worth = labels.sum(0) ** 2 / np.maximum((labels**2).sum(0), TINY)  # (N,), labels
        count = len(worth)
        ranked = np.sort(pairs, 1)
        best, second = ranked[:, -1], ranked[:, -2] if pairs.shape[1] > 1 else ranked[:, -1]
        numbers = [
            np.log(count),
            np.log1p(worth).mean(),
            np.log1p(worth.min()),
            np.log1p(unlabeled) / 4,
            np.log1p(unlabeled / count) / 4,
            np.log1p(self.support.named.sum()),
            float(count == 1),
            float(unlabeled == 0),
            float(self.names is not None),
            *self._among_labels(),
        ]
        spread = [best.mean(0), best.std(0), second.mean(0), rows.mean(0), rows.std(0)]
        return np.concatenate([numbers, *spread]).astype(np.float32)

    def _among_labels(self) -> tuple[float, float, float]:
        """Mean cosines of labels of one class, of different classes, and with their five nearest rows."""
        labeled = np.flatnonzero(~self.support.named)
        if len(labeled) > CONTEXT:
            labeled = labeled[evenly_spaced(len(labeled), CONTEXT)]
        x, labels = self.support.x[labeled], self.support.labels[labeled]
        along = x @ x.T  # (S, S)
        alike = (labels > 0).astype(float) @ (labels > 0).T > 0
        others = ~np.eye(len(along), dtype=bool)
        mean = [
            float(along[which].mean()) if which.any() else 0.0 for which in (alike & others, ~alike)
        ]
        if not self.pile.any() or not len(x):
            return mean[0], mean[1], 0.0
        near = np.sort(x @ self.graph.rows[self.pile].T, 1)[:, -5:]
        return mean[0], mean[1], float(near.mean())
