"""Which images are alike: near copies, such as the same shot resized, and a map of the pile.

On the map, neighbours stay neighbours. Principal components first; then neighbours attract each other and
random rows repel each other, as in UMAP.
Letters: P rows of the pile, L of them laid out one by one, S gray levels, D features, C components,
k neighbours, E pairs.
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
COMPONENTS, NEIGHBOURS, ROUNDS, STRANGERS = 24, 12, 200, 4
MOST = 10_000
"""Rows that are laid out; of a larger pile, the others go to the rows that they resemble."""
STEP, FARTHEST = 0.5, 4.0
GRAVITY, ROOM = 0.05, 0.1
"""How much groups are drawn to the middle, and how much room neighbours leave each other."""


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


def layout(features: Array) -> NDArray[np.float32]:
    """(P, D) -> (P, 2), between 0 and 1; the same for the same rows."""
    count = len(features)
    if count < 3:
        return np.linspace(0.4, 0.6, 2 * count, dtype=np.float32).reshape(count, 2)

    # imported when a map is looked at: they take a second
    from sklearn.decomposition import PCA
    from sklearn.neighbors import NearestNeighbors

    from semishot.estimator.spaces import blocks, evenly_spaced, unit

    rows = evenly_spaced(count, MOST)
    found = PCA(min(COMPONENTS, len(rows), features.shape[1]), random_state=0)
    placed = found.fit_transform(unit(features[rows]))  # (L, C)
    near = NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(rows) - 1)).fit(placed)
    distances, indices = near.kneighbors()
    at = spread(placed[:, :2], indices, distances)  # (L, 2)
    if len(rows) < count:
        parts = [found.transform(unit(block)) for _, block in blocks(features)]
        at = at[near.kneighbors(np.concatenate(parts), 3)[1]].mean(1)
    at -= at.min(0)
    return (at / max(float(at.max()), 1e-12)).astype(np.float32)


def spread(start: Array, indices: Array, distances: Array) -> Array:
    """Places (L, 2), neighbours and their distances (L, k) -> places (L, 2)."""
    count, width = indices.shape
    usual = np.maximum(distances.mean(1, keepdims=True), 1e-12)
    weights = np.exp(-(distances - distances[:, :1]) / usual).ravel()  # (E,)
    here, there = np.repeat(np.arange(count), width), indices.ravel()
    at = 4 * start / max(float(start.std()), 1e-12)
    rng = np.random.default_rng(0)
    for round_ in range(ROUNDS):
        apart = at[here] - at[there]  # (E, 2)
        squared = (apart**2).sum(1)
        pull = apart * (weights * squared / (ROOM + squared) / (1 + squared))[:, None]
        others = rng.integers(0, count, (STRANGERS, count))
        away = at - at[others]  # (S, L, 2)
        squares = (away**2).sum(-1, keepdims=True)
        push = (away / ((0.01 + squares) * (1 + squares))).clip(-FARTHEST, FARTHEST).sum(0)
        force = push * width / STRANGERS - GRAVITY * at
        for axis in range(2):
            force[:, axis] -= np.bincount(here, pull[:, axis], count)
            force[:, axis] += np.bincount(there, pull[:, axis], count)
        at = at + STEP * (1 - round_ / ROUNDS) * force.clip(-FARTHEST, FARTHEST)
    return at
