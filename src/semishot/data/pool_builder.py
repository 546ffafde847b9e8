"""Build a pool of any size from image sources: on all cores, in bounded memory, and resumable."""

import hashlib
import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.data.decoding import quiet
from semishot.data.image_sources import ImageSource
from semishot.data.pool import (
    ImageClass,
    ImagePool,
    Split,
    open_pool,
    with_digests,
    write_description,
)
from semishot.errors import InputError, printable
from semishot.system.files import append_line, read_regular, remove, whole_folder, write_whole
from semishot.system.npy import Mapped, make_room, map_array, map_to_fill
from semishot.system.progress import meter

BATCH = 256
"""How many images a thread reads at a time."""
MOST_WORKERS = 16
"""More threads would only wait for the disk and for each other."""
MOST_TEXT = 64 * 2**20
"""The largest list of finished batches that is read, in bytes."""
Pixels = Mapped[np.uint8]
Read = Callable[[ImageSource], NDArray[np.uint8]]
"""A source -> one image (C, H, W)."""


@dataclass(frozen=True)
class PlannedClass:
    """A class of a pool to build: where each of its images comes from."""

    name: str
    group: str
    split: Split
    sources: tuple[ImageSource, ...]
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

    Finished batches are kept in a hidden folder beside `folder`, with a digest of the plan: a build
    that was interrupted continues with the remaining ones.
    """
    sources = [source for planned in plan.classes for source in planned.sources]
    starts = np.cumsum([0, *(len(planned.sources) for planned in plan.classes)])
    building = folder.with_name(f".{folder.name}.building")
    images, done = _begin_building(building, plan)
    batches = [b for b in range(0, len(sources), BATCH) if b not in done]
    log = building / "done.txt"
    write_whole(log, "".join(f"{first}\n" for first in sorted(done)))  # without a truncated line
    with meter(f"preparing {plan.name}", len(sources), "images") as progress:
        progress.skip(len(sources) - sum(len(sources[b : b + BATCH]) for b in batches))
        try:
            for first, pixels in _read_batches(plan.read, sources, batches, workers):
                images[first : first + len(pixels)] = pixels
                append_line(log, str(first))
                progress.advance(len(pixels))
        except InputError:
            shutil.rmtree(building)
            raise
    images.flush()
    classes = [
        ImageClass(p.name, p.group, p.split, int(start), len(p.sources))
        for p, start in zip(plan.classes, starts[:-1], strict=True)
    ]
    pool = ImagePool(plan.name, images, with_digests(images, classes), plan.about)
    write_description(building, pool)
    for leftover in ("done.txt", "plan.txt"):
        (building / leftover).unlink()
    with whole_folder(folder) as temporary:
        temporary.rmdir()
        building.rename(temporary)
    return open_pool(folder)


def _begin_building(building: Path, plan: PoolPlan) -> tuple[Pixels, set[int]]:
    """The file to fill, and the batches that an interrupted build of the same plan has filled."""
    digest = _digest(plan)
    pixels = building / "images.npy"
    if os.path.lexists(building):
        try:
            done = _done(building, plan.shape, digest)
            return map_to_fill(pixels), done
        except (OSError, ValueError) as error:  # InputError among them
            line = printable(f"{building} cannot be resumed ({error}); the build starts over")
            print(line, file=sys.stderr)
            remove(building)
    building.mkdir(parents=True)
    try:
        images = make_room(pixels, np.uint8, plan.shape)
    except OSError:
        shutil.rmtree(building)
        raise
    write_whole(building / "plan.txt", digest)
    return images, set()


def _digest(plan: PoolPlan) -> str:
    """A digest of the plan and of each file's size and time: pixels of two versions never mix."""
    whole = hashlib.sha256(repr((plan.name, plan.shape)).encode())
    last = None
    for planned in plan.classes:  # one by one: together they are a hundred megabytes of text
        whole.update(repr(planned).encode())
        for source in planned.sources:
            if source.path != last:
                whole.update(_version(source.path))
            last = source.path
    return whole.hexdigest()


def _version(path: str) -> bytes:
    """Size and time; empty for an unreadable file, which fails later with its own message."""
    try:
        about = Path(path).stat()
    except OSError:
        return b""
    return f"{about.st_size} {about.st_mtime_ns}\n".encode()


def _done(building: Path, shape: tuple[int, ...], digest: str) -> set[int]:
    """The batches that an interrupted build has filled; an error if anything about it does not match."""
    if read_regular(building / "plan.txt", MOST_TEXT) != digest.encode():
        raise InputError("it was started from other files, or they have changed")
    images = map_array(building / "images.npy")
    if images.dtype != np.uint8 or images.shape != shape or not images.flags.c_contiguous:
        raise InputError(f"images.npy holds {images.dtype} {images.shape}, not uint8 {shape}")
    log = building / "done.txt"
    text = read_regular(log, MOST_TEXT).decode() if log.exists() else ""
    done = {int(line) for line in text.split("\n")[:-1]}
    if not done <= set(range(0, shape[0], BATCH)):
        raise InputError("done.txt names a batch that does not exist")
    return done


def _read_batches(
    read: Read, sources: Sequence[ImageSource], batches: Sequence[int], workers: int | None
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """(first, pixels) of each batch, read on all cores, a few batches ahead of the writing."""

    def read_batch(first: int) -> NDArray[np.uint8]:
        return np.stack([read(source) for source in sources[first : first + BATCH]])

    count = workers or min(os.cpu_count() or 1, MOST_WORKERS)
    waiting: deque[tuple[int, Future[NDArray[np.uint8]]]] = deque()
    with quiet(), ThreadPoolExecutor(count) as pool:
        try:
            for first in batches:
                waiting.append((first, pool.submit(read_batch, first)))
                if len(waiting) > 2 * count:
                    ready, future = waiting.popleft()
                    yield ready, future.result()
            for ready, future in waiting:
                yield ready, future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # on an error, drop the other batches
