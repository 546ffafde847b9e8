"""Few features: rows are lifted into a space where directions tell what distances told.

The graph compares directions. Of many features they lose little, of two they lose most. With a Gaussian
kernel k(x, y) = exp(-|x - y|^2 / 2 h^2) every row has length 1 and a direction of its own, and neighbours
are the same as before. h is a share of the median distance between rows, so scale, rotation and shift of
the features change nothing. Incomplete Cholesky decomposition makes the kernel explicit: pivots are rows
that the earlier ones explain least.
Letters: P rows, C of them candidates, K pivots, D features.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from semishot.estimator.blocks import Array, blocks, evenly_spaced
from semishot.prototypes import squared_distances

CANDIDATES = 1000
"""Rows that pivots are chosen from."""
PIVOTS = 200
UNEXPLAINED = 1e-3
"""Of a row's squared length: no pivot is added for less."""
WIDTH = 0.125
"""h^2, as a share of the median squared distance between rows."""


@dataclass(frozen=True)
class Lift:
    """Where rows have length 1, and the cosine of two is about the Gaussian kernel."""

    center: Tensor
    """(D,), subtracted first: rows far from zero keep the digits of their distances."""
    pivots: Tensor
    """(K, D), in units of `width`."""
    mix: Tensor
    """(K, K), lower triangle: makes coordinates of the kernel values with the pivots."""
    width: float
    """h."""
    normalization: str = "none"
    length: float = 1.0

    def __call__(self, features: Tensor) -> Tensor:
        """(..., D) -> (..., K + 1). The last number is what no pivot explains: large far from all of them."""
        scaled = (features - self.center) / self.width
        kernel = (-squared_distances(scaled, self.pivots) / 2).exp()  # (..., K)
        along = kernel @ self.mix.mT  # (..., K)
        rest = (1 - along.square().sum(-1, keepdim=True)).clamp_min(0).sqrt()  # (..., 1)
        return torch.cat([along, rest], -1)


def lift_of(features: Array) -> Lift:
    """(P, D) -> how to lift these rows and new ones.

    Candidates are evenly spaced in the ranking by distance from the center.
    """
    center = features.mean(0, dtype=np.float64)  # (D,)
    parts = (block.double().numpy() - center for _, block in blocks(features))
    apart = np.concatenate([np.linalg.norm(part, axis=1) for part in parts])  # (P,)
    places = np.argsort(apart, kind="stable")
    if len(places) > CANDIDATES:
        places = places[evenly_spaced(len(places), CANDIDATES)]
    rows = features[places].astype(np.float64) - center  # (C, D)
    unit = float(apart.max()) or 1.0  # squares of these cannot overflow
    squares = squared_distances(*[torch.from_numpy(rows / unit)] * 2).numpy()  # (C, C)
    positive = squares[np.triu_indices(len(rows), 1)]
    positive = positive[positive > 0]
    width = float(np.sqrt(WIDTH * np.median(positive))) if len(positive) else 1.0
    picked, factor = pivots_of(np.exp(-squares / (2 * width**2)))
    like = torch.from_numpy(np.array(features[:1]))
    mix = np.linalg.inv(factor) if len(factor) else factor
    pivots = rows[picked] / unit / width  # (K, D)
    tensors = [torch.from_numpy(each).to(like) for each in (center, pivots, mix)]
    return Lift(tensors[0], tensors[1], tensors[2], width * unit)


def pivots_of(kernel: NDArray[np.float64]) -> tuple[list[int], NDArray[np.float64]]:
    """(C, C) -> the pivots, and (K, K), the lower triangle that times its transpose is their kernel."""
    picked: list[int] = []
    factor = np.zeros((len(kernel), min(PIVOTS, len(kernel))))  # (C, K)
    left = np.ones(len(kernel))  # (C,), what no pivot explains
    for number in range(factor.shape[1]):
        pivot = int(left.round(6).argmax())
        if left[pivot] < UNEXPLAINED:
            break
        column = kernel[:, pivot] - factor[:, :number] @ factor[pivot, :number]
        factor[:, number] = column / np.sqrt(left[pivot])
        left = np.maximum(left - factor[:, number] ** 2, 0)
        picked.append(pivot)
    return picked, factor[picked, : len(picked)]
