"""Where rows are compared: normalized features, or few features under a Gaussian kernel; in blocks.

Letters: P rows, C candidates or rows at once, K pivots, N classes, D features.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from semishot.errors import InputError
from semishot.estimator import constants as const

NORMALIZATIONS = ("centered", "unit", "none")
"""Directions relative to their mean; directions; unchanged features."""

BLAS = ThreadpoolController()
"""The library that NumPy multiplies with."""

Array = NDArray[Any]
Positive = Annotated[float, Meta(gt=0)]
"""Checked when a saved model is read."""


class Space(Struct, frozen=True, tag=True):
    """Where distances are measured: raw features, or directions relative to `center`; over `length`.

    Eq. 2's softmax has no temperature. Dividing by `length` gives it the temperature length^2, since
    squared distances shrink by that much.
    """

    normalization: Literal["centered", "unit", "none"]
    center: Array
    length: Positive = 1.0

    def __call__(self, features: Array) -> Array:
        """(..., D) -> (..., D)."""
        if self.normalization == "centered":
            features = unit(features) - self.center
        if self.normalization != "none":
            features = unit(features)
        return features if self.length == 1 else features / self.length

    def settle(self, prototypes: Array) -> Array:
        """Means of directions, at unit length again: that of few examples is longer than that of many."""
        return prototypes if self.normalization == "none" else unit(prototypes) / self.length


class GaussianSpace(Struct, frozen=True, tag=True):
    """Where few features have directions that tell what distances told.

    The graph compares directions. Of many features they lose little, of two they lose most. With the kernel
    k(x, y) = exp(-|x - y|^2 / 2 h^2) every row has length 1 and a direction of its own, and neighbours stay
    the same. Incomplete Cholesky decomposition makes the kernel explicit: the cosine of two rows is about k.
    """

    center: Array  # (D,), subtracted first: rows far from zero keep the digits of their distances
    pivots: Array  # (K, D), in units of `width`
    mix: Array  # (K, K), lower triangle: makes coordinates of the kernel values with the pivots
    width: Positive  # h
    normalization: str = "none"
    length: float = 1.0

    def __call__(self, features: Array) -> Array:
        """(..., D) -> (..., K + 1). The last number is what no pivot explains: large far from all of them."""
        scaled = (features - self.center) / self.width
        along = np.exp(-squared_distances(scaled, self.pivots) / 2) @ self.mix.T  # (..., K)
        rest = np.sqrt(np.maximum(1 - (along**2).sum(-1, keepdims=True), 0))  # (..., 1)
        return np.concatenate([along, rest], -1)


AnySpace = Space | GaussianSpace


def gaussian_space(features: Array) -> GaussianSpace:
    """(P, D) -> the space of these rows and new ones. Its width is a share of the median distance between
    rows, and candidates for pivots are evenly spaced in the ranking by distance from the center."""
    center = features.mean(0, dtype=np.float64)  # (D,)
    parts = (block.astype(np.float64) - center for _, block in blocks(features))
    apart = np.concatenate([np.linalg.norm(part, axis=1) for part in parts])  # (P,)
    ranking = np.argsort(apart, kind="stable")
    if len(ranking) > const.KERNEL_CANDIDATES:
        ranking = ranking[evenly_spaced(len(ranking), const.KERNEL_CANDIDATES)]
    largest = float(apart.max()) or 1.0  # squares of rows over this cannot overflow
    rows = (features[ranking].astype(np.float64) - center) / largest  # (C, D)
    squares = squared_distances(rows, rows)  # (C, C)
    positive = squares[np.triu_indices(len(rows), 1)]
    positive = positive[positive > 0]
    width = float(np.sqrt(const.KERNEL_WIDTH * np.median(positive))) if len(positive) else 1.0
    picked, factor = _pivots(np.exp(-squares / (2 * width**2)))
    arrays = (center, rows[picked] / width, np.linalg.inv(factor))
    center, pivots, mix = (each.astype(features.dtype) for each in arrays)
    return GaussianSpace(center, pivots, mix, width * largest)


def _pivots(kernel: Array) -> tuple[list[int], Array]:
    """(C, C) -> the rows that earlier ones explain least, and (K, K), the Cholesky factor of their kernel."""
    picked: list[int] = []
    factor = np.zeros((len(kernel), min(const.KERNEL_PIVOTS, len(kernel))))  # (C, K)
    left = np.ones(len(kernel))  # (C,), what no pivot explains
    for number in range(factor.shape[1]):
        pivot = int(left.round(6).argmax())
        if left[pivot] < const.KERNEL_REST:
            break
        column = kernel[:, pivot] - factor[:, :number] @ factor[pivot, :number]
        factor[:, number] = column / np.sqrt(left[pivot])
        left = np.maximum(left - factor[:, number] ** 2, 0)
        picked.append(pivot)
    return picked, factor[picked, : len(picked)]


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread: blocks are small, and threads would mostly wait for each other."""
    with BLAS.limit(limits=1):
        yield


