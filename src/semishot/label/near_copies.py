"""Near copies: rows whose features are almost equal, found in time linear in the pile by hashing.

Letters: P rows of the pile, D features, T tables, K bits.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["near_copies"]

Array = NDArray[Any]
ALIKE, NEARER = 0.97, 0.12
"""Near copies, such as the same shot resized, have at least this cosine, and lie nearer than this share of
the usual distance to the nearest neighbour: encoders differ in how much alike everything looks to them."""
EXACT = 3000
"""Rows up to which all pairs are compared."""
TABLES, BITS = 20, 14
MOST_IN_BUCKET = 300
BLOCK = 2048


SAMPLE = 300
"""Rows whose nearest neighbours show the usual distance."""


def near_copies(features: Array) -> Array:
    """(P, D) -> (P,): the first row of the group that a row belongs to; itself, if it is alone."""
    count = len(features)
    parents = np.arange(count)
    if count < 2:
        return parents
    most = _farthest(features)
    pairs = _pairs_in(features, parents, most) if count <= EXACT else _hashed_pairs(features, most)
    for a, b in sorted(pairs):
        first, second = _root(parents, a), _root(parents, b)
        parents[max(first, second)] = min(first, second)
    return np.array([_root(parents, row) for row in range(count)], np.int64)


def _root(parents: Array, row: int) -> int:
    while parents[row] != row:
        parents[row] = parents[parents[row]]
        row = int(parents[row])
    return row


def _unit(features: Array) -> Array:
    rows = np.asarray(features, np.float32)
    unit: Array = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit


def _farthest(features: Array) -> float:
    """The largest 1 - cos of near copies, by the median over a sample of the distance to the nearest row."""
    sample = np.unique(np.linspace(0, len(features) - 1, SAMPLE).round().astype(np.int64))
    rows = _unit(features[sample])
    nearest = np.full(len(sample), -1.0, np.float32)
    for first in range(0, len(features), BLOCK):
        block = np.arange(first, min(first + BLOCK, len(features)))
        cosines = rows @ _unit(features[block]).T
        cosines[sample[:, None] == block] = -1
        nearest = np.maximum(nearest, cosines.max(1))
    return min(1 - ALIKE, NEARER * float(np.median(1 - nearest)))


def _pairs_in(features: Array, chosen: Array, most: float) -> set[tuple[int, int]]:
    rows = _unit(features[chosen])
    close = np.argwhere(np.triu(rows @ rows.T >= 1 - most, 1))
    return {(int(chosen[a]), int(chosen[b])) for a, b in close}


def _hashed_pairs(features: Array, most: float) -> set[tuple[int, int]]:
    """Rows on the same side of K random planes in one of T tables are compared."""
    planes = np.random.default_rng(0).standard_normal((features.shape[1], TABLES * BITS))
    planes = planes.astype(np.float32)
    center = _unit(features[:: max(1, len(features) // 2000)]).mean(0)
    codes = np.empty((len(features), TABLES), np.int64)  # (P, T)
    powers = 2 ** np.arange(BITS)
    for first in range(0, len(features), BLOCK):
        sides = (_unit(features[first : first + BLOCK]) - center) @ planes > 0
        codes[first : first + BLOCK] = sides.reshape(-1, TABLES, BITS) @ powers
    found: set[tuple[int, int]] = set()
    for table in range(TABLES):
        order = np.argsort(codes[:, table], kind="stable")
        edges = np.flatnonzero(np.diff(codes[order, table])) + 1
        for bucket in np.split(order, edges):
            if len(bucket) > 1:
                found |= _pairs_in(features, np.sort(bucket[:MOST_IN_BUCKET]), most)
    return found
