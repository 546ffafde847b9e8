"""Images embedded by several devices or machines: their bytes are sent there, features come back.

No disk is shared. Features are cached as they arrive, so a lost worker loses seconds of work.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import torch

from semishot.data.decoding import quiet
from semishot.sorter.embedding import (
    Batches,
    Pixels,
    ReadFile,
    ahead,
    most_threads,
    prepared,
    read,
    size_of,
)
from semishot.sorter.embedding_cache import EmbeddingCache, Row
from semishot.sorter.encoders import ImageEncoder, load_encoder, save_encoder
from semishot.sorter.listing import Item
from semishot.system.progress import Meter
from semishot.workers.engine import Array, Task, run
from semishot.workers.folder_bytes import Files, pack, unpack
from semishot.workers.places import OpenPlace

__all__ = ["by_workers"]

MOST_IMAGES, MOST_BYTES = 256, 32 * 2**20
"""The size of a task: photographs take a core about ten seconds, and a few tasks wait in memory."""
TELL_SECONDS = 1.0

Found = dict[bytes, Row | str]
"""The digest of a file -> its features, or why it has none."""


def by_workers(
    open_place: OpenPlace,
    items: Sequence[Item],
    encoder: ImageEncoder,
    cache: EmbeddingCache,
    progress: Meter,
) -> Iterator[ReadFile]:
    """Like `embedding.in_this_process`, on workers."""
    images = ImageTasks(items, packed(encoder), cache, progress)
    tasks = [images.task(first, last) for first, last in parts(items)]
    with closing(run(tasks, open_place(None, len(tasks)))) as running:
        for news in running:
            for _, found in news:
                images.receive(found)
    for seen in images.read:
        assert seen is not None
        yield seen._replace(problem=seen.problem or images.problems.get(seen.digest, ""))


def parts(items: Sequence[Item]) -> Iterator[tuple[int, int]]:
    """First and last + 1 of each task."""
    first = size = 0
    for place, item in enumerate(items):
        more = size_of(item)
        if place - first == MOST_IMAGES or (place > first and size + more > MOST_BYTES):
            yield first, place
            first, size = place, 0
        size += more
    yield first, len(items)


@dataclass
class ImageTasks:
    """Images as tasks for workers, and what came back so far."""

    items: Sequence[Item]
    encoder: Files
    cache: EmbeddingCache
    progress: Meter
    problems: dict[bytes, str] = field(default_factory=dict)
    read: list[ReadFile | None] = field(init=False)

    def __post_init__(self) -> None:
        self.read = [None] * len(self.items)

    def task(self, first: int, last: int) -> Task:
        middle = (first + last) // 2

        def halves() -> list[Task]:
            one = last - first == 1
            return [] if one else [self.task(first, middle), self.task(middle, last)]

        name = f"images {first + 1:,} to {last:,}"
        return Task(
            name, 1.0, work_on_images, lambda: (self.encoder, self.unknown(first, last)), halves
        )

    def unknown(self, first: int, last: int) -> dict[bytes, bytes]:
        """The files of a task that have no result yet, by their digests."""
        new, wanted = self.read[first:last].count(None), {}
        for place in range(first, last):
            seen, data = read(self.items[place])
            self.read[place] = seen
            known = seen.problem or seen.digest in self.cache or seen.digest in self.problems
            if not known:
                wanted[seen.digest] = data
        self.progress.advance(max(0, new - len(wanted)))
        return wanted

    def receive(self, found: Found) -> None:
        self.problems.update((d, said) for d, said in found.items() if isinstance(said, str))
        self.cache.add({d: row for d, row in found.items() if not isinstance(row, str)})
        self.progress.advance(len(found))


def work_on_images(
    shared: Array | None, device_name: str, saved: Files, images: dict[bytes, bytes]
) -> Iterator[Found]:
    """In a worker: the features of some files."""
    encoder, device = unpacked(tuple(saved.items())), torch.device(device_name)
    batches = Batches(encoder, device)
    found: Found = {}
    told = time.monotonic()
    threads = 1 if device.type == "cpu" else most_threads()  # on a CPU each core has its worker

    def look(file: tuple[bytes, bytes]) -> tuple[bytes, Pixels | str]:
        return file[0], prepared(file[1], encoder)

    with quiet():
        for digest, pixels in ahead(look, images.items(), threads):
            if isinstance(pixels, str):
                found[digest] = pixels
            else:
                found.update(batches.take(digest, pixels))
            if time.monotonic() - told > TELL_SECONDS:
                yield found
                found, told = {}, time.monotonic()
        found.update(batches.rest())
        yield found


def packed(encoder: ImageEncoder) -> Files:
    with tempfile.TemporaryDirectory(prefix="semishot-") as folder:
        save_encoder(encoder, Path(folder))
        return pack(Path(folder))


@lru_cache(maxsize=1)
def unpacked(saved: tuple[tuple[str, bytes], ...]) -> ImageEncoder:
    """An encoder by its saved form, opened once for all tasks of a worker."""
    with tempfile.TemporaryDirectory(prefix="semishot-") as folder:
        unpack(dict(saved), Path(folder))
        encoder = load_encoder(Path(folder))
    assert encoder is not None
    return encoder
