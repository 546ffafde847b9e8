"""A graph of nearest neighbours, labels spread over it, and piles whose neighbours are found once.

Rows have unit length, and only their cosines count: rotation of the features changes nothing, nor does the
order of rows.
Letters: P rows, K of them in the graph, L different ones, C rows at once, N classes, D features.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from semishot.estimator import constants as const
from semishot.estimator.models import GraphModel, predict_in_blocks
from semishot.estimator.spaces import (
    AnySpace,
    Array,
    blocks,
    evenly_spaced,
    nearest,
    unit,
)


class NeighbourGraph(NamedTuple):
    """Copies of a row are one row of the graph: they would otherwise be each other's only neighbours."""

    rows: Array  # (L, D), unit length
    weights: csr_array  # (L, L), symmetric: cos^3 in both directions, for the k nearest of each row
    degree: Array  # (L,), sums of the weights
    first: Array  # (L,), the first of the K given rows that is this row
    copy_of: Array  # (K,), the row of the graph that each given row is


def neighbour_graph(given: Array) -> NeighbourGraph:
    """Rows (K, D) -> their graph."""
    keys: dict[bytes, int] = {}
    copies = [keys.setdefault(row.tobytes(), index) for index, row in enumerate(given)]
    first, copy_of = np.unique(np.array(copies, int), return_inverse=True)
    rows = given[first]
    count = min(const.NEIGHBOURS, len(rows) - 1)
    indices, values = np.empty((len(rows), count), int), np.empty((len(rows), count))
    for start in range(0, len(rows), const.ROWS_AT_ONCE):
        part = slice(start, start + const.ROWS_AT_ONCE)
        cosines = rows[part] @ rows.T
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


class Neighbours:
    """P rows, some of which make a graph; the others are predicted from their neighbours in it.

    The labels choose the rows of the graph, or `landmarks` are always among them: then labels may change
    often, and cosines with rows that have been in the graph are kept.
    """

    def __init__(self, features: Array, space: AnySpace, landmarks: Array | None = None) -> None:
        self.features, self.space, self.landmarks = features, space, landmarks
        self.last: tuple[Array, NeighbourGraph] | None = None
        self.cosines: dict[int, Array] = {}  # (P,), of all rows with a row of the graph

    def graph(self, indices: Array) -> NeighbourGraph:
        """The graph of these rows (K,)."""
        if self.last is None or not np.array_equal(indices, self.last[0]):
            self.last = indices, neighbour_graph(self.space(self.features[indices]))
        return self.last[1]

    def predict(self, model: GraphModel) -> tuple[Array, Array]:
        """Logits (P, N) and scores (P,) by the graph asked for last."""
        if self.landmarks is None:
            return predict_in_blocks(model, self.features)
        assert self.last is not None
        rows = self.last[0][self.last[1].first].tolist()  # (L,)
        new = [number for number, row in enumerate(rows) if row not in self.cosines]
        added = np.empty((len(new), len(self.features)), model.rows.dtype)
        for part, block in blocks(self.features if new else self.features[:0]):
            added[:, part] = model.rows[new] @ self.space(block).T
        self.cosines |= {rows[number]: column for number, column in zip(new, added, strict=True)}
        columns = [self.cosines[row] for row in rows]
        return predict_in_blocks(
            model, self.features, lambda part: np.stack([column[part] for column in columns], 1)
        )


def landmarks_of(features: Array, center: Array) -> Array:
    """(P, D) -> the rows that are always in a graph, whatever the labels: all, or evenly spaced ones in the
    ranking by cosine with the center (D,)."""
    if len(features) <= const.EXACT:
        return np.arange(len(features))
    along = np.concatenate([unit(block) @ center for _, block in blocks(features)])
    ranking = np.argsort(along, kind="stable")
    return np.sort(ranking[evenly_spaced(len(features), const.LANDMARKS)])
