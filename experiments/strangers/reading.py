"""What a learned model says of any rows: those of a large pile, and new ones.

A row without a label satisfies z_x = a sum_j S_xj Z_j, whether it lies in the graph or not, so a new row
is read off its neighbours in the graph by the equation that holds inside it.
Letters: M rows, B of them in a block, L in the graph, N classes, D features, k neighbours.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import softmax
from strangers.graph import NEIGHBOURS, SMALLEST, SPREAD, Array, nearest
from strangers.scores import (
    NAMED,
    SHARE,
    Members,
    Strangers,
    stranger_probability,
)

READ = 512
"""Rows read at once."""


class Model(NamedTuple):
    """All that answers: L rows of the graph, N prototypes, and a few numbers."""

    center: Array  # (D,)
    rows: Array  # (L, D)
    degree: Array  # (L,)
    arrived: Array  # (L, N), Z
    named: Array  # (L,), what arrives from named strangers
    best: Array  # (L,), the score before smoothing
    reached: Array  # (N, D), what a row's direction is multiplied with for the score's second part
    refined: Array  # (N, D), prototypes by class and membership, unit length
    graph_weight: float
    pull: float
    members: Members
    strangers: Strangers


class Answer(NamedTuple):
    classes: Array
    """(M, N) probabilities, if the row belongs to one of the classes."""
    scores: Array
    """(M,), high for members: below `cutoff(model.members, reject)` it is a stranger."""
    stranger: Array
    """(M,), the probability of a stranger."""


def blocks(features: Array) -> Iterator[tuple[slice, Array]]:
    """The rows in blocks: a memory map is never read whole."""
    for first in range(0, len(features), READ):
        part = slice(first, first + READ)
        yield part, np.asarray(features[part])


def lengths(x: Array) -> Array:
    """(B, D) -> (B,), 1 for a row of zeros."""
    found = np.sqrt(np.einsum("bd,bd->b", x, x))
    return np.where(found > 0, found, 1)


def mean_direction(features: Array) -> Array:
    """(M, D) -> (D,), the mean of the rows at unit length."""
    total = np.zeros(features.shape[1])
    for _, x in blocks(features):
        total += (1 / lengths(x)) @ x
    return (total / len(features)).astype(features.dtype)


def cosines_with(rows: Array, features: Array, center: Array) -> Iterator[tuple[slice, Array]]:
    """Unit rows (L, D), features (M, D) in blocks -> (B, L), of features' directions seen from the center.

    For u = x / |x|, the cosine of u - c with r is (x.r / |x| - c.r) / |u - c|, and
    |u - c|^2 = 1 - 2 x.c / |x| + |c|^2: one matrix product, and no copy of x.
    """
    both = np.concatenate([rows, center[None]]).astype(features.dtype)  # (L + 1, D)
    shift, square = rows @ center, float(center @ center)  # (L,), ()
    for part, x in blocks(features):
        along = (x @ both.T) / lengths(x)[:, None]  # (B, L + 1)
        apart = np.sqrt(np.maximum(1 + square - 2 * along[:, -1:], SMALLEST**2))  # (B, 1)
        yield part, (along[:, :-1] - shift) / apart


def read(model: Model, features: Array) -> Answer:
    """(M, D) -> what the model says of rows that are not in its graph.

    An edge of the graph counts in both directions, hence the 2: z_x = a sum_j 2 w_xj Z_j / sqrt(d_x d_j).
    """
    count, classes = len(features), model.arrived.shape[1]
    logits, scores = np.empty((count, classes)), np.empty(count)
    scale = 1 / np.sqrt(np.maximum(model.degree, SMALLEST))  # (L,)
    passed = SPREAD * scale[:, None] * np.column_stack([model.arrived, model.named])  # (L, N + 1)
    landmarks = np.concatenate([model.reached, model.refined, model.rows])  # (2 N + L, D)
    for part, cosines in cosines_with(landmarks, features, model.center):
        reached, refined = cosines[:, :classes], cosines[:, classes : 2 * classes]  # (B, N)
        places, weights = nearest(
            cosines[:, 2 * classes :], min(NEIGHBOURS, len(model.rows))
        )  # (B, k)
        total = np.maximum(weights.sum(1), SMALLEST)  # (B,)
        z = (
            np.einsum("bk,bkn->bn", weights, passed[places]) * np.sqrt(2 / total)[:, None]
        )  # (B, N + 1)
        arrived = np.maximum(z[:, :-1], SMALLEST)
        by_graph = np.log(arrived)  # (B, N)
        logits[part] = model.graph_weight * by_graph + model.pull * refined
        raw = by_graph + reached - np.log1p(NAMED * z[:, -1:] / arrived)  # (B, N)
        around = (weights * model.best[places]).sum(1) / total
        scores[part] = (1 - SHARE) * raw.max(1) + SHARE * around
    stranger = stranger_probability(scores, model.members, model.strangers)
    return Answer(softmax(logits, 1), scores, stranger)
