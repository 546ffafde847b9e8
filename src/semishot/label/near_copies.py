"""Near copies: rows whose features are almost equal, found by sorting, in time nearly linear in the pile.

Letters: P rows of the pile, D features, W words.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ALIKE, NEARER = 0.97, 0.12
"""Near copies, such as the same shot resized, have at least this cosine, and lie nearer than this share of
the usual distance to the nearest neighbour: encoders differ in how much alike everything looks to them."""
EXACT = 3000
"""Rows up to which all pairs are compared."""
WORDS, ROTATIONS, AHEAD = 4, 32, 3
"""Signs of 64 random projections make a word. Rows are sorted by their signs, from another one on each time,
and each is compared with the next few: near copies agree in long runs of signs."""
MOST_DIFFERENT = 0.2
"""The share of signs in which near copies may differ: by chance it is one half."""
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
    pairs = _all_pairs(features, most) if count <= EXACT else _sorted_pairs(features, most)
    for a, b in pairs.tolist():
        first, second = _root(parents, a), _root(parents, b)
        parents[max(first, second)] = min(first, second)
    if not len(pairs):
        return parents
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


def _all_pairs(features: Array, most: float) -> Array:
    rows = _unit(features)
    close: Array = np.argwhere(np.triu(rows @ rows.T >= 1 - most, 1))
    return close


def _sorted_pairs(features: Array, most: float) -> Array:
    """Pairs (., 2) that lie near each other in one of the orders, and are near."""
    signs = _signs(features)  # (P, W) words
    found: list[Array] = []
    for rotation in range(ROTATIONS):
        word, by = divmod(rotation * WORDS * 64 // ROTATIONS, 64)
        here, following = signs[:, word], signs[:, (word + 1) % WORDS]
        by64 = np.uint64(by)
        key = here if not by else (here << by64) | (following >> (np.uint64(64) - by64))
        order = np.argsort(key)
        for ahead in range(1, AHEAD + 1):
            a, b = order[:-ahead], order[ahead:]
            differ = _ones(signs[a] ^ signs[b]).sum(1)
            alike = differ <= MOST_DIFFERENT * WORDS * 64
            found.append(np.sort(np.stack([a[alike], b[alike]], 1), 1))
    pairs = np.unique(np.concatenate(found), axis=0)
    near = np.zeros(len(pairs), bool)
    for first in range(0, len(pairs), BLOCK):
        left, right = pairs[first : first + BLOCK].T
        cosines = (_unit(features[left]) * _unit(features[right])).sum(1)
        near[first : first + BLOCK] = cosines >= 1 - most
    return pairs[near]


def _ones(words: Array) -> Array:
    """How many bits of each word are set: sums of 1, 2, 4, then all bits."""
    one, two, four = (np.uint64(number) for number in (1, 2, 4))
    words = words - ((words >> one) & np.uint64(0x5555555555555555))
    twos = np.uint64(0x3333333333333333)
    words = (words & twos) + ((words >> two) & twos)
    words = (words + (words >> four)) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (words * np.uint64(0x0101010101010101)) >> np.uint64(56)


def _signs(features: Array) -> Array:
    """(P, D) -> (P, W) words of signs of random projections, seen from the center."""
    planes = np.random.default_rng(0).standard_normal((features.shape[1], WORDS * 64))
    planes = planes.astype(np.float32)
    center = _unit(features[:: max(1, len(features) // 2000)]).mean(0) @ planes
    signs = np.empty((len(features), WORDS), np.uint64)
    for first in range(0, len(features), BLOCK):
        sides = _unit(features[first : first + BLOCK]) @ planes > center
        signs[first : first + BLOCK] = np.packbits(sides, axis=1).view(">u8")
    return signs
