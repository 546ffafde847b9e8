"""Labels spread over a graph of neighbours, and prototypes made of where they arrive.

Rows have unit length, and only their cosines count: rotation of the features changes nothing, nor does the
order of rows.
Letters: L rows of the graph, C rows compared with them, N classes, D features, k neighbours.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from semishot.estimator.blocks import Array

NEIGHBOURS = 7
POWER = 3
"""Of the cosine: the weight of an edge."""
SPREAD = 0.8
"""The share of a label that is passed on from row to row."""
ROUNDS = 20
SMALLEST = 1e-7
"""Of what arrives: below it nothing has. The logarithm stays finite where no path leads."""
BLOCK = 4096
"""Rows compared with the graph at once."""


class Graph(NamedTuple):
    rows: Array
    """(L, D), unit length."""
    weights: csr_array
    """(L, L), symmetric: cos^3 in both directions, for the k nearest of each row."""
    degree: Array
    """(L,), sums of the weights."""


def neighbour_graph(rows: Array) -> Graph:
    """(L, D) -> the graph of k nearest neighbours."""
    return graph_of(rows, lambda part: rows[part] @ rows.T)


def graph_of(rows: Array, cosines_of: Callable[[slice], Array]) -> Graph:
    """(L, D) -> the graph of k nearest neighbours, by cosines (C, L) of a part of the rows with all."""
    parts = []
    for first in range(0, len(rows), BLOCK):
        cosines = cosines_of(slice(first, first + BLOCK))  # (C, L), a copy
        here = np.arange(len(cosines))
        cosines[here, first + here] = -1  # a row is not its own neighbour
        parts.append(nearest(cosines, min(NEIGHBOURS, len(rows) - 1)))
    places, values = (np.concatenate(each) for each in zip(*parts, strict=True))  # (L, k), (L, k)
    starts = np.arange(len(rows) + 1) * places.shape[1]
    one_way = csr_array((values.ravel(), places.ravel(), starts), shape=(len(rows), len(rows)))
    weights = csr_array(one_way + one_way.T)
    return Graph(rows, weights, weights.sum(1))


def nearest(cosines: Array, count: int) -> tuple[Array, Array]:
    """(C, L) -> places (C, k) and edge weights cos^3 (C, k) of the nearest rows."""
    if count == 0:  # a graph of one row
        return np.empty((len(cosines), 0), np.int64), np.empty((len(cosines), 0))
    places = np.argpartition(cosines, cosines.shape[1] - count, 1)[:, cosines.shape[1] - count :]
    values = np.take_along_axis(cosines, places, 1).clip(0).astype(np.float64) ** POWER
    return places, values


def propagate(graph: Graph, labels: Array) -> Array:
    """(L, ...) labels -> (L, ...) what arrives: Z = (I - a D^-1/2 W D^-1/2)^-1 Y, by its series."""
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


def unit(rows: Array) -> Array:
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


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
    found = (along - weights) / np.sqrt(np.maximum(squares, SMALLEST))
    return np.where(squares > SMALLEST, found, 0)
