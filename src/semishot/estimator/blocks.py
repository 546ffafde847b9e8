"""Any number of examples, processed in blocks: scaled, and reduced to N + 1 coordinates for refiners.

Letters: P examples, L examples of a block, N classes, D features.
Nothing here holds more than P x N numbers and one block, except for a refiner that needs the features.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController
from torch import Tensor, nn
from torch.nn import functional as F

from semishot.errors import InputError
from semishot.prototypes import class_prototypes

BLOCK = 2**19
"""Numbers in a block: 2 MB in float32, which stay in the cache from one operation to the next."""

MOST_NUMBERS = 2**28
"""Numbers that a refiner may be given at once: 1 GB in float32, of which it may make a few copies."""

NORMALIZATIONS = ("centered", "unit", "none")
"""Directions relative to their mean; directions; unchanged features."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Space:
    """Where distances are measured: raw features, or directions relative to `center`; over `length`.

    Eq. 2's softmax has no temperature. Dividing by `length` gives it the temperature length^2, since
    squared distances shrink by that much.
    """

    normalization: str
    center: Tensor
    length: float = 1.0

    def __call__(self, features: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        if self.normalization == "centered":
            features = unit(features) - self.center
        if self.normalization != "none":
            features = unit(features)
        return features / self.length

    def settle(self, prototypes: Tensor) -> Tensor:
        """Means of directions, scaled to unit length again, whatever the number of examples.

        Otherwise the mean of few examples would be longer than that of many, and farther from all examples.
        """
        if self.normalization == "none":
            return prototypes
        return unit(prototypes) / self.length


def unit(rows: Tensor) -> Tensor:
    """(..., D) -> (..., D), of length 1 at any scale; zeros stay zeros."""
    return F.normalize(rows, dim=-1, eps=torch.finfo(rows.dtype).tiny)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread: blocks are small, and threads would mostly wait for each other, above all on a
    busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with blas_libraries().limit(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


@cache
def blas_libraries() -> ThreadpoolController:
    """Those that NumPy and SciPy have loaded."""
    return ThreadpoolController()


def blocks(features: Array) -> Iterator[tuple[slice, Tensor]]:
    """The rows in blocks, each a copy: a memory map is never read whole."""
    rows = max(1, BLOCK // features.shape[1])
    for first in range(0, len(features), rows):
        part = slice(first, first + rows)
        yield part, torch.from_numpy(np.array(features[part]))


def evenly_spaced(count: int, wanted: int) -> NDArray[np.int64]:
    """`wanted` of `count` places, the first and the last among them."""
    return np.linspace(0, count - 1, wanted).round().astype(np.int64)


def mean_direction(features: Array) -> Tensor:
    """(P, D) -> (D,), the mean of the features at unit length."""
    total = torch.zeros(features.shape[1], dtype=torch.float64)
    for _, block in blocks(features):
        total += unit(block).sum(0)
    return (total / len(features)).to(block)


def coordinates(features: Array, space: Space, prototypes: Tensor) -> tuple[Tensor, Tensor]:
    """(P, D), (N, D) -> (P, N + 1), (N, N + 1) with the same distances to prototypes and origin.

    The prototypes span at most N dimensions. Of the rest of an example only the length matters for
    these distances, and it becomes the last coordinate. A refiner that uses only these distances gives
    the same weights.
    """
    basis = torch.linalg.qr(prototypes.mT).Q  # (D, N), or (D, D) if that is less
    shape = len(features), basis.shape[1] + 1
    seen = basis.new_empty(shape)  # allocated once: concatenation would fragment memory
    for part, block in blocks(features):
        scaled = space(block)  # (L, D)
        along = scaled @ basis  # (L, N)
        seen[part, :-1] = along
        rest = scaled.square().sum(-1) - along.square().sum(-1)  # (L,)
        seen[part, -1] = rest.clamp_min(0).sqrt()
    return seen, F.pad(prototypes @ basis, (0, 1))


def prototypes_in_blocks(features: Array, space: Space, weights: Tensor) -> Tensor:
    """Eqs. 1, 4, 9: (P, D), (P, N) -> (N, D), what `class_prototypes` gives for the scaled features.

    The weighted mean of a whole is the weighted mean of its blocks' means.
    """
    mean = torch.zeros(weights.shape[1], features.shape[1], dtype=weights.dtype)
    total = weights.new_zeros(weights.shape[1], 1)
    for part, block in blocks(features):
        own = weights[part].sum(0).unsqueeze(-1)  # (N, 1)
        total = total + own
        share = own / torch.where(total == 0, 1, total)
        mean = mean + share * (class_prototypes(space(block), weights[part]) - mean)
    return mean


def in_memory(features: Array, chosen: Tensor, space: Space) -> Tensor:
    """(P, D), (P,) -> (U, D), the scaled features of the chosen examples, for a refiner that compares
    examples with each other: coordinates keep only their distances to prototypes."""
    count, width = int(chosen.sum()), features.shape[1]
    if count * width > MOST_NUMBERS:
        raise InputError(
            f"this refiner needs the features of all unlabeled examples at once, at most "
            f"{MOST_NUMBERS // width:,} of {width:,} numbers, not {count:,}: give fewer, or choose "
            "'graph' or 'fitted_mask', which work in blocks"
        )
    pile = space.center.new_empty(count, width)
    first = 0
    for part, block in blocks(features):
        some = space(block[chosen[part]])
        pile[first : first + len(some)] = some
        first += len(some)
    return pile


@torch.no_grad()
def refined_in_blocks(
    refiner: nn.Module | None, features: Array, labels: Tensor, space: Space, steps: int
) -> Tensor:
    """`refine.refined_prototypes` for (P, D), (P, N) -> (N, D): rows of zeros are the unlabeled ones."""
    unlabeled = labels.sum(-1) == 0  # (P,)
    support = torch.from_numpy(np.array(features[~unlabeled.numpy()]))
    prototypes = space.settle(class_prototypes(space(support), labels[~unlabeled]))  # Eq. 1
    if refiner is None or not unlabeled.any():
        return prototypes
    weights = labels.clone()
    for _ in range(steps):
        if getattr(refiner, "needs_support", False):
            pile = in_memory(features, unlabeled, space)
            weights[unlabeled] = refiner(pile, prototypes, space(support), labels[~unlabeled])
        else:
            seen, landmarks = coordinates(features, space, prototypes)
            weights[unlabeled] = refiner(seen[unlabeled], landmarks)
        prototypes = space.settle(prototypes_in_blocks(features, space, weights))  # Eqs. 4, 9
    return prototypes
