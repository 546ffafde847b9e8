"""Which images to show first, and which to ask about next.

Without labels: a varied few dozen, one near each center of k-means. With labels: uncertain rows, members or
strangers, that represent many others and differ from each other.
Letters: P rows of the pile, C candidates, V rows to represent, N classes, D features.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Sample", "uncertainty", "varied", "worth_asking"]

Array = NDArray[Any]
SAMPLE = 2000
"""Rows that stand for the whole pile, evenly spaced."""
CANDIDATES = 300
MOST_KNOWN = 4000
"""Rows whose likeness to the sample is remembered: 16 MB."""
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


class Sample:
    """Rows that stand for the whole pile, and how others resemble them."""

    def __init__(self, features: Array) -> None:
        self.features, self.count = features, len(features)
        rows = spaced(len(features), SAMPLE // 2)
        held = np.asarray(features[rows], np.float32)
        held = held / np.maximum(np.linalg.norm(held, axis=1, keepdims=True), SMALLEST)
        self.center = held.mean(0)
        self.directions = directions(features, rows, self.center)  # (V, D)
        self.known: dict[int, Array] = {}

    def represents(self, rows: Array) -> Array:
        """(C,) -> (C, V), how much each row represents of each row of the sample; remembered."""
        if len(self.known) > MOST_KNOWN:
            self.known.clear()
        new = np.array([row for row in rows.tolist() if row not in self.known], np.int64)
        if len(new):
            along = np.maximum(directions(self.features, new, self.center) @ self.directions.T, 0)
            self.known |= zip(new.tolist(), along * along * along, strict=True)
        return np.stack([self.known[row] for row in rows.tolist()])


def worth_asking(
    sample: Sample, uncertain: Array, allowed: Array, kept: Collection[int], count: int
) -> list[int]:
    """(P,), (P,) -> up to `count` rows, those of `kept` first, in their order.

    Each choice is the candidate of most uncertainty times what it represents and the others do not yet.
    Such gains only shrink as others are chosen: one is computed again when it is the largest.
    """
    chosen = [row for row in kept if allowed[row]][:count]
    pool = np.flatnonzero(allowed)
    if not len(pool) or len(chosen) == count:
        return chosen
    if len(pool) > CANDIDATES:
        pool = np.sort(pool[np.argpartition(-uncertain[pool], CANDIDATES - 1)[:CANDIDATES]])
    best = pool[np.argsort(-uncertain[pool], kind="stable")]
    kernel = sample.represents(best)  # (C, V)
    candidates = directions(sample.features, best, sample.center)  # (C, D)
    covered = np.zeros(kernel.shape[1], np.float32)  # (V,)
    if chosen:
        covered = sample.represents(np.array(chosen)).max(0)
    worth = uncertain[best]
    left = ~np.isin(best, chosen)
    gains = (np.maximum(kernel - covered, 0).sum(1) + SMALLEST) * worth * left
    while len(chosen) < count:
        place = int(gains.argmax())
        now = (float(np.maximum(kernel[place] - covered, 0).sum()) + SMALLEST) * worth[place]
        gains[place] = now * left[place]
        if gains[place] < gains.max():
            continue
        if gains[place] <= 0:
            break
        chosen.append(int(best[place]))
        covered = np.maximum(covered, kernel[place])
        left &= candidates @ candidates[place] < 0.98
        left[place] = False
        gains *= left
    return chosen
