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

from semishot.data.decoding import quiet
from semishot.errors import InputError
from semishot.sorter.embedding import DecodedImage, ReadFile, ahead, decoded, most_threads, read
from semishot.sorter.embedding_cache import EmbeddingCache, Row
from semishot.sorter.encoders.image_encoder import ImageEncoder, load_encoder, save_encoder
from semishot.sorter.encoders.networks import Batches, Network
from semishot.sorter.listing import Item
from semishot.system.progress import Meter
from semishot.training.run_folder import Files, pack, unpack
from semishot.workers.engine import Array, Task, run
from semishot.workers.places import OpenPlace

MOST_IMAGES, MOST_BYTES = 256, 32 * 2**20
"""The size of a task: photographs take a core about ten seconds, and a few tasks wait in memory."""
REPORT_SECONDS = 1.0


class WorkerReport(NamedTuple):
    """What a worker has done since its last report, each by the digest of a file."""

    rows: dict[bytes, Row]
    problems: dict[bytes, str]
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
            for _, report in news:
                images.receive(report)
    for file in images.read:
        assert file is not None
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
    problems: dict[bytes, str] = field(default_factory=dict)
    read: list[ReadFile | None] = field(init=False)

    def __post_init__(self) -> None:
        self.read = [None] * len(self.items)

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
        new, unknown = self.read[first:last].count(None), {}
        for index in range(first, last):
            file, data = read(self.items[index])
            self.read[index] = file
            if not (file.problem or file.digest in self.cache or file.digest in self.problems):
                unknown[file.digest] = data
        self.progress.advance(max(0, new - len(unknown)))
        return unknown

    def receive(self, report: WorkerReport) -> None:
        self.problems |= report.problems
        self.cache.thumbnails.update(report.thumbnails)
        self.cache.add(report.rows)
        self.progress.advance(len(report.rows) + len(report.problems))


def work_on_images(
    shared: Array | None, device: str, saved: Files, images: dict[bytes, bytes]
) -> Iterator[WorkerReport]:
    """In a worker: the features of some files."""
    if not images:
        return
    threads = 1 if device == "cpu" else most_threads()  # on a CPU each core has its worker
    encoder = unpacked(tuple(saved.items()))
    batches = Batches(loaded(encoder, device))
    report, reported = WorkerReport({}, {}, {}), time.monotonic()

    def look(file: tuple[bytes, bytes]) -> tuple[bytes, DecodedImage | str]:
        return file[0], decoded(file[1], encoder)

    with quiet():
        for digest, image in ahead(look, images.items(), threads):
            if isinstance(image, str):
                report.problems[digest] = image
            else:
                if image.thumbnail:
                    report.thumbnails[digest] = image.thumbnail
                report.rows.update(batches.take(digest, image.pixels))
            if time.monotonic() - reported > REPORT_SECONDS:
                yield report
                report, reported = WorkerReport({}, {}, {}), time.monotonic()
        report.rows.update(batches.rest())
        yield report


def loaded(encoder: ImageEncoder, device: str) -> Network:
    """What runs an encoder; on the CPU if its runtime cannot use the GPU of this worker."""
    try:
        return encoder.network(device)
    except InputError:
        return encoder.network("cpu")


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
