"""A map of the pile: two dimensions in which neighbours stay neighbours.

Principal components first; then neighbours attract each other and random rows repel each other, as in UMAP.
Letters: P rows, L of them laid out one by one, D features, k neighbours, E pairs.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
COMPONENTS, NEIGHBOURS, ROUNDS, STRANGERS = 24, 12, 200, 4
MOST = 10_000
"""Rows that are laid out; of a larger pile, the others go to the rows that they resemble."""
BLOCK, STEP, FARTHEST = 1000, 0.5, 4.0
GRAVITY, ROOM = 0.05, 0.1
"""How much groups are drawn to the middle, and how much room neighbours leave each other."""


def layout(features: Array) -> NDArray[np.float32]:
    """(P, D) -> (P, 2), between 0 and 1; the same for the same rows."""
    count = len(features)
    if count < 3:
        return np.linspace(0.4, 0.6, 2 * count, dtype=np.float32).reshape(count, 2)
    rows = np.unique(np.linspace(0, count - 1, min(count, MOST)).round().astype(np.int64))
    placed, axes, mean = principal(features[rows])  # (L, C)
    indices, distances = nearest(placed, placed, min(NEIGHBOURS, len(rows) - 1) + 1)
    at = spread(placed[:, :2], indices[:, 1:], distances[:, 1:])  # (L, 2)
    if len(rows) < count:
        parts = [slice(first, first + BLOCK) for first in range(0, count, BLOCK)]
        near = [nearest((unit(features[part]) - mean) @ axes, placed, 3)[0] for part in parts]
        at = at[np.concatenate(near)].mean(1)
    at -= at.min(0)
    return (at / max(float(at.max()), 1e-12)).astype(np.float32)


def unit(rows: Array) -> Array:
    rows = np.asarray(rows, np.float32)
    directions: Array = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return directions


def principal(rows: Array) -> tuple[Array, Array, Array]:
    """(L, D) -> principal components of the directions (L, C), their axes (D, C) and mean (D,)."""
    rows = unit(rows)
    mean = rows.mean(0)
    rows = rows - mean
    count = min(COMPONENTS, *rows.shape)
    basis = np.random.default_rng(0).standard_normal((rows.shape[1], 2 * count)).astype(np.float32)
    for _ in range(3):  # subspace iteration
        basis = np.linalg.qr(rows.T @ (rows @ basis))[0]
    _, _, turned = np.linalg.svd(rows @ basis, full_matrices=False)
    axes = basis @ turned[:count].T
    return rows @ axes, axes, mean


def nearest(rows: Array, among: Array, count: int) -> tuple[Array, Array]:
    """(R, C), (L, C) -> the nearest few of each row, by index, and their distances, both (R, k)."""
    squares, indices, distances = (among**2).sum(1), [], []
    for first in range(0, len(rows), BLOCK):
        block = rows[first : first + BLOCK]
        apart = squares - 2 * block @ among.T + (block**2).sum(1, keepdims=True)
        some = np.argpartition(apart, count - 1, 1)[:, :count]
        own = np.take_along_axis(apart, some, 1)
        order = own.argsort(1)
        indices.append(np.take_along_axis(some, order, 1))
        distances.append(np.sqrt(np.maximum(np.take_along_axis(own, order, 1), 0)))
    return np.concatenate(indices), np.concatenate(distances)


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
