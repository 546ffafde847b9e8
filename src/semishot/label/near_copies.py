"""Near copies: images that look the same at 24 x 24 pixels, such as the same shot resized.

Letters: P rows of the pile, S pixels.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ALIKE = 0.985
"""The correlation of near copies; copies at 30 % of the size have 0.988 or more, different photographs
less than 0.97."""
PLAIN = 2.0
"""Gray levels of spread below which an image, such as a blank one, is a near copy of none."""
EXACT = 3000
"""Rows up to which all pairs are compared."""
PROJECTED, NEAREST = 8, 5
"""In larger piles, each row is compared with its nearest few in a random projection to so many dimensions,
where near copies lie near each other, too."""


def near_copies(looks: Array) -> Array:
    """(P, S) gray levels -> (P,): the first row of the group that a row belongs to, or itself."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(looks)
    rows = np.asarray(looks, np.float32)
    rows = rows - rows.mean(1, keepdims=True)
    spread = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(spread > PLAIN * rows.shape[1] ** 0.5, spread, np.inf)
    pairs = np.argwhere(np.triu(rows @ rows.T >= ALIKE, 1)) if count <= EXACT else _near(rows)
    links = coo_array((np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), (count, count))
    _, group = connected_components(links, directed=False)
    _, first = np.unique(group, return_index=True)
    leaders: Array = first[group]
    return leaders


def _near(rows: Array) -> Array:
    """Pairs (., 2) of near copies among those that are neighbours in the projection."""
    from scipy.spatial import cKDTree

    planes = np.random.default_rng(0).standard_normal((rows.shape[1], PROJECTED))
    projected = rows @ planes
    _, neighbours = cKDTree(projected).query(projected, NEAREST)  # (P, NEAREST)
    alike = [np.einsum("ps,ps->p", rows, rows[column]) >= ALIKE for column in neighbours.T]
    first, column = np.nonzero(np.stack(alike, 1))
    return np.stack([first, neighbours[first, column]], 1)
