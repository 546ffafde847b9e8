"""Image files -> rows of features: decoded by threads, encoded in batches, cached by content.

Letters: P rows, D features, B images.
"""

import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from semishot.data.decoding import MOST_BYTES, REMEDY, opened, quiet
from semishot.errors import InputError
from semishot.sorter.embedding_cache import EmbeddingCache, Row
from semishot.sorter.encoders import ImageEncoder
from semishot.sorter.listing import Item, Skipped
from semishot.system.npy import make_room
from semishot.system.open_files import read_regular
from semishot.system.progress import Meter, meter

__all__ = ["Rows", "embed", "in_this_process", "read_image"]

Pixels = NDArray[np.uint8]
T = TypeVar("T")
S = TypeVar("S")

LARGE_FILE = 8 * 2**20
"""Larger files are read and decoded one at a time."""
MOST_THREADS = 8
BATCH, BATCH_ON_GPU = 4, 64
"""On a CPU small batches stay in the cache: batches of 4 take half the time of batches of 32."""

_one_large_file_at_a_time = threading.Lock()


@dataclass
class Rows:
    """Features (P, D) in a file, and what each row is."""

    features: NDArray[np.float32]
    items: list[Item] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def add(self, item: Item, digest: bytes) -> int:
        """The place of a new row."""
        self.items.append(item)
        self.digests.append(digest)
        return len(self.items) - 1


class ReadFile(NamedTuple):
    """A file: its digest, and its pixels if they are needed; or why it could not be read."""

    item: Item
    digest: bytes = b""
    pixels: Pixels | None = None
    problem: str = ""


FillCache = Callable[[Sequence[Item], ImageEncoder, EmbeddingCache, Meter], Iterator[ReadFile]]
"""Adds the features of every readable item to the cache, and yields each item, in order."""


def embed(
    items: Sequence[Item],
    encoder: ImageEncoder,
    cache: EmbeddingCache,
    scratch: Path,
    fill_cache: FillCache,
) -> Rows:
    """One row for each readable image. `scratch` is the file that holds them."""
    skipped, read = [], []
    with quiet(), meter("looking at images", len(items), "images") as progress:
        for seen in fill_cache(items, encoder, cache, progress):
            if seen.problem:
                skipped.append(Skipped(seen.item.shown, seen.problem))
            else:
                read.append(seen)
    cache.flush()
    held = make_room(scratch, np.float32, (max(1, len(read)), encoder.features))
    rows = Rows(held, skipped=skipped)
    for seen in read:
        row = cache[seen.digest]
        if np.isfinite(row).all():
            held[rows.add(seen.item, seen.digest)] = row
        else:
            skipped.append(
                Skipped(seen.item.shown, "the encoder gives features that are not finite")
            )
    rows.features = held[: len(rows.items)]
    return rows


def in_this_process(
    device: torch.device,
    items: Sequence[Item],
    encoder: ImageEncoder,
    cache: EmbeddingCache,
    progress: Meter,
) -> Iterator[ReadFile]:
    """Every item in order, read by threads and encoded in this process."""
    batches = Batches(encoder, device)
    for seen in ahead(lambda item: _look(item, encoder, cache), items, most_threads()):
        if seen.pixels is not None and seen.digest not in cache:
            cache.add(batches.take(seen.digest, seen.pixels))
        progress.advance(1)
        yield seen._replace(pixels=None)
    cache.add(batches.rest())


class Batches:
    """Images one by one -> features in batches of a fixed size: other sizes round differently.

    So, on a CPU, an image has the same features in any batch and at any position.
    """

    def __init__(self, encoder: ImageEncoder, device: torch.device) -> None:
        self.module, self.device = encoder.module.to(device), device
        self.size = BATCH if device.type == "cpu" else BATCH_ON_GPU
        self.waiting: dict[bytes, Pixels] = {}

    def take(self, digest: bytes, pixels: Pixels) -> dict[bytes, Row]:
        """The features of a full batch, once there is one."""
        self.waiting[digest] = pixels
        return self.rest() if len(self.waiting) == self.size else {}

    @torch.inference_mode()
    def rest(self) -> dict[bytes, Row]:
        if not self.waiting:
            return {}
        pixels = list(self.waiting.values())
        filled = np.stack(pixels + pixels[-1:] * (self.size - len(pixels)))
        rows = self.module(torch.from_numpy(filled).to(self.device)).float().cpu().numpy()
        found = dict(zip(self.waiting, rows, strict=False))
        self.waiting.clear()
        return found


def most_threads() -> int:
    return min(os.cpu_count() or 1, MOST_THREADS)


def ahead(look: Callable[[T], S], things: Iterable[T], threads: int) -> Iterator[S]:
    """`map` with threads that work slightly ahead of the consumer."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[S]] = deque()
        try:
            for thing in things:
                waiting.append(pool.submit(look, thing))
                if len(waiting) > 4 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _look(item: Item, encoder: ImageEncoder, cache: EmbeddingCache) -> ReadFile:
    with _one_large_file_at_a_time if size_of(item) > LARGE_FILE else nullcontext():
        return _looked_at(item, encoder, cache)


def _looked_at(item: Item, encoder: ImageEncoder, cache: EmbeddingCache) -> ReadFile:
    seen, data = read(item)
    if seen.problem or seen.digest in cache:
        return seen
    pixels = prepared(data, encoder)
    if isinstance(pixels, str):
        return seen._replace(problem=pixels)
    return seen._replace(pixels=pixels)


def size_of(item: Item) -> int:
    """The bytes of a file."""
    assert item.path is not None
    try:
        return item.path.stat().st_size
    except (OSError, ValueError):  # reported when it is read
        return 0


def read(item: Item) -> tuple[ReadFile, bytes]:
    """A file, not yet decoded."""
    assert item.path is not None
    try:
        data = read_image(item.path)
    except InputError as error:
        return ReadFile(item, problem=str(error)), b""
    return ReadFile(item, hashlib.sha256(data).digest()), data


def prepared(data: bytes, encoder: ImageEncoder) -> Pixels | str:
    """The pixels that the encoder takes from a file's bytes, or why there are none."""
    try:
        with opened(data, "it") as image:
            return encoder.prepare(image)
    except InputError as error:
        return str(error).removesuffix(f"; {REMEDY}")


def read_image(path: Path) -> bytes:
    """The bytes of a regular file that is not too large."""
    try:
        return read_regular(path, MOST_BYTES, "it")
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise InputError(f"cannot be opened ({getattr(error, 'strerror', error)})") from error
