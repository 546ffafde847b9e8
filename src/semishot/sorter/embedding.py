"""Image files -> rows of features: read, decoded and encoded by threads, cached by content.

Letters: P rows, D features.
"""

import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from semishot.data.decoding import MOST_BYTES, REMEDY, opened, quiet, upright
from semishot.data.framing import Middle, Whole, least
from semishot.data.thumbnails import small_copy
from semishot.errors import InputError
from semishot.sorter.embedding_cache import EmbeddingCache, Row
from semishot.sorter.encoders.image_encoder import ImageEncoder
from semishot.sorter.encoders.networks import Batches, Network, Pixels
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
    """A file: its digest, and its pixels or features if they are new; or why it could not be read."""

    item: Item
    digest: bytes = b""
    pixels: Pixels | None = None
    row: Row | None = None
    thumbnail: bytes = b""
    """Of a large image that was decoded."""
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
    with quiet(), meter("reading, decoding and encoding", len(items), "images") as progress:
        files = list(fill_cache(items, encoder, cache, progress))
    cache.flush()
    features = make_room(scratch, np.float32, (max(1, len(files)), encoder.features))
    rows = Rows(features, seconds=progress.seconds.of, thumbnail=cache.thumbnail)
    for file in files:
        problem = file.problem
        if not problem and not np.isfinite(row := cache[file.digest]).all():
            problem = "the encoder gives features that are not finite"
        if problem:
            rows.skipped.append(Skipped(file.item.shown, problem))
        else:
            features[rows.add(file.item, file.digest)] = row
    rows.features = features[: len(rows.items)]
    return rows


def in_this_process(
    device: str,
    items: Sequence[Item],
    encoder: ImageEncoder,
    cache: EmbeddingCache,
    progress: Meter,
) -> Iterator[ReadFile]:
    """Every item in order, read by threads and encoded in this process.

    A network that takes single images is run in these threads, too.
    """
    loading, seconds = threading.Lock(), progress.seconds

    def network() -> Network:
        with loading:  # the first thread loads it; meanwhile, others decode
            return encoder.network(device)

    def look(item: Item) -> ReadFile:
        with seconds.part("reading"):
            file, data = read(item)
        if file.problem or file.digest in cache:
            return file
        with seconds.part("decoding"):
            image = decoded(data, encoder)
        if isinstance(image, str):
            return file._replace(problem=image)
        file = file._replace(thumbnail=image.thumbnail, pixels=image.pixels)
        if network().batch > 1:
            return file
        with seconds.part("encoding"):
            return file._replace(row=network()(image.pixels[None])[0])

    batches: Batches | None = None
    for file in ahead(look, items, most_threads()):
        if file.thumbnail:
            cache.thumbnails[file.digest] = file.thumbnail
        if file.row is not None:
            cache.add({file.digest: file.row})
        elif file.pixels is not None and file.digest not in cache:
            batches = batches or Batches(network())
            with seconds.part("encoding"):
                cache.add(batches.take(file.digest, file.pixels))
        progress.advance(1)
        yield file._replace(pixels=None, row=None, thumbnail=b"")
    if batches is not None:
        cache.add(batches.rest())


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
        return ReadFile(item, problem=str(error)), b""
    return ReadFile(item, hashlib.sha256(data).digest()), data


class DecodedImage(NamedTuple):
    """The pixels that an encoder takes, and a thumbnail if the image is large."""

    pixels: Pixels
    thumbnail: bytes = b""


def decoded(data: bytes, encoder: ImageEncoder) -> DecodedImage | str:
    """What is seen in a file's bytes, or why there is nothing."""
    framing = encoder.prepare
    try:
        with opened(data, "it") as image:
            large = image.width * image.height > MANY_PIXELS
            if not large or not isinstance(framing, Middle | Whole) or framing.channels != 3:
                return DecodedImage(framing(image))
            with upright(image, least=least(framing)) as seen:
                return DecodedImage(framing.frame(seen), small_copy(seen))
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
