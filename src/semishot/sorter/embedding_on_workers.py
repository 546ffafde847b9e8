"""Images embedded by several devices or machines: their bytes are sent there, features come back.

No disk is shared. Features are cached as they arrive, so a lost worker loses seconds of work.
"""

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from semishot.data.decoding import quiet
from semishot.errors import InputError
from semishot.sorter.embedding import ReadFile, encode_files, most_threads, read
from semishot.sorter.embedding_cache import EmbeddingCache
from semishot.sorter.encoders.image_encoder import ImageEncoder, load_encoder, save_encoder
from semishot.sorter.listing import Item
from semishot.system.progress import Meter
from semishot.workers.engine import Array, Files, Task, pack, run, unpack
from semishot.workers.places import OpenPlace

MOST_IMAGES, MOST_BYTES = 256, 32 * 2**20
"""The size of a task: photographs take a core about ten seconds, and a few tasks wait in memory."""
REPORT_SECONDS = 1.0


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
            for _, report in news:
                images.receive(report)
    for index in range(len(items)):
        file = images.read[index]
        yield file._replace(problem=file.problem or images.problems.get(file.digest, ""))


def parts(items: Sequence[Item]) -> Iterator[tuple[int, int]]:
    """First and last + 1 of each task."""
    first = size = 0
    for index, item in enumerate(items):
        assert item.path is not None
        try:
            more = item.path.stat().st_size
        except (OSError, ValueError):  # reported when it is read
            more = 0
        if index - first == MOST_IMAGES or (index > first and size + more > MOST_BYTES):
            yield first, index
            first, size = index, 0
        size += more
    yield first, len(items)


@dataclass
class ImageTasks:
    """Images as tasks for workers, and what came back so far."""

    items: Sequence[Item]
    encoder: Files
    cache: EmbeddingCache
    progress: Meter
    read: dict[int, ReadFile] = field(default_factory=dict)
    """By the index of an item."""
    problems: dict[bytes, str] = field(default_factory=dict)

    def task(self, first: int, last: int) -> Task:
        middle = (first + last) // 2

        def halves() -> list[Task]:
            single = last - first == 1
            return [] if single else [self.task(first, middle), self.task(middle, last)]

        name = f"images {first + 1:,} to {last:,}"
        return Task(
            name, 1.0, work_on_images, lambda: (self.encoder, self.unknown(first, last)), halves
        )

    def unknown(self, first: int, last: int) -> dict[bytes, bytes]:
        """The files of a task that have no result yet, by their digests."""
        before, unknown = len(self.read), dict[bytes, bytes]()
        for index in range(first, last):
            file, data = read(self.items[index])
            self.read[index] = file
            if not (file.problem or file.digest in self.cache or file.digest in self.problems):
                unknown[file.digest] = data
        self.progress.advance(max(0, len(self.read) - before - len(unknown)))
        return unknown

    def receive(self, report: list[ReadFile]) -> None:
        for file in report:
            if file.row is None:
                self.problems[file.digest] = file.problem
            else:
                self.cache.add(file.digest, file.row, file.thumbnail)
        self.progress.advance(len(report))


def work_on_images(
    shared: Array | None, device: str, saved: Files, images: dict[bytes, bytes]
) -> Iterator[list[ReadFile]]:
    """In a worker: the features of some files, as soon as there are some."""
    if not images:
        return
    encoder, threads = unpacked(tuple(saved.items())), most_threads()
    if device == "cpu":
        threads = 1  # each core has its worker
    try:
        encoder.network(device)
    except InputError as error:  # its runtime cannot use the GPU of this worker
        print(f"semishot: {error}; this worker encodes on the CPU", file=sys.stderr)
        device = "cpu"
    report, reported = list[ReadFile](), time.monotonic()

    def unread(file: tuple[bytes, bytes]) -> tuple[ReadFile, bytes]:
        return ReadFile(file[0]), file[1]

    with quiet():
        for file in encode_files(images.items(), unread, encoder, device, threads):
            report.append(file)
            if time.monotonic() - reported > REPORT_SECONDS:
                yield report
                report, reported = [], time.monotonic()
    yield report


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
