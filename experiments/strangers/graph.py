"""Labels spread over a graph of neighbours, and prototypes made of where they arrive.

Letters: L rows of the graph, B other rows, N classes, F folds, D features, k neighbours. Rows are directions
seen from the center of the pile, so scale and rotation of the features change nothing, nor does order.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Array = NDArray[Any]

NEIGHBOURS = 7
POWER = 3
"""Of the cosine: the weight of an edge."""
SPREAD = 0.8
"""What a label passes on from row to row; the rest returns to where it began."""
ROUNDS = 20
SMALLEST = 1e-7
"""Of what arrives: below it nothing has. The logarithm stays finite where no path leads."""
BLOCK = 4096
"""Rows compared with the graph at once."""


class Graph(NamedTuple):
    rows: Array
    """(L, D) directions seen from the center."""
    weights: csr_array
    """(L, L), symmetric: cos^3 in both directions, for the k nearest of each row."""
    degree: Array
    """(L,) the weights' sums."""


def directions(features: Array, center: Array) -> Array:
    """(..., D) -> (..., D): unit length, seen from the center, unit length again."""
    return unit(unit(features) - center)


def unit(features: Array) -> Array:
    lengths = np.linalg.norm(features, axis=-1, keepdims=True)
    return features / np.where(lengths > 0, lengths, 1)


def neighbour_graph(rows: Array) -> Graph:
    """(L, D) -> the graph of k nearest neighbours, by cosines in blocks."""
    parts = []
    for first in range(0, len(rows), BLOCK):
        cosines = rows[first : first + BLOCK] @ rows.T  # (B, L)
        here = np.arange(len(cosines))
        cosines[here, first + here] = -1  # no row is its own neighbour
        parts.append(nearest(cosines, min(NEIGHBOURS, len(rows) - 1)))
    places, values = (np.concatenate(each) for each in zip(*parts, strict=True))  # (L, k), (L, k)
    starts = np.arange(len(rows) + 1) * places.shape[1]
    one_way = csr_array((values.ravel(), places.ravel(), starts), shape=(len(rows), len(rows)))
    weights = csr_array(one_way + one_way.T)
    return Graph(rows, weights, weights.sum(1))


def nearest(cosines: Array, count: int) -> tuple[Array, Array]:
    """(B, L) -> places (B, k) and edge weights cos^3 (B, k) of the nearest rows."""
    if count == 0:  # one row alone
        return np.empty((len(cosines), 0), np.int64), np.empty((len(cosines), 0))
    places = np.argpartition(cosines, cosines.shape[1] - count, 1)[:, cosines.shape[1] - count :]
    values = np.take_along_axis(cosines, places, 1).clip(0).astype(np.float64) ** POWER
    return places, values


def propagate(graph: Graph, labels: Array) -> Array:
    """(L, ...) one-hot labels -> (L, ...) what arrives: Z = (I - a D^-1/2 W D^-1/2)^-1 Y, by its series."""
    scale = 1 / np.sqrt(np.maximum(graph.degree, SMALLEST))[:, None]  # (L, 1)
    flat = labels.reshape(len(labels), -1)
    arrived = flat
    for _ in range(ROUNDS):
        arrived = flat + SPREAD * scale * (graph.weights @ (scale * arrived))
    return arrived.reshape(labels.shape)


def smoothed(graph: Graph, scores: Array, share: float) -> Array:
    """(L,) -> (L,): each score mixed with the weighted mean of its neighbours'."""
    around = (graph.weights @ scores) / np.maximum(graph.degree, SMALLEST)
    return np.where(graph.degree > 0, (1 - share) * scores + share * around, scores)


def prototypes(rows: Array, weights: Array) -> Array:
    """(L, D), (L, N) -> (N, D), Eq. 1 up to length: sums of rows."""
    return (weights.T.astype(rows.dtype) @ rows).astype(np.float64)


def cosines_without_itself(rows: Array, weights: Array) -> Array:
    """(L, D), (L, N) -> (L, N): of each row with the prototypes made without that row.

    For p = sum_j w_j x_j and unit rows, x.(p - w x) = x.p - w and |p - w x|^2 = |p|^2 - 2 w x.p + w^2.
    A row that has taken part in a prototype would else lie nearer to it than a new one.
    """
    p = prototypes(rows, weights)  # (N, D)
    along = (rows @ p.T.astype(rows.dtype)).astype(np.float64)  # (L, N)
    squares = (p**2).sum(-1) - 2 * weights * along + weights**2  # (L, N)
    return np.where(
        squares > SMALLEST, (along - weights) / np.sqrt(np.maximum(squares, SMALLEST)), 0
    )
