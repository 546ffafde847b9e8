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
from typing import NamedTuple

import torch

from semishot.data.decoding import quiet
from semishot.sorter.embedding import (
    Decoded,
    ReadFile,
    ahead,
    decoded,
    most_threads,
    read,
    size_of,
)
from semishot.sorter.embedding_cache import EmbeddingCache, Row
from semishot.sorter.encoders.image_encoder import ImageEncoder, load_encoder, save_encoder
from semishot.sorter.encoders.runtimes import Batches, Runtime, open_runtime
from semishot.sorter.listing import Item
from semishot.system.progress import Meter
from semishot.training.run_folder import Files, pack, unpack
from semishot.workers.engine import Array, Task, run
from semishot.workers.places import OpenPlace

MOST_IMAGES, MOST_BYTES = 256, 32 * 2**20
"""The size of a task: photographs take a core about ten seconds, and a few tasks wait in memory."""
TELL_SECONDS = 1.0

Found = dict[bytes, Row | str]
"""The digest of a file -> its features, or why it has none."""


class Told(NamedTuple):
    """What a worker has found, by which runtime, and why it is not the usual one."""

    runtime: str
    problem: str
    found: Found
    thumbnails: dict[bytes, bytes]


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
            for _, told in news:
                images.receive(told)
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

    def receive(self, told: Told) -> None:
        found = told.found
        self.cache.thumbnails.update(told.thumbnails)
        if told.runtime and self.cache.runtime != told.runtime:
            self.cache.flush()
            self.cache.runtime = told.runtime
            if told.problem:
                self.progress.say(f"encoding by {told.runtime}: {told.problem}")
        self.problems.update((d, said) for d, said in found.items() if isinstance(said, str))
        self.cache.add({d: row for d, row in found.items() if not isinstance(row, str)})
        self.progress.advance(len(found))


def work_on_images(
    shared: Array | None, device_name: str, saved: Files, images: dict[bytes, bytes]
) -> Iterator[Told]:
    """In a worker: the features of some files."""
    if not images:
        return
    threads = 1 if device_name == "cpu" else most_threads()  # on a CPU each core has its worker
    encoder = unpacked(tuple(saved.items()))
    runtime: Runtime | None = None
    found: Found = {}
    thumbnails: dict[bytes, bytes] = {}
    name, problem, told = "", "", time.monotonic()

    def look(file: tuple[bytes, bytes]) -> tuple[bytes, Decoded | str]:
        return file[0], decoded(file[1], encoder)

    with quiet():
        for digest, seen in ahead(look, images.items(), threads):
            if isinstance(seen, str):
                found[digest] = seen
            else:
                if runtime is None:
                    runtime, problem = opened(encoder, device_name)
                    name = runtime.name
                if seen.thumbnail:
                    thumbnails[digest] = seen.thumbnail
                found.update(runtime.take(digest, seen.pixels))
            if time.monotonic() - told > TELL_SECONDS:
                yield Told(name, problem, found, thumbnails)
                found, thumbnails, told = {}, {}, time.monotonic()
        if runtime is not None:
            found.update(runtime.rest())
        yield Told(name, problem, found, thumbnails)


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


def opened(encoder: ImageEncoder, device_name: str) -> tuple[Runtime, str]:
    """What runs an encoder, and why it is not the usual runtime."""
    runtime, problem = _opened(encoder, device_name)
    if isinstance(runtime, Batches):
        runtime.waiting.clear()  # of a task that was interrupted
    return runtime, problem


@lru_cache(maxsize=1)
def _opened(encoder: ImageEncoder, device_name: str) -> tuple[Runtime, str]:
    """Once for all tasks of a worker."""
    return open_runtime(encoder, torch.device(device_name))