def as_array(values: Any) -> Any:
    """A torch tensor as an array; anything else unchanged."""
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()


def check_size(features: Array, fitting: bool = False) -> None:
    """Refuse features whose squares may overflow or, in `fit`, vanish."""
    limits, largest = np.finfo(features.dtype), float(max(features.max(), -features.min()))
    most, least = float(limits.max) ** 0.4, float(limits.tiny) ** 0.25
    if largest > most:
        raise InputError(
            f"features reach {largest:.3g}, and squares of numbers above {most:.3g} may overflow in "
            f"{features.dtype}: rescale X, or give float64"
        )
    if fitting and 0 < largest < least:
        raise InputError(
            f"no feature is larger than {largest:.3g}, and squares of numbers below {least:.3g} vanish in "
            f"{features.dtype}: rescale X"
        )


def blocks(features: Array) -> Iterator[tuple[slice, Array]]:
    """The rows in blocks: a memory map is never read whole."""
    rows = max(1, const.BLOCK // features.shape[1])
    for first in range(0, len(features), rows):
        part = slice(first, first + rows)
        yield part, np.asarray(features[part])


def evenly_spaced(count: int, wanted: int) -> NDArray[np.int64]:
    """`wanted` of `count` indices, the first and the last among them."""
    return np.linspace(0, count - 1, wanted).round().astype(np.int64)


def unit(rows: Array) -> Array:
    """(..., D) -> (..., D), of length 1; zeros stay zeros."""
    lengths = np.sqrt(np.einsum("...d,...d->...", rows, rows))[..., None]
    return rows / np.where(lengths > 0, lengths, 1)


def mean_direction(features: Array) -> Array:
    """(P, D) -> (D,), the mean of the features at unit length."""
    total = np.zeros(features.shape[1])
    for _, block in blocks(features):
        total += unit(block).sum(0)
    return (total / len(features)).astype(features.dtype)


def squared_distances(a: Array, b: Array) -> Array:
    """(..., D), (N, D) -> (..., N): |a|^2 - 2 ab + |b|^2, both seen from the mean of b, to keep digits."""
    center = b.mean(0) if len(b) else np.zeros((), b.dtype)
    a, b = a - center, b - center
    aa, bb = (np.einsum("...d,...d->...", each, each) for each in (a, b))
    distances: Array = np.maximum(aa[..., None] - 2 * a @ b.T + bb, 0)
    if not np.isfinite(distances.sum()):
        raise InputError(
            f"distances between rows are not finite in {distances.dtype}: they are so large that their "
            "squares overflow; rescale X, or give float64"
        )
    return distances


def nearest(cosines: Array, count: int) -> tuple[Array, Array]:
    """(C, L) -> the indices (C, k) and cosines (C, k) of the largest. Overwrites its argument."""
    indices = np.empty((len(cosines), count), np.int64)
    values = np.empty((len(cosines), count), cosines.dtype)
    rows = np.arange(len(cosines))
    for number in range(count):  # faster than a partition, for so few
        indices[:, number] = best = cosines.argmax(1)
        values[:, number] = cosines[rows, best]
        cosines[rows, best] = -np.inf
    return indices, values
