"""A graph of nearest neighbours, labels spread over it, and piles whose neighbours are found once.

Rows have unit length, and only their cosines count: rotation of the features changes nothing, nor does the
order of rows.
Letters: P rows, K of them in the graph, L different ones, C rows at once, N classes, D features.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from semishot.estimator import constants as const
from semishot.estimator.models import GraphModel, predict_in_blocks
from semishot.estimator.spaces import AnySpace, Array, Space, blocks, evenly_spaced, nearest


class NeighbourGraph(NamedTuple):
    """Copies of a row are one row of the graph: they would otherwise be each other's only neighbours."""

    rows: Array
    """(L, D), unit length."""
    weights: csr_array
    """(L, L), symmetric: cos^3 in both directions, for the k nearest of each row."""
    degree: Array
    """(L,), sums of the weights."""
    first: Array
    """(L,), the first of the K given rows that is this row."""
    copy_of: Array
    """(K,), the row of the graph that each given row is."""


def neighbour_graph(
    given: Array, cosines_of: Callable[[Array, Array], Array] | None = None
) -> NeighbourGraph:
    """Rows (K, D) -> their graph. Cosines (C, L) of two sets of indices may be known already."""
    keys: dict[bytes, int] = {}
    copies = [keys.setdefault(row.tobytes(), index) for index, row in enumerate(given)]
    first, copy_of = np.unique(np.array(copies, int), return_inverse=True)
    rows = given[first]
    count = min(const.NEIGHBOURS, len(rows) - 1)
    indices, values = np.empty((len(rows), count), int), np.empty((len(rows), count))
    for start in range(0, len(rows), const.ROWS_AT_ONCE):
        part = slice(start, start + const.ROWS_AT_ONCE)
        cosines = rows[part] @ rows.T if cosines_of is None else cosines_of(first[part], first)
        here = np.arange(len(cosines))
        cosines[here, start + here] = -1  # a row is not its own neighbour
        indices[part], values[part] = nearest(cosines, count)
    starts = np.arange(len(rows) + 1) * count
    edges = values.clip(0).ravel() ** const.EDGE_POWER
    one_way = csr_array((edges, indices.ravel(), starts), shape=(len(rows), len(rows)))
    weights = csr_array(one_way + one_way.T)
    return NeighbourGraph(rows, weights, weights.sum(1), first, copy_of)


def propagate(graph: NeighbourGraph, labels: Array) -> Array:
    """(L, ...) labels -> (L, ...) what arrives: Z = (I - a D^-1/2 W D^-1/2)^-1 Y, by its series."""
    scale = 1 / np.sqrt(np.maximum(graph.degree, const.TINY))[:, None]  # (L, 1)
    flat = labels.reshape(len(labels), -1)
    arrived = flat
    for _ in range(const.SPREADING_STEPS):
        arrived = flat + const.PASSED_ON * scale * (graph.weights @ (scale * arrived))
    return arrived.reshape(labels.shape)


def smoothed(graph: NeighbourGraph, scores: Array, share: float) -> Array:
    """(L,) -> (L,): each score mixed with the weighted mean of its neighbours'."""
    around = (graph.weights @ scores) / np.maximum(graph.degree, const.TINY)
    return np.where(graph.degree > 0, (1 - share) * scores + share * around, scores)


def summed(rows: Array, weights: Array) -> Array:
    """(L, D), (L, N) -> (N, D), Eq. 1 up to length: weighted sums of rows."""
    return (weights.T.astype(rows.dtype) @ rows).astype(np.float64)


def cosines_without_itself(rows: Array, weights: Array) -> Array:
    """(L, D), (L, N) -> (L, N): of each row with the prototypes made without that row.

    For p = sum_j w_j x_j and unit rows, x.(p - w x) = x.p - w and |p - w x|^2 = |p|^2 - 2 w x.p + w^2.
    A row that takes part in a prototype lies nearer to it than a new row would.
    """
    p = summed(rows, weights)  # (N, D)
    along = (rows @ p.T.astype(rows.dtype)).astype(np.float64)  # (L, N)
    squares = (p**2).sum(-1) - 2 * weights * along + weights**2  # (L, N)
    cosines = (along - weights) / np.sqrt(np.maximum(squares, const.TINY))
    return np.where(squares > const.TINY, cosines, 0)


class NewNeighbours:
    """Neighbours of rows that are fitted once."""

    landmarks: Array | None = None
    """Rows that are always in the graph; None: those that the labels choose."""

    def __init__(self, features: Array, space: AnySpace) -> None:
        self.features, self.space = features, space

    def graph(self, indices: Array) -> NeighbourGraph:
        """The graph of these rows (K,)."""
        return neighbour_graph(self.space(self.features[indices]))

    def predict(self, model: GraphModel) -> tuple[Array, Array]:
        """Logits (P, N) and scores (P,) by the graph asked for last."""
        return predict_in_blocks(model, self.features)


