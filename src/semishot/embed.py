"""Image files -> rows of features: decoded by threads, encoded in batches, remembered by content.

Letters: M rows, D features, B images.
"""

import hashlib
import os
import stat
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from semishot.embedding_cache import EmbeddingCache
from semishot.errors import InputError
from semishot.image_encoders import ImageEncoder
from semishot.own_files import Item, Skipped
from semishot.pictures import AGAIN, opened, quiet
from semishot.progress import meter

__all__ = ["Rows", "embed", "read_image"]

MOST_BYTES = 64 * 2**20
"""Of a file: as many are held at once as there are threads."""
MANY_PIXELS = 8_000_000
"""Pictures above this are decoded one at a time, but for JPEGs, which shrink while they are decoded."""
MOST_THREADS = 8
BATCH, BATCH_ON_GPU = 4, 64
"""On a CPU small batches stay in the cache: 4 takes half the time of 32."""
MOST_IN_BATCH = 256

_one_large_at_a_time = threading.Lock()


@dataclass
class Rows:
    """Features (M, D) in a file, and what each row is."""

    features: NDArray[np.float32]
    items: list[Item] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def add(self, item: Item, digest: bytes) -> int:
        """The place of a new row."""
        self.items.append(item)
        self.digests.append(digest)
        return len(self.items) - 1


class Looked(NamedTuple):
    """A file, read: its digest, and its pixels if they are needed. Or why not."""

    item: Item
    digest: bytes = b""
    pixels: NDArray[np.uint8] | None = None
    problem: str = ""


@torch.inference_mode()
def embed(
    items: Sequence[Item],
    encoder: ImageEncoder,
    cache: EmbeddingCache,
    scratch: Path,
    device: torch.device,
) -> Rows:
    """One row for each image that can be read. `scratch` is the file that holds them."""
    shape = (max(1, len(items)), encoder.features)
    held = np.lib.format.open_memmap(scratch, "w+", np.float32, shape)
    rows = Rows(held)
    module = encoder.module.to(device)
    size = BATCH if device.type == "cpu" else BATCH_ON_GPU
    with quiet(), meter("looking at images", len(items), "images") as progress:
        for batch in _batches(_looked_at(items, encoder, cache), size):
            new = {seen.digest: seen.pixels for seen in batch if seen.pixels is not None}
            if new:
                images = torch.from_numpy(np.stack(list(new.values()))).to(device)
                for digest, row in zip(new, module(images).float().cpu().numpy(), strict=True):
                    cache.add(digest, row)
            for seen in batch:
                if seen.problem:
                    rows.skipped.append(Skipped(seen.item.shown, seen.problem))
                else:
                    held[rows.add(seen.item, seen.digest)] = cache[seen.digest]
            progress.advance(len(batch))
    cache.flush()
    rows.features = held[: len(rows.items)]
    return rows


def _batches(looked: Iterator[Looked], size: int) -> Iterator[list[Looked]]:
    """As many files as bring `size` images to encode, but not too many that bring none."""
    batch: list[Looked] = []
    fresh = 0
    for seen in looked:
        batch.append(seen)
        fresh += seen.pixels is not None
        if fresh == size or len(batch) == MOST_IN_BATCH:
            yield batch
            batch, fresh = [], 0
    if batch:
        yield batch


def _looked_at(
    items: Sequence[Item], encoder: ImageEncoder, cache: EmbeddingCache
) -> Iterator[Looked]:
    """Every item in its order, read by threads a little ahead of the encoder."""
    count = min(os.cpu_count() or 1, MOST_THREADS)
    with ThreadPoolExecutor(count) as pool:
        waiting: deque[Future[Looked]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(_look, item, encoder, cache))
                if len(waiting) > 4 * count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _look(item: Item, encoder: ImageEncoder, cache: EmbeddingCache) -> Looked:
    assert item.path is not None
    try:
        data = read_image(item.path)
        digest = hashlib.sha256(data).digest()
        if digest in cache:
            return Looked(item, digest)
        with opened(data, "it") as image:
            shrinks = image.format in ("JPEG", "MPO")  # MPO: a telephone's JPEG
            large = image.width * image.height > MANY_PIXELS and not shrinks
            with _one_large_at_a_time if large else nullcontext():
                return Looked(item, digest, encoder.prepare(image))
    except InputError as error:
        return Looked(item, problem=str(error).removesuffix(f"; {AGAIN}"))


def read_image(path: Path) -> bytes:
    """The bytes of a regular file that is not too large."""
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise InputError("no regular file")
        if about.st_size > MOST_BYTES:
            raise InputError(f"{about.st_size:,} bytes, more than {MOST_BYTES:,}")
        with path.open("rb") as file:
            return file.read(MOST_BYTES)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot be opened ({getattr(error, 'strerror', error)})") from error
