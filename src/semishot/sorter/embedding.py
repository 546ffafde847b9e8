"""Image files -> rows of features: read, decoded and encoded by threads, cached by content.

Letters: P rows, D features.
"""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from semishot.data.decoding import MOST_BYTES, REMEDY, opened, quiet, upright
from semishot.data.framing import least
from semishot.data.thumbnails import fingerprint, small_copy
from semishot.errors import InputError
from semishot.sorter.boxes import cropped
from semishot.sorter.embedding_cache import EmbeddingCache, EncodedImage, ImageLook
from semishot.sorter.encoders.image_encoder import ImageEncoder, Pixels
from semishot.sorter.listing import Item, Skipped
from semishot.system.files import read_regular
from semishot.system.npy import make_room
from semishot.system.progress import Seconds, meter

T = TypeVar("T")
S = TypeVar("S")

MANY_PIXELS = 1_000_000
"""Of an image of which a thumbnail is kept: decoding it again for a page would take a while."""
MOST_THREADS, SPARE_THREADS = 16, 2
"""More than there are cores: some of them wait for a disk, or for each other."""


@dataclass
class Rows:
    """Images or rows of features, labeled ones first, and their features (P, D) in a file."""

    features: NDArray[np.float32]
    items: list[Item] = field(default_factory=list)
    row_of: list[int] = field(default_factory=list)
    """The row of `features` of each item: a copy in the pile shares that of the first, or labeled, one."""
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """For the user."""
    encoder: ImageEncoder | None = None
    """None: features were given."""
    names: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    """Features of the names of classes."""
    thumbnail: Callable[[bytes], bytes | None] = lambda digest: None
    """A small JPEG of an image by its digest, if there is one already. For one thread."""


@np.errstate(over="ignore")  # what float32 cannot hold is not finite, and skipped
def collect(sources: Iterable[tuple[Item, Any, Any]], features: int, scratch: Path) -> Rows:
    """Items, labeled ones first, with float32 features in the file `scratch`; finite ones only.

    With each item comes where its features are: an array, or a cache, and an index or digest.
    """
    ordered = sorted(sources, key=lambda source: source[0].label is None)
    room = make_room(scratch, np.float32, (max(1, len(ordered)), features))
    rows, written = Rows(room), np.asarray(room)  # faster than the mapped array
    known, count = dict[bytes, int](), 0
    for item, source, key in ordered:
        row = known.get(item.digest) if item.label is None else None
        if row is None:
            written[count] = source[key]
            if not np.isfinite(written[count]).all():
                rows.skipped.append(Skipped(item.shown, "its features are not all finite"))
                continue
            row, count = count, count + 1
            if item.digest:  # rows of features have none
                known[item.digest] = row
        rows.items.append(item)
        rows.row_of.append(row)
    rows.features = room[:count]
    return rows


def read_images(
    items: Sequence[Item],
    encoder: ImageEncoder,
    device: str,
    cache: EmbeddingCache,
    seconds: Seconds | None = None,
) -> tuple[list[Item], list[Skipped]]:
    """The images that could be read, with their digests, whose features are in the cache; and the others.

    seconds: takes those of reading, decoding and encoding, added up over threads.
    """
    with quiet(), meter("reading, decoding and encoding", len(items), "images") as progress:
        read, skipped = list[Item](), list[Skipped]()
        for file in encode_files(device, items, encoder, cache, seconds or Seconds()):
            progress.advance(1)
            if isinstance(file, Item):
                read.append(file)
            else:
                skipped.append(file)
    cache.flush()
    return read, skipped


def encode_files(
    device: str,
    items: Sequence[Item],
    encoder: ImageEncoder,
    cache: EmbeddingCache,
    clock: Seconds,
) -> Iterator[Item | Skipped]:
    """Each item with its digest, or why it cannot be read, in order; its features are in the cache.

    Each thread reads, decodes and encodes as many files as the network takes at once.
    """
    size = encoder.batch_size(device)

    def encoded(some: Sequence[Item]) -> tuple[list[Item | Skipped], dict[bytes, EncodedImage]]:
        files, new = list[Item | Skipped](), dict[bytes, tuple[Pixels, ImageLook]]()
        for item in some:
            try:
                with clock.part("reading"):
                    data = read_image(item.path or Path())
                digest = hashlib.sha256(data).digest()
                if digest not in cache and digest not in new:
                    with clock.part("decoding"):
                        new[digest] = look_at(data, encoder, item.home or item.path)
                files.append(replace(item, digest=digest))
            except InputError as error:
                files.append(Skipped(item.shown, str(error).removesuffix(f"; {REMEDY}")))
        if not new:
            return files, {}
        encoder.session(device)  # opened outside of the time of encoding
        with clock.part("encoding"):
            rows = encoder.encode(np.stack([pixels for pixels, _ in new.values()]), device)
        pairs = zip(rows, (look for _, look in new.values()), strict=True)
        return files, dict(zip(new, pairs, strict=True))

    batches = (items[first : first + size] for first in range(0, len(items), size))
    for files, new in ahead(encoded, batches, most_threads()):
        for digest, image in new.items():
            cache.add(digest, *image)
        yield from files


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


def look_at(
    data: bytes, encoder: ImageEncoder, path: Path | None = None
) -> tuple[Pixels, ImageLook]:
    """What the encoder sees of an image file, and what is kept with its features."""
    framing = encoder.prepare
    with opened(data, "it") as image:
        box = encoder.boxes.box(path) if encoder.boxes is not None else None
        large = image.width * image.height > MANY_PIXELS
        with upright(image, least=least(framing) if large and box is None else None) as whole:
            seen = cropped(whole, box) if box is not None else whole
            pixels = framing.frame(seen.convert("L") if framing.channels == 1 else seen)
            return pixels, ImageLook(fingerprint(seen), small_copy(whole) if large else b"")


def read_image(path: Path) -> bytes:
    """The bytes of a regular file that is not too large."""
    try:
        return read_regular(path, MOST_BYTES, "it")
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise InputError(f"cannot be opened ({getattr(error, 'strerror', error)})") from error
