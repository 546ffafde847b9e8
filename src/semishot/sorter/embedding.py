"""Image files -> rows of features: read, decoded and encoded by threads, cached by content.

Letters: P rows, D features.
"""

import hashlib
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from semishot.data.decoding import MOST_BYTES, REMEDY, opened, quiet, upright
from semishot.data.framing import Middle, Whole, least
from semishot.data.thumbnails import small_copy
from semishot.errors import InputError
from semishot.sorter.embedding_cache import EmbeddingCache, Row
from semishot.sorter.encoders.image_encoder import ImageEncoder
from semishot.sorter.encoders.runtimes import OneByOne, Opening, Runtime, open_runtime
from semishot.sorter.listing import Item, Skipped
from semishot.system.devices import pick_device
from semishot.system.files import read_regular
from semishot.system.npy import make_room
from semishot.system.progress import Meter, meter

if TYPE_CHECKING:
    import torch

Pixels = NDArray[np.uint8]
T = TypeVar("T")
S = TypeVar("S")

LOOKING = "reading, decoding and encoding"
MANY_PIXELS = 1_000_000
"""Of an image of which a thumbnail is kept: decoding it again for a page would take a while."""
LARGE_FILE = 16 * 2**20
"""Larger files are read and decoded one at a time; cameras write smaller ones."""
MOST_THREADS, SPARE_THREADS = 16, 2
"""More than there are cores: some of them wait for a disk, or for each other."""

_one_large_file_at_a_time = threading.Lock()


@dataclass
class Rows:
    """Features (P, D) in a file, and what each row is."""

    features: NDArray[np.float32]
    items: list[Item] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    absent: list[Item] = field(default_factory=list)
    """Files that were corrected, and are not there or cannot be read: what was said of them is kept."""
    runtimes: dict[str, int] = field(default_factory=dict)
    """What has encoded the images, and how many of them."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Of reading, decoding and encoding, added up over threads."""
    thumbnail: Callable[[bytes], bytes | None] = lambda digest: None
    """A small JPEG of an image by its digest, if there is one already. For one thread."""

    def add(self, item: Item, digest: bytes) -> int:
        """The place of a new row."""
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
    skipped, read = [], []
    with quiet(), meter(LOOKING, len(items), "images") as progress:
        for seen in fill_cache(items, encoder, cache, progress):
            if seen.problem:
                skipped.append(Skipped(seen.item.shown, seen.problem))
            else:
                read.append(seen)
    cache.flush()
    held = make_room(scratch, np.float32, (max(1, len(read)), encoder.features))
    rows = Rows(held, skipped=skipped, seconds=progress.seconds.of, thumbnail=cache.thumbnail)
    rows.runtimes = dict(sorted(Counter(cache.runtime_of(one.digest) for one in read).items()))
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
    device: "torch.device | str",
    items: Sequence[Item],
    encoder: ImageEncoder,
    cache: EmbeddingCache,
    progress: Meter,
) -> Iterator[ReadFile]:
    """Every item in order, read by threads and encoded in this process.

    A runtime that takes single images encodes in these threads, too, once it is open.
    """
    threads = most_threads()

    def open_now() -> tuple[Runtime, str]:
        runtime, problem = open_runtime(encoder, pick_device(str(device)))
        cache.runtime = runtime.name
        progress.label = f"{LOOKING} by {runtime.about}"
        return runtime, problem

    runtime, look = Opening(open_now, progress.say), Look(encoder, cache, progress)

    def looked_at(item: Item) -> ReadFile:
        seen = look(item)
        if seen.pixels is None or not isinstance(one := runtime.opened, OneByOne):
            return seen  # it is encoded below; while the runtime is being opened, threads decode
        with progress.seconds.part("encoding"):
            return seen._replace(pixels=None, row=one.features(seen.pixels))

    for seen in ahead(looked_at, items, threads):
        if seen.thumbnail:
            cache.thumbnails[seen.digest] = seen.thumbnail
        if seen.row is not None:
            cache.add({seen.digest: seen.row})
        elif seen.pixels is not None and seen.digest not in cache:
            one = runtime()
            with progress.seconds.part("encoding"):
                cache.add(one.take(seen.digest, seen.pixels))
        progress.advance(1)
        yield seen._replace(pixels=None, row=None, thumbnail=b"")
    if runtime.opened is not None:
        cache.add(runtime.opened.rest())


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


class Look(NamedTuple):
    """Reads a file, and decodes it unless its features are known."""

    encoder: ImageEncoder
    cache: EmbeddingCache
    progress: Meter

    def __call__(self, item: Item) -> ReadFile:
        with _one_large_file_at_a_time if size_of(item) > LARGE_FILE else nullcontext():
            return self.pixels(item)

    def pixels(self, item: Item) -> ReadFile:
        with self.progress.seconds.part("reading"):
            seen, data = read(item)
        if seen.problem or seen.digest in self.cache:
            return seen
        with self.progress.seconds.part("decoding"):
            image = decoded(data, self.encoder)
        if isinstance(image, str):
            return seen._replace(problem=image)
        return seen._replace(pixels=image.pixels, thumbnail=image.thumbnail)


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


class Decoded(NamedTuple):
    """The pixels that an encoder takes, and a thumbnail if the image is large."""

    pixels: Pixels
    thumbnail: bytes = b""


def decoded(data: bytes, encoder: ImageEncoder) -> Decoded | str:
    """What is seen in a file's bytes, or why there is nothing."""
    framing = encoder.prepare
    try:
        with opened(data, "it") as image:
            large = image.width * image.height > MANY_PIXELS
            if not large or not isinstance(framing, Middle | Whole) or framing.channels != 3:
                return Decoded(framing(image))
            with upright(image, least=least(framing)) as seen:
                return Decoded(framing.frame(seen), small_copy(seen))
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
