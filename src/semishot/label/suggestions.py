"""Which images to show first, and which to ask about next.

Without labels: a varied few dozen, one near each center of k-means. With labels: uncertain rows, members or
strangers, that represent many others and differ from each other.
Letters: P rows of the pile, C candidates, V rows to represent, N classes, D features.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["varied", "worth_asking"]

Array = NDArray[Any]
SAMPLE = 2000
"""Rows that stand for the whole pile, evenly spaced."""
CANDIDATES = 300
LLOYD_STEPS = 4
SMALLEST = 1e-12


def directions(features: Array, rows: Array, center: Array | None = None) -> Array:
    """(P, D), (V,) -> (V, D), of unit length, seen from their mean or from `center`."""
    held = np.asarray(features[rows], np.float32)
    held /= np.maximum(np.linalg.norm(held, axis=1, keepdims=True), SMALLEST)
    held = held - (held.mean(0) if center is None else center)
    unit: Array = held / np.maximum(np.linalg.norm(held, axis=1, keepdims=True), SMALLEST)
    return unit


def spaced(count: int, most: int) -> Array:
    """At most `most` of `count` places, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def varied(features: Array, count: int, seed: int = 0) -> Array:
    """(P, D) -> rows that are spread over the pile, the most typical first: k-means++, then the nearest."""
    sample = spaced(len(features), SAMPLE)
    rows = directions(features, sample)  # (V, D)
    generator = np.random.default_rng(seed)
    chosen = [int((rows @ rows.mean(0)).argmax())]
    apart = 1 - rows @ rows[chosen[0]]  # (V,)
    while len(chosen) < min(count, len(rows)):
        weights = np.maximum(apart, 0) ** 2
        if weights.sum() <= SMALLEST:
            break
        chosen.append(int(generator.choice(len(rows), p=weights / weights.sum())))
        apart = np.minimum(apart, 1 - rows @ rows[chosen[-1]])
    centers = rows[chosen]
    for _ in range(LLOYD_STEPS):
        nearest = (rows @ centers.T).argmax(1)
        sums = np.stack([rows[nearest == k].sum(0) for k in range(len(centers))])
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centers = np.where(lengths > SMALLEST, sums / np.maximum(lengths, SMALLEST), centers)
    along = rows @ centers.T  # (V, C)
    sizes = np.bincount(along.argmax(1), minlength=len(centers))
    found: dict[int, None] = {}
    for k in np.argsort(-sizes, kind="stable"):
        found.setdefault(int(sample[along[:, k].argmax()]))
    return np.array(list(found), np.int64)


def uncertainty(classes: Array, stranger: Array) -> Array:
    """(P, N), (P,) -> (P,), the entropy of all answers: each class, and none of them."""
    both = np.column_stack([classes * (1 - stranger)[:, None], stranger])
    entropy: Array = -(both * np.log(np.maximum(both, SMALLEST))).sum(1)
    return entropy


def worth_asking(
    features: Array, uncertain: Array, allowed: Array, kept: Collection[int], count: int
) -> list[int]:
    """(P, D), (P,), (P,) -> up to `count` rows, those of `kept` first, in their order.

    Each choice is the candidate of most uncertainty times what it represents and the others do not yet.
    """
    chosen = [row for row in kept if allowed[row]][:count]
    pool = np.flatnonzero(allowed)
    if not len(pool) or len(chosen) == count:
        return chosen
    best = pool[np.argsort(-uncertain[pool], kind="stable")[:CANDIDATES]]
    sample = spaced(len(features), SAMPLE // 2)
    center = np.asarray(features[sample], np.float32)
    center = (center / np.maximum(np.linalg.norm(center, axis=1, keepdims=True), SMALLEST)).mean(0)
    candidates = directions(features, best, center)  # (C, D)
    whole = directions(features, sample, center)  # (V, D)
    kernel = np.maximum(candidates @ whole.T, 0) ** 3  # (C, V)
    covered = np.zeros(len(sample), np.float32)  # (V,)
    if chosen:
        shown = np.maximum(directions(features, np.array(chosen), center) @ whole.T, 0) ** 3
        covered = shown.max(0)
    left = ~np.isin(best, chosen)
    worth = uncertain[best]
    while len(chosen) < count and left.any():
        gains = (np.maximum(kernel - covered, 0).sum(1) + SMALLEST) * worth * left
        place = int(gains.argmax())
        if gains[place] <= 0:
            break
        chosen.append(int(best[place]))
        covered = np.maximum(covered, kernel[place])
        left &= candidates @ candidates[place] < 0.98
        left[place] = False
    return chosen
