"""Build a pool of any size from image sources: on all cores, in bounded memory, and resumable."""

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from semishot.data.decoding import quiet
from semishot.data.pool import ImageClass, ImagePool, Split, open_pool, write_description
from semishot.errors import InputError
from semishot.system.files import append_line, read_regular, remove, whole_folder, write_whole
from semishot.system.npy import Mapped, make_room, map_array
from semishot.system.progress import meter

BATCH = 256
"""How many images a thread reads at a time."""
MOST_WORKERS = 16
"""More threads would only wait for the disk and for each other."""
DONE, MOST_TEXT = "done.txt", 64 * 2**20
"""The list of finished batches, a line for each, and its most bytes."""
Read = Callable[[Any], NDArray[np.uint8]]
"""A source -> one image (C, H, W); called in several threads."""


class Source(Protocol):
    """Where an image is: a value of any type that `read` of the plan takes."""

    @property
    def path(self) -> str:
        """The file that holds it."""


@dataclass(frozen=True)
class PlannedClass:
    """A class of a pool to build: where each of its images comes from."""

    name: str
    group: str
    split: Split
    sources: tuple[Source, ...]
    """One for each image, in the order of the pool."""


@dataclass(frozen=True)
class PoolPlan:
    """A pool to build."""

    name: str
    image_shape: tuple[int, int, int]
    """(C, H, W)."""
    classes: Sequence[PlannedClass]
    read: Read
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(I, C, H, W)."""
        return sum(len(planned.sources) for planned in self.classes), *self.image_shape


def build_pool(folder: Path, plan: PoolPlan, workers: int | None = None) -> ImagePool:
    """Read images on all cores, a batch at a time, into a file; memory stays at a few batches.

    Finished batches are kept in a hidden folder beside `folder`, named by a digest of the plan: a build
    that was interrupted continues with the remaining ones.
    """
    sources = [source for planned in plan.classes for source in planned.sources]
    starts = np.cumsum([0, *(len(planned.sources) for planned in plan.classes)])
    building = folder.with_name(f".{folder.name}.{_digest(plan)[:16]}.building")
    images, done = _begin(folder, building, plan.shape)
    log = building / DONE
    with meter(f"preparing {plan.name}", len(sources), "images") as progress:
        progress.skip(min(done, len(sources)))
        try:
            for first, pixels in _read_batches(plan.read, sources, done, workers):
                images[first : first + len(pixels)] = pixels
                append_line(log, str(first))
                progress.advance(len(pixels))
        except InputError:
            remove(building)
            raise
    images.flush()
    classes = [
        ImageClass(p.name, p.group, p.split, int(start), len(p.sources))
        for p, start in zip(plan.classes, starts[:-1], strict=True)
    ]
    write_description(building, ImagePool(plan.name, images, tuple(classes), plan.about))
    log.unlink()
    with whole_folder(folder) as temporary:
        temporary.rmdir()
        building.rename(temporary)
    return open_pool(folder)


def _begin(folder: Path, building: Path, shape: tuple[int, ...]) -> tuple[Mapped[np.uint8], int]:
    """The file to fill, and how many images an interrupted build of the same plan has filled."""
    for other in folder.parent.glob(f".{folder.name}.*.building"):
        if other != building:
            remove(other)
    path = building / "images.npy"
    try:
        images = map_array(path, "r+")
        if images.dtype == np.uint8 and images.shape == shape:
            return images, read_regular(building / DONE, MOST_TEXT).count(b"\n") * BATCH
    except (OSError, ValueError):  # there is none, or it is damaged
        pass
    remove(building)
    building.mkdir(parents=True)
    try:
        images = make_room(path, np.uint8, shape)
    except OSError:
        remove(building)
        raise
    write_whole(building / DONE, "")
    return images, 0


def _digest(plan: PoolPlan) -> str:
    """A digest of the plan and of each file's size and time: pixels of two versions never mix."""
    whole = hashlib.sha256(repr((plan.name, plan.shape, BATCH)).encode())
    last = None
    for planned in plan.classes:  # one by one: together they are a hundred megabytes of text
        whole.update(repr(planned).encode())
        for source in planned.sources:
            if source.path != last:
                with suppress(OSError):  # an unreadable file fails later with its own message
                    about = Path(source.path).stat()
                    whole.update(f"{about.st_size} {about.st_mtime_ns}\n".encode())
            last = source.path
    return whole.hexdigest()


def _read_batches(
    read: Read, sources: Sequence[Source], done: int, workers: int | None
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """(first, pixels) of each batch, read on all cores, a few batches ahead of the writing."""

    def read_batch(first: int) -> NDArray[np.uint8]:
        return np.stack([read(source) for source in sources[first : first + BATCH]])

    count = workers or min(os.cpu_count() or 1, MOST_WORKERS)
    waiting: deque[tuple[int, Future[NDArray[np.uint8]]]] = deque()
    with quiet(), ThreadPoolExecutor(count) as pool:
        try:
            for first in range(done, len(sources), BATCH):
                waiting.append((first, pool.submit(read_batch, first)))
                if len(waiting) > 2 * count:
                    ready, future = waiting.popleft()
                    yield ready, future.result()
            for ready, future in waiting:
                yield ready, future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # on an error, drop the other batches
