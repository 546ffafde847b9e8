"""Near copies: images that look the same at 24 x 24 pixels, such as the same shot resized.

Letters: P rows of the pile, S pixels, k neighbours, E pairs of rows.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ALIKE = 0.985
"""The correlation of near copies; copies at 30 % of the size have 0.988 or more, different photographs
less than 0.97."""
PLAIN = 2.0
"""Gray levels of spread below which an image, such as a blank one, is a near copy of none."""
PROJECTED, NEAREST = 8, 5
"""Each row is compared with its nearest few in a random projection to so many dimensions, where near copies
lie near each other, too."""


def near_copies(looks: Array, joined: Sequence[tuple[int, int]] = ()) -> Array:
    """(P, S) gray levels -> (P,): the first row of the group that a row belongs to, or itself.

    joined: rows that are of one group, however they look.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import cKDTree

    count = len(looks)
    rows = np.asarray(looks, np.float32)
    rows = rows - rows.mean(1, keepdims=True)
    spread = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.where(spread > PLAIN * rows.shape[1] ** 0.5, spread, np.inf)
    planes = np.random.default_rng(0).standard_normal((rows.shape[1], PROJECTED), np.float32)
    projected = rows @ planes
    near = cKDTree(projected).query(projected, range(1, min(NEAREST, count) + 1))[1]  # (P, k)
    alike = [np.einsum("ps,ps->p", rows, rows[column]) >= ALIKE for column in near.T]
    first, column = np.nonzero(np.stack(alike, 1))
    pairs = np.stack([first, near[first, column]], 1)
    pairs = np.concatenate([pairs, np.array(joined, int).reshape(-1, 2)])  # (E, 2)
    links = coo_array((np.ones(len(pairs), bool), pairs.T), (count, count))
    _, group = connected_components(links, directed=False)
    _, leader = np.unique(group, return_index=True)
    leaders: Array = leader[group]
    return leaders
