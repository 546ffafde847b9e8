"""Splitting images into labeled and unlabeled, and the random streams for it: pure functions of a seed.

Letters: N classes, I images of these classes.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semishot.data.pool import ImageClass, Indices
from semishot.errors import InputError


def check_seed(seed: int) -> None:
    if not 0 <= seed < 2**63:
        raise InputError(f"a seed must be at least 0 and below 2**63, not {seed}")


def random_words(seed: int, purpose: str, start: int, count: int) -> NDArray[np.uint64]:
    """`count` 64-bit words of stream (seed, purpose), from block `start`; 4 words are one block.

    The generator is counter-based: any part of a stream is computed without the part before it.
    """
    check_seed(seed)
    key = np.array([seed, zlib.crc32(purpose.encode())], np.uint64)
    words: NDArray[np.uint64] = np.random.Philox(counter=start, key=key).random_raw(count)
    return words


def uniforms(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The top 53 bits of each word as a number in [0, 1), the same on every machine."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class ClassImages:
    """Which images of each class may be drawn as labeled or unlabeled: class c has a slice of `order`.

    `order[start[c] : start[c] + labeled[c]]` are its labeled images, the rest up to `size[c]` its
    unlabeled ones. `shared` means there is no such split (validation and test): every image may be
    drawn as either, but never as both in one episode.
    """

    classes: tuple[ImageClass, ...]
    order: Indices
    start: Indices
    labeled: Indices
    size: Indices
    shared: bool
    labeled_fraction: float


def labeled_split(classes: Sequence[ImageClass], fraction: float, seed: int) -> ClassImages:
    """Label a fraction of each class's images, chosen by the seed and the image's index alone."""
    if not 0 < fraction <= 1:
        raise InputError(f"the labeled fraction must be in (0, 1], not {fraction}")
    end = max(c.start + c.count for c in classes)
    rank = uniforms(random_words(seed, "labeled split", 0, end))
    order = [c.start + np.argsort(rank[c.start : c.start + c.count]) for c in classes]
    size = np.array([c.count for c in classes])
    return ClassImages(
        classes=tuple(classes),
        order=np.concatenate(order),
        start=np.cumsum(size) - size,
        labeled=np.floor(size * fraction + 1e-9).astype(np.int64),  # 0.29 * 100 is 28.999...
        size=size,
        shared=False,
        labeled_fraction=fraction,
    )


def all_labeled(classes: Sequence[ImageClass]) -> ClassImages:
    """Validation and test classes: support, unlabeled and query come from all images of a class."""
    size = np.array([c.count for c in classes])
    return ClassImages(
        classes=tuple(classes),
        order=np.concatenate([np.arange(c.start, c.start + c.count) for c in classes]),
        start=np.cumsum(size) - size,
        labeled=size,
        size=size,
        shared=True,
        labeled_fraction=1.0,
    )
