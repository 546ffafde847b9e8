"""Where rows are compared: by the cosine of centered features, and of few features by a Gaussian kernel.

Letters: P rows, C rows at once, K pivots, N classes, D features.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy.sparse import issparse
from threadpoolctl import ThreadpoolController

from semishot.errors import InputError

NORMALIZATIONS = ("centered", "unit", "none")
"""Normalized relative to their mean; directions; unchanged features under a Gaussian kernel."""
Array = NDArray[Any]
Parts = TypeVar("Parts", bound=tuple[Any, ...])
T = TypeVar("T")
Found = TypeVar("Found")
Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(gt=0)]
"""Both are checked when a saved model is read."""
BLAS = ThreadpoolController()
"""The library that NumPy multiplies with."""
BLOCK, PRODUCTS = 1 << 23, 1 << 21
"""Numbers of a block of rows, and of its products with other rows."""
THREADS = min(os.cpu_count() or 1, 4)
"""That work on blocks at the same time."""
FEW, MANY = 6, 16
"""Up to so many features the kernel compares rows, from so many on the cosine does, between them both."""
CANDIDATES, PIVOTS, REST = 600, 150, 1e-3
"""Of the kernel: rows that pivots are chosen from, pivots at most, and what a pivot must add."""
WIDTH = 0.1
"""The squared width of the kernel, as a share of the median squared distance between rows."""
TRUSTED = 20
"""Rows of a pile: the mean of fewer may be that of one class, and is no center."""
DOMINANT = 0.5
"""If one feature has more than this share of all variance, features are standardized."""


class Space(Struct, frozen=True):
    """Makes rows of length 1 whose products say how alike two examples are."""

    shift: Array  # (D,), subtracted from features
    scale: Array  # (D,), that they are then divided by
    center: Array  # (D,), subtracted from their directions
    by_cosine: Share  # how much the cosine counts; the rest is the kernel's
    pivots: Array  # (K, D), in units of the kernel's width
    mix: Array  # (K, K), lower triangle: makes coordinates of the kernel values with the pivots
    width: Positive = 1.0

    def directions(self, features: Array) -> Array:
        """(C, D) -> (C, D), unit length, not centered."""
        return unit((like(self.center, features) - self.shift) / self.scale)

    def __call__(self, features: Array) -> Array:
        """(C, D) -> (C, D + K + 1), unit length; only D, or only K + 1, where one way alone counts."""
        features, parts = like(self.center, features), []
        if self.by_cosine > 0:
            parts.append(np.sqrt(self.by_cosine) * unit(self.directions(features) - self.center))
        if self.by_cosine < 1:
            scaled = (features - self.shift) / (self.scale * self.width)
            along = np.exp(-squared_distances(scaled, self.pivots) / 2) @ self.mix.T  # (C, K)
            rest = np.sqrt(np.maximum(1 - (along**2).sum(-1, keepdims=True), 0))  # (C, 1)
            parts.append(np.sqrt(1 - self.by_cosine) * np.concatenate([along, rest], -1))
        rows: Array = np.concatenate(parts, -1) if len(parts) > 1 else parts[0]
        return rows.astype(self.center.dtype, copy=False)


class Normalized(Struct, frozen=True):
    """Where distances are measured: raw features, or directions relative to `center`; over `length`.

    Eq. 2's softmax has no temperature. Dividing by `length` gives it the temperature length^2, since
    squared distances shrink by that much.
    """

    normalization: Literal["centered", "unit", "none"]
    center: Array  # (D,)
    length: Positive = 1.0

    def __call__(self, features: Array) -> Array:
        """(C, D) -> (C, D)."""
        features = like(self.center, features)
        if self.normalization == "centered":
            features = unit(features) - self.center
        if self.normalization != "none":
            features = unit(features)
        return features if self.length == 1 else features / self.length

    def settle(self, prototypes: Array) -> Array:
        """Means of directions, at unit length again: that of few examples is longer than that of many."""
        return prototypes if self.normalization == "none" else unit(prototypes) / self.length


AnySpace = Space | Normalized


def fit_space(features: Array, normalize: str, pile: Array) -> Space:
    """(P, D), which rows have no label (P,) -> the space of these rows and new ones."""
    count, dtype = features.shape[1], features.dtype
    mean, squares = np.zeros(count), np.zeros(count)
    for _, block in blocks(features):
        mean += block.sum(0, dtype=np.float64) / features.shape[0]
    for _, block in blocks(features):
        squares += ((block - mean) ** 2).sum(0) / features.shape[0]
    shift, scale = np.zeros(count), np.ones(count)
    if normalize == "auto" and count > 1 and squares.max() > DOMINANT * squares.sum():
        shift, scale = mean, np.where(squares > 0, np.sqrt(squares), 1.0)
    shift = mean if normalize == "none" else shift
    by_cosine = {"none": 0.0, "auto": float(np.clip((count - FEW) / (MANY - FEW), 0, 1))}
    arrays = (shift.astype(dtype), scale.astype(dtype), np.zeros(count, dtype))
    no_pivots = (np.zeros((0, count), dtype), np.zeros((0, 0), dtype))
    space = Space(*arrays, by_cosine.get(normalize, 1.0), *no_pivots)
    if normalize in ("auto", "centered") and pile.any():
        total = np.zeros(count)
        for part, block in blocks(features):
            total += space.directions(block[pile[part]]).sum(0)
        space = replace(space, center=(total / (pile.sum() + TRUSTED)).astype(dtype))
    return space if space.by_cosine == 1 else with_kernel(space, features)


def with_kernel(space: Space, features: Array) -> Space:
    """The space with a kernel k(x, y) = exp(-|x - y|^2 / 2 h^2), made explicit by incomplete Cholesky
    decomposition: the product of two rows is about k. Candidates for pivots are evenly spaced in the ranking
    by distance from the mean."""
    scaled = (dense(features).astype(np.float64) - space.shift) / space.scale
    apart = np.linalg.norm(scaled - scaled.mean(0), axis=1)  # (P,)
    ranking = np.argsort(apart, kind="stable")
    ranking = ranking[evenly_spaced(len(ranking), CANDIDATES)]
    largest = float(apart.max()) or 1.0  # squares of rows over this cannot overflow
    rows = scaled[ranking] / largest
    squares = squared_distances(rows, rows)
    positive = squares[np.triu_indices(len(rows), 1)]
    positive = positive[positive > 0]
    width = float(np.sqrt(WIDTH * np.median(positive))) if len(positive) else 1.0
    picked, factor = _pivots(np.exp(-squares / (2 * width**2)))
    pivots, mix = like(space.center, rows[picked] / width), np.linalg.inv(factor)
    return replace(space, pivots=pivots, mix=like(space.center, mix), width=width * largest)


def _pivots(kernel: Array) -> tuple[list[int], Array]:
    """(C, C) -> the rows that earlier ones explain least, and (K, K), the Cholesky factor of their kernel."""
    picked: list[int] = []
    factor = np.zeros((len(kernel), min(PIVOTS, len(kernel))))  # (C, K)
    left = np.ones(len(kernel))  # (C,), what no pivot explains
    for number in range(factor.shape[1]):
        pivot = int(left.round(6).argmax())
        if left[pivot] < REST:
            break
        column = kernel[:, pivot] - factor[:, :number] @ factor[pivot, :number]
        factor[:, number] = column / np.sqrt(left[pivot])
        left = np.maximum(left - factor[:, number] ** 2, 0)
        picked.append(pivot)
    return picked, factor[picked, : len(picked)]


@contextmanager
def one_thread() -> Iterator[None]:
    """Each product of a block has one thread; blocks are worked on side by side."""
    with BLAS.limit(limits=1):
        yield


def as_array(values: Any) -> Any:
    """A torch tensor as an array; anything else unchanged."""
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()


def dense(rows: Any) -> Array:
    """Sparse rows as an array."""
    found: Array = rows.toarray() if issparse(rows) else np.asarray(rows)
    return found


def like(other: Array, rows: Any) -> Array:
    """Rows, sparse ones too, as an array of the precision of another."""
    return dense(rows).astype(other.dtype, copy=False)


def check_size(features: Any) -> None:
    """Refuse features whose squares may overflow."""
    largest, most = max(features.max(), -features.min()), np.finfo(features.dtype).max ** 0.4
    if largest > most:
        raise InputError(
            f"features reach {largest:.3g}, and squares of numbers above {most:.3g} may overflow in "
            f"{features.dtype}: rescale X, or give float64"
        )


def parts_of(features: Any, wide: int = 0) -> list[slice]:
    """Blocks of rows (P, D). With `wide`, the block's products with so many rows fit as well."""
    rows = max(1, min(BLOCK // max(features.shape[1], 1), PRODUCTS // max(wide, 1)))
    return [slice(first, first + rows) for first in range(0, features.shape[0], rows)]


def blocks(features: Any) -> Iterator[tuple[slice, Array]]:
    """The rows in blocks: no memory map is read whole, and sparse rows become dense a block at a time."""
    return ((part, dense(features[part])) for part in parts_of(features))


def by_blocks(found: Callable[[slice, Array], Parts], features: Any, wide: int) -> Parts:
    """What is found of each block, as one: a named tuple of arrays."""
    parts = in_threads(lambda p: found(p, dense(features[p])), parts_of(features, wide))
    return type(parts[0])(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def in_threads(found: Callable[[T], Found], things: Iterable[T]) -> list[Found]:
    """What is found of each. NumPy and SciPy let threads work at the same time."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(found, things))


def evenly_spaced(count: int, most: int) -> NDArray[np.int64]:
    """At most so many of `count` indices, the first and the last among them."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)


def unit(rows: Array) -> Array:
    """(..., D) -> (..., D), of length 1; zeros stay zeros."""
    lengths = np.sqrt(np.einsum("...d,...d->...", rows, rows))[..., None]
    return rows / np.where(lengths > 0, lengths, 1)


def mean_direction(features: Any) -> Array:
    """(P, D) -> (D,), the mean of the features at unit length."""
    total = np.zeros(features.shape[1])
    for _, block in blocks(features):
        total += unit(block).sum(0)
    mean: Array = (total / features.shape[0]).astype(features.dtype)
    return mean


def squared_distances(a: Array, b: Array) -> Array:
    """(..., D), (N, D) -> (..., N): |a|^2 - 2 ab + |b|^2, both seen from the mean of b, to keep digits."""
    center = b.mean(0) if len(b) else np.zeros((), b.dtype)
    a, b = a - center, b - center
    aa, bb = (np.einsum("...d,...d->...", each, each) for each in (a, b))
    distances: Array = np.maximum(aa[..., None] - 2 * a @ b.T + bb, 0)
    return distances


def nearest(cosines: Array, count: int) -> tuple[Array, Array]:
    """(C, L) -> the indices (C, k) and cosines (C, k) of the largest, in descending order."""
    order = np.argpartition(-cosines, count - 1, 1)[:, :count]
    values = np.take_along_axis(cosines, order, 1)
    ranking = np.argsort(-values, 1, kind="stable")
    return np.take_along_axis(order, ranking, 1), np.take_along_axis(values, ranking, 1)
