"""Who lies near whom in a pile: a graph of its rows, which no label changes, and the neighbours of any row.

Near copies count once: the graph holds one row of each group of them, and no row has a near copy among its
neighbours. So a row of the pile, a copy of it and a new row are treated alike. A graph has as many rows as
can be compared with the whole pile in about a second: of a larger pile evenly spaced ones in the ranking by
cosine with the mean direction, which neither the order of rows nor a rotation changes.
Letters: P rows, L of them in the graph, C rows at once, N classes, D features, k neighbours.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from semishot.estimator.spaces import (
    Array,
    Space,
    blocks,
    by_blocks,
    evenly_spaced,
    in_threads,
    nearest,
)

FEWEST, MOST, PRODUCTS = 500, 3000, 4e10
"""Rows of a graph, and how many products of numbers may compare it with the pile."""
NEIGHBOURS = 15
EDGE_POWER = 3
WALKS = ((7, 0.8, 12), (15, 0.8, 12), (10, 0.97, 40))
"""How labels spread, in three ways: over how many neighbours, what each passes on, in how many steps."""
COPY = 0.15
"""Near copies lie this much nearer to each other than a row to its seventh neighbour, as a rule."""
SAME = 1 - 1e-5
"""Copies have a larger cosine, whatever the pile."""
TINY = 1e-12


class Near(NamedTuple):
    """C rows beside a graph."""

    indices: Array  # (C, k), of the nearest rows of the graph
    cosines: Array  # (C, k); that of near copies is set to 0
    copy: Array  # (C,), the row of the graph that is the same or a near copy, -1 for none

    @property
    def weights(self) -> Array:
        """(C, k), of edges: cos^3."""
        weights: Array = np.maximum(self.cosines, 0) ** EDGE_POWER
        return weights

    def around(self, values: Array) -> Array:
        """(L,) -> (C,): the weighted mean of the neighbours' values."""
        weights = self.weights + TINY
        mean: Array = (weights * values[self.indices]).sum(1) / weights.sum(1)
        return mean

    def take(self, rows: Array | slice) -> "Near":
        return Near(*(each[rows] for each in self))


def find_near(x: Array, rows: Array, same: float, space: Space | None = None) -> Near:
    """(P, D), (L, D), unit length -> the nearest of L rows. Near copies have a cosine above `same`.

    space: where x are placed first."""
    count = min(NEIGHBOURS, max(len(rows) - 1, 1))

    def found(_: slice, block: Array) -> Near:
        along = (block if space is None else space(block)) @ rows.T  # (C, L)
        best = along.argmax(1)
        copies = along > same
        copy = np.where(copies[np.arange(len(best)), best], best, -1)
        along[copies] = 0.0
        indices, cosines = nearest(along, count)
        return Near(indices.astype(np.int32), cosines.astype(np.float32), copy.astype(np.int32))

    return by_blocks(found, x, len(rows))


def arriving(near: Near, degrees: Array, arrived: Array) -> Array:
    """Degrees (3, L) and what `NeighbourGraph.spread` left at the rows of the graph (3, L, N) -> what arrives
    at C rows beside it, (3, C, N).

    An edge counts in both directions, hence the 2: z = a sum_j 2 w_j Z_j / sqrt(d d_j).
    """
    found = np.empty((len(WALKS), len(near.copy), arrived.shape[-1]))
    for number, (count, passed_on, _) in enumerate(WALKS):
        weights, indices = near.weights[:, :count], near.indices[:, :count]
        own = np.maximum(2 * weights.sum(1, keepdims=True), TINY)  # (C, 1)
        scaled = weights * passed_on * 2 / np.sqrt(own * degrees[number][indices])  # (C, k)
        found[number] = edges(scaled, indices, arrived.shape[1]) @ arrived[number]
    return found


def edges(weights: Array, indices: Array, size: int) -> csr_array:
    """(C, k), (C, k) -> (C, L)."""
    starts = np.arange(len(weights) + 1) * weights.shape[1]
    return csr_array((weights.ravel(), indices.ravel(), starts), shape=(len(weights), size))


@dataclass(frozen=True)
class NeighbourGraph:
    """L rows of a pile, no two of them near copies."""

    rows: Array  # (L, D), unit length
    same: float  # near copies have a larger cosine
    sources: Array  # (L,), which rows of the pile they are

    @cached_property
    def near(self) -> Near:
        """Of its own rows."""
        return find_near(self.rows, self.rows, self.same)

    @cached_property
    def _walks(self) -> list[tuple[csr_array, Array]]:
        """For each of `WALKS`: symmetric weights (L, L) over the roots of both degrees, and degrees (L,)."""
        found = []
        for count, _, _ in WALKS:
            weights = self.near.weights[:, :count]
            one_way = edges(weights, self.near.indices[:, :count], len(self.rows))
            both = csr_array(one_way + one_way.T)
            degree, pairs = np.maximum(both.sum(1), TINY), both.tocoo()
            row, column = pairs.coords
            scaled = pairs.data / np.sqrt(degree[row] * degree[column])
            found.append((csr_array((scaled, (row, column)), shape=both.shape), degree))
        return found

    @property
    def degrees(self) -> Array:
        """(3, L)"""
        return np.stack([degree for _, degree in self._walks])

    def spread(self, seeds: Array) -> Array:
        """(L, N) -> for each of `WALKS` (3, L, N): sum over steps t of a^t S^t seeds, what arrives."""

        def walk(number: int) -> Array:
            (_, passed_on, steps), (weights, _) = WALKS[number], self._walks[number]
            arrived = seeds
            for _ in range(steps):
                arrived = seeds + passed_on * (weights @ arrived)
            return arrived

        return np.stack(in_threads(walk, range(len(WALKS))))


def neighbour_graph(features: Any, space: Space) -> NeighbourGraph:
    """(P, D) -> the graph of these rows.

    They are ranked by the cosine with the center, or without one by the distance from the mean.
    """
    centered = space.center.any()
    keys = [
        space.directions(block) @ space.center
        if centered
        else np.linalg.norm((block - space.shift) / space.scale, axis=1)
        for _, block in blocks(features)
    ]
    ranking = np.argsort(np.concatenate(keys), kind="stable")  # (P,)
    affordable = PRODUCTS / features.shape[0] / max(features.shape[1], 1)
    most = int(np.clip(affordable, FEWEST, MOST))
    ranking = ranking[evenly_spaced(len(ranking), most)]
    rows = space(features[ranking])
    near = find_near(rows, rows, SAME)
    seventh = float(np.median(near.cosines[:, min(6, near.cosines.shape[1] - 1)]))
    same = min(SAME, 1 - COPY * (1 - seventh))
    kept = np.ones(len(rows), bool)
    copies = np.triu(rows @ rows.T > same, 1)  # (L, L), of earlier rows
    for row in np.flatnonzero(copies.any(1)):  # in order: the first of a group is kept
        if kept[row]:
            kept &= ~copies[row]
    return NeighbourGraph(np.ascontiguousarray(rows[kept]), same, ranking[kept])
