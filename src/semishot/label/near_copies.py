"""Near copies: images whose features are almost equal. Letters: P rows of the pile, D features."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ALIKE, NEARER = 0.97, 0.12
"""Near copies, such as the same shot resized, have at least this cosine, and lie nearer than this share of
the usual distance to the nearest neighbour: encoders differ in how much alike everything looks to them."""
EXACT = 3000
"""Rows up to which all pairs are compared."""
PROJECTED, NEAREST = 8, 5
"""In larger piles, each row is compared with its nearest few in a random projection to so many dimensions,
where near copies lie near each other, too."""
BLOCK = 1024
SAMPLE = 300
"""Rows whose nearest neighbours show the usual distance."""


def near_copies(features: Array) -> Array:
    """(P, D) -> (P,): the first row of the group that a row belongs to; itself, if it is alone."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(features)
    if count < 2:
        return np.arange(count)
    most = _largest_distance(features)
    pairs = _all_pairs(features, most) if count <= EXACT else _projected_pairs(features, most)
    links = coo_array((np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), (count, count))
    _, group = connected_components(links, directed=False)
    _, first = np.unique(group, return_index=True)
    leaders: Array = first[group]
    return leaders


def _unit(features: Array) -> Array:
    rows = np.asarray(features, np.float32)
    unit: Array = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit


def _largest_distance(features: Array) -> float:
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


def _all_pairs(features: Array, most: float) -> Array:
    """Pairs (., 2) whose 1 - cos is at most this."""
    rows = _unit(features)
    close: Array = np.argwhere(np.triu(rows @ rows.T >= 1 - most, 1))
    return close


def _projected_pairs(features: Array, most: float) -> Array:
    """The same, of those that are neighbours in the projection."""
    from scipy.spatial import cKDTree

    planes = np.random.default_rng(0).standard_normal((features.shape[1], PROJECTED))
    blocks = [slice(first, first + BLOCK) for first in range(0, len(features), BLOCK)]
    projected = np.concatenate([_unit(features[block]) @ planes for block in blocks])
    _, neighbours = cKDTree(projected).query(projected, NEAREST)  # (P, NEAREST)
    near = np.zeros(neighbours.shape, bool)
    for block in blocks:
        rows = _unit(features[block])
        for column in range(NEAREST):
            others = _unit(features[neighbours[block, column]])
            near[block, column] = np.einsum("pd,pd->p", rows, others) >= 1 - most
    rows, columns = np.nonzero(near)
    return np.stack([rows, neighbours[rows, columns]], 1)
