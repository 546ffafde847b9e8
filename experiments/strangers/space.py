"""Few features: rows lifted into a space where directions tell what distances told.

The rule reads directions seen from the center. Of many features they lose nothing, of two they lose most.
With a Gaussian kernel k(x, y) = exp(-|x - y|^2 / 2 h^2), every row has length 1 and a direction of its own,
and neighbours are the same as before. h is a share of the median distance between rows, so scale, rotation
and shift of the features change nothing. Incomplete Cholesky decomposition makes the kernel explicit:
pivots are rows that the earlier ones explain least.
Letters: M rows, C of them candidates, P pivots, D features.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from strangers.graph import Array

FEW_FEATURES = 32
"""Below this many features rows are lifted."""
CANDIDATES = 1000
"""Rows that pivots are chosen from."""
PIVOTS = 100
UNEXPLAINED = 1e-3
"""Of a row's squared length: no pivot is added for less."""
WIDTH = 0.4
"""h^2, as a share of the median squared distance between rows."""


class Lift(NamedTuple):
    pivots: Array
    """(P, D), in units of h."""
    factor: Array
    """(P, P), the lower triangle that makes pivots' kernel values independent."""
    center: Array
    """(D,), subtracted first: distances between rows far from zero keep their digits."""
    width: float
    """h."""


def lift_of(features: Array) -> Lift:
    """(M, D) -> how to lift these rows and new ones.

    Candidates are evenly spaced in the ranking by distance from the center.
    """
    center = features.mean(0, dtype=np.float64)
    apart = ((features - center) ** 2).sum(1)  # (M,)
    places = np.argsort(apart, kind="stable")
    if len(places) > CANDIDATES:
        places = places[np.linspace(0, len(places) - 1, CANDIDATES).round().astype(int)]
    rows = features[places].astype(np.float64) - center  # (C, D)
    squares = squared(rows, rows)  # (C, C)
    positive = squares[np.triu_indices(len(rows), 1)]
    positive = positive[positive > 0]
    width = float(np.sqrt(WIDTH * np.median(positive))) if len(positive) else 1.0
    kernel = np.exp(-squares / (2 * width**2))  # (C, C)
    picked: list[int] = []
    factor = np.zeros((len(rows), min(PIVOTS, len(rows))))  # (C, P), kernel = factor factor'
    left = np.ones(len(rows))  # (C,), what no pivot explains
    for number in range(factor.shape[1]):
        pivot = int(left.round(6).argmax())
        if left[pivot] < UNEXPLAINED:
            break
        column = kernel[:, pivot] - factor[:, :number] @ factor[pivot, :number]
        factor[:, number] = column / np.sqrt(left[pivot])
        left = np.maximum(left - factor[:, number] ** 2, 0)
        picked.append(pivot)
    own = factor[np.ix_(picked, np.arange(len(picked)))]  # (P, P)
    return Lift(rows[picked] / width, own, center, width)


def lifted(lift: Lift, features: Array) -> Array:
    """(M, D) -> (M, P + 1), of length 1. The last is what no pivot explains: large far from all of them."""
    scaled = (features - lift.center) / lift.width
    kernel = np.exp(-squared(lift.pivots, scaled) / 2)  # (P, M)
    rows = solve_triangular(lift.factor, kernel, lower=True).T  # (M, P)
    left = np.sqrt(np.maximum(1 - (rows**2).sum(1), 0))  # (M,)
    return np.column_stack([rows, left]).astype(np.float32)


def squared(a: Array, b: Array) -> Array:
    return np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T, 0)