class KnownNeighbours:
    """Neighbours of a pile whose labels change. The landmarks stay; what is labeled joins them.

    Features stay where they are, a memory map for example: a cosine with the direction of x seen from the
    center c is (x.r / |x| - c.r) / |x / |x| - c|, of which two numbers per row are kept.
    """

    def __init__(self, features: Array, center: Array, exact: int, landmarks: int) -> None:
        self.features, self.center = features, center
        self.space: AnySpace = Space("centered", center)
        self.scale, self.shift, along = self._lengths()
        self.landmarks: Array | None = np.arange(len(features))
        if len(features) > exact:
            ranking = np.argsort(along, kind="stable")
            self.landmarks = np.sort(ranking[evenly_spaced(len(features), landmarks)])
        self.rows = self.space(features[self.landmarks])  # (K, D)
        self.cosines = self.rows @ self.rows.T  # (K, K)
        self.columns: dict[int, Array] = {}  # (P,), cosines with rows beside the landmarks
        self.last: tuple[Array, NeighbourGraph] | None = None
        self.near: tuple[Array, Array] | None = None  # (P, k) landmarks and cosines
        if len(features) > exact:
            count = min(const.NEIGHBOURS, len(self.rows))
            near = [nearest(self.space(b) @ self.rows.T, count) for _, b in blocks(features)]
            indices, cosines = (np.concatenate(each) for each in zip(*near, strict=True))
            self.near = indices, cosines

    def _lengths(self) -> tuple[Array, Array, Array]:
        """(P,) each: 1 / (|x| |x / |x| - c|), 1 / |x / |x| - c|, and x.c / |x|."""
        lengths, along = np.empty(len(self.features)), np.empty(len(self.features))
        for part, block in blocks(self.features):
            lengths[part] = np.sqrt(np.einsum("cd,cd->c", block, block))
            along[part] = block @ self.center
        lengths = np.where(lengths > 0, lengths, 1)
        along /= lengths
        apart = np.sqrt(np.maximum(1 + float(self.center @ self.center) - 2 * along, 1e-14))
        return 1 / (lengths * apart), 1 / apart, along

    def _cosines_with(self, rows: Array) -> Array:
        """(N, D) -> (P, N), of each row's direction, times the length of `rows`."""
        cosines = np.empty((len(self.features), len(rows)), self.rows.dtype)
        shifted = rows @ self.center  # (N,)
        for part, block in blocks(self.features):
            scale, shift = self.scale[part, None], self.shift[part, None]
            cosines[part] = (block @ rows.T) * scale - shift * shifted
        return cosines

    def graph(self, indices: Array) -> NeighbourGraph:
        """The graph of these rows (K,)."""
        if self.last is not None and np.array_equal(indices, self.last[0]):
            return self.last[1]
        assert self.landmarks is not None
        beside = np.setdiff1d(indices, self.landmarks)
        extra = self.space(self.features[beside])  # (E, D)
        new = [row for row in range(len(beside)) if int(beside[row]) not in self.columns]
        if new:
            columns = self._cosines_with(extra[new]).T.copy()
            self.columns |= zip(beside[new].tolist(), columns, strict=True)
        every = np.concatenate([self.landmarks, beside])
        cosines = np.empty((len(every), len(every)), self.rows.dtype)
        count = len(self.landmarks)
        cosines[:count, :count] = self.cosines
        for number, index in enumerate(beside.tolist(), count):
            cosines[number] = cosines[:, number] = self.columns[index][every]
        order = np.argsort(every)
        own = order[np.searchsorted(every, indices, sorter=order)]  # (K,)
        rows = np.concatenate([self.rows, extra])[own]
        graph = neighbour_graph(rows, lambda some, all_: cosines[np.ix_(own[some], own[all_])])
        self.last = indices, graph
        return graph

    def predict(self, model: GraphModel) -> tuple[Array, Array]:
        """Logits (P, N) and scores (P,) by the graph asked for last.

        The landmarks' part is remembered; rows of the graph beside them are compared again.
        """
        if self.near is None or self.last is None or self.landmarks is None:
            return predict_in_blocks(model, self.features)  # all rows were in the graph
        count, dtype = len(model.prototypes), model.prototypes.dtype
        both = self._cosines_with(np.concatenate([model.scoring, model.prototypes]))  # (P, 2 N)
        row_of = dict(zip(self.last[0].tolist(), self.last[1].copy_of.tolist(), strict=True))
        landmark = np.array([row_of.get(index, -1) for index in self.landmarks.tolist()])
        extra = [index for index in self.last[0].tolist() if index in self.columns]
        extra_rows = np.array([row_of[index] for index in extra], int)  # (E,)
        logits, scores = np.empty((len(both), count), dtype), np.empty(len(both), dtype)
        for first in range(0, len(both), const.ROWS_AT_ONCE):
            part = slice(first, first + const.ROWS_AT_ONCE)
            indices = landmark[self.near[0][part]]  # (C, k)
            cosines = np.where(indices >= 0, self.near[1][part], -1)
            if extra:
                more = np.stack([self.columns[index][part] for index in extra], 1)  # (C, E)
                own = np.broadcast_to(extra_rows, more.shape)
                indices = np.concatenate([indices, own], 1)
                best, cosines = nearest(np.concatenate([cosines, more], 1), const.NEIGHBOURS)
                indices = np.take_along_axis(indices, best, 1)
            mine = both[part].astype(dtype, copy=False)
            logits[part], scores[part] = model.combined(
                indices.clip(0), cosines, mine[:, :count], mine[:, count:]
            )
        return logits, scores
