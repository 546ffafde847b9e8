"""Near copies: rows whose features are almost equal, found in time linear in the pile by hashing.

Letters: P rows of the pile, D features, T tables, K bits.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["near_copies"]

Array = NDArray[Any]
ALIKE = 0.985
"""The cosine from which two images are near copies: the same shot, resized or saved again."""
EXACT = 3000
"""Rows up to which all pairs are compared."""
TABLES, BITS = 20, 14
MOST_IN_BUCKET = 300
BLOCK = 2048


def near_copies(features: Array) -> Array:
    """(P, D) -> (P,): the first row of the group that a row belongs to; itself, if it is alone."""
    count = len(features)
    parents = np.arange(count)
    pairs = _all_pairs(features) if count <= EXACT else _hashed_pairs(features)
    for a, b in pairs:
        first, second = _root(parents, int(a)), _root(parents, int(b))
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


def _all_pairs(features: Array) -> Array:
    if len(features) < 2:
        return np.empty((0, 2), np.int64)
    rows = _unit(features)
    return np.argwhere(np.triu(rows @ rows.T >= ALIKE, 1))


def _hashed_pairs(features: Array) -> Array:
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
            if 1 < len(bucket):
                found.update(_pairs_in(features, np.sort(bucket[:MOST_IN_BUCKET])))
    return np.array(sorted(found), np.int64).reshape(-1, 2)


def _pairs_in(features: Array, bucket: Array) -> set[tuple[int, int]]:
    rows = _unit(features[bucket])
    close = np.argwhere(np.triu(rows @ rows.T >= ALIKE, 1))
    return {(int(bucket[a]), int(bucket[b])) for a, b in close}
