"""Image files -> rows of features: read, decoded and encoded by threads, cached by content.

Letters: P rows, D features.
"""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from semishot.data.decoding import MOST_BYTES, REMEDY, opened, quiet, upright
from semishot.data.framing import least
from semishot.data.thumbnails import fingerprint, small_copy
from semishot.errors import InputError
from semishot.sorter.boxes import cropped
from semishot.sorter.embedding_cache import EmbeddingCache, Row
from semishot.sorter.encoders.image_encoder import ImageEncoder, Pixels
from semishot.sorter.listing import Item, Skipped
from semishot.system.files import read_regular
from semishot.system.npy import make_room
from semishot.system.progress import Meter, meter

T = TypeVar("T")
S = TypeVar("S")

MANY_PIXELS = 1_000_000
"""Of an image of which a thumbnail is kept: decoding it again for a page would take a while."""
MOST_THREADS, SPARE_THREADS = 16, 2
"""More than there are cores: some of them wait for a disk, or for each other."""


@dataclass
class Rows:
    """Features (P, D) in a file, and what each row is."""

    features: NDArray[np.float32]
    items: list[Item] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """Of reading, decoding and encoding, added up over threads."""
    thumbnail: Callable[[bytes], bytes | None] = lambda digest: None
    """A small JPEG of an image by its digest, if there is one already. For one thread."""

    def add(self, item: Item, digest: bytes) -> int:
        """The index of a new row."""
        self.items.append(item)
        self.digests.append(digest)
        return len(self.items) - 1


class ReadFile(NamedTuple):
    """A file: its digest, and what its image looks like, if that is new; or why it could not be read."""

    digest: bytes = b""
    pixels: Pixels | None = None
    """Until they are encoded."""
    fingerprint: bytes = b""
    thumbnail: bytes = b""
    """Of a large image."""
    problem: str = ""


ImageDigest = tuple[Item, bytes]
"""An image that could be read, and its digest."""


def embed(
    items: Sequence[Item],
    encoder: ImageEncoder,
    device: str,
    cache: EmbeddingCache,
    scratch: Path,
    arranged: Callable[[list[ImageDigest]], list[ImageDigest]] = lambda images: images,
) -> Rows:
    """One row for each readable image. `scratch` is the file that holds them.

    arranged: gives the images that could be read their order, and perhaps other labels.
    """
    with quiet(), meter("reading, decoding and encoding", len(items), "images") as progress:
        files = list(encode_files(device, items, encoder, cache, progress))
    cache.flush()
    features = make_room(scratch, np.float32, (max(1, len(files)), encoder.features))
    rows = Rows(features, seconds=progress.seconds.of, thumbnail=cache.thumbnail)
    read: list[ImageDigest] = []
    for item, file in zip(items, files, strict=True):
        if file.problem:
            rows.skipped.append(Skipped(item.shown, file.problem))
        else:
            read.append((item, file.digest))
    for item, digest in arranged(read):
        if np.isfinite(row := cache[digest]).all():
            features[rows.add(item, digest)] = row
        else:
            reason = "the encoder gives features that are not finite"
            rows.skipped.append(Skipped(item.shown, reason))
    rows.features = features[: len(rows.items)]
    return rows


def encode_files(
    device: str,
    items: Sequence[Item],
    encoder: ImageEncoder,
    cache: EmbeddingCache,
    progress: Meter,
) -> Iterator[ReadFile]:
    """What was read of each item, in order; its features are in the cache.

    Each thread reads, decodes and encodes as many files as the network takes at once.
    """
    clock, size = progress.seconds, encoder.batch_size(device)

    def encoded(some: Sequence[Item]) -> list[tuple[ReadFile, Row | None]]:
        files = []
        for item in some:
            with clock.part("reading"):
                file, data = read(item)
            if not file.problem and file.digest not in cache:
                with clock.part("decoding"):
                    file = decoded(file, data, encoder, item.home or item.path)
            files.append(file)
        rows: Iterator[Row] = iter(())
        if images := [file.pixels for file in files if file.pixels is not None]:
            encoder.sessions.on(device)  # opened outside of the time of encoding
            with clock.part("encoding"):
                rows = iter(encoder.encode(np.stack(images), device))
        return [(f._replace(pixels=None), None if f.pixels is None else next(rows)) for f in files]

    batches = (items[first : first + size] for first in range(0, len(items), size))
    for files in ahead(encoded, batches, most_threads()):
        for file, row in files:
            if row is not None:
                cache.add(file.digest, row, file.fingerprint, file.thumbnail)
            progress.advance(1)
            yield file


def most_threads() -> int:
    return min(os.cpu_count() or 1, MOST_THREADS - SPARE_THREADS) + SPARE_THREADS


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


def read(item: Item) -> tuple[ReadFile, bytes]:
    """A file, not yet decoded."""
    assert item.path is not None
    try:
        data = read_image(item.path)
    except InputError as error:
        return ReadFile(problem=str(error)), b""
    return ReadFile(hashlib.sha256(data).digest()), data


def decoded(file: ReadFile, data: bytes, encoder: ImageEncoder, path: Path | None) -> ReadFile:
    """The file with what the encoder sees of it, and a thumbnail if it is large; or why there is nothing."""
    framing = encoder.prepare
    try:
        with opened(data, "it") as image:
            box = encoder.boxes.box(path) if encoder.boxes is not None else None
            large = image.width * image.height > MANY_PIXELS
            with upright(image, least=least(framing) if large and box is None else None) as whole:
                seen = cropped(whole, box) if box is not None else whole
                return file._replace(
                    pixels=framing.frame(seen.convert("L") if framing.channels == 1 else seen),
                    fingerprint=fingerprint(seen),
                    thumbnail=small_copy(whole) if large else b"",
                )
    except InputError as error:
        return file._replace(problem=str(error).removesuffix(f"; {REMEDY}"))


def read_image(path: Path) -> bytes:
    """The bytes of a regular file that is not too large."""
    try:
        return read_regular(path, MOST_BYTES, "it")
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise InputError(f"cannot be opened ({getattr(error, 'strerror', error)})") from error
