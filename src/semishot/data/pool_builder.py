"""Build a pool of any size from files: read by all cores, resumed after a kill, in bounded memory."""

import hashlib
import multiprocessing
import os
import shutil
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.data.pool import (
    ImageClass,
    ImagePool,
    Split,
    make_room,
    open_pool,
    with_digests,
    write_description,
)
from semishot.errors import InputError, printable
from semishot.system.files import read_regular, remove, whole_folder
from semishot.system.npy import map_array
from semishot.system.progress import meter

BATCH = 256
"""Images that a worker reads at a time."""
MOST_WORKERS = 16
"""Each takes 50 MB, and more of them would wait for the disk."""
LAST_WORDS = 1.0
"""Seconds in which a worker that was told to end can finish sending."""
MOST_TEXT = 64 * 2**20
"""Bytes of a list of batches."""
Pixels = np.memmap[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class PlannedClass:
    """A class of a pool that is about to be built: where each of its images comes from."""

    name: str
    group: str
    split: Split
    sources: tuple[str, ...]
    """What `read` turns into one image each, in the order of the pool."""


def build_pool(
    folder: Path,
    name: str,
    shape: tuple[int, int, int],
    classes: Sequence[PlannedClass],
    read: Callable[[str], NDArray[np.uint8]],
    about: dict[str, Any],
    workers: int | None = None,
) -> ImagePool:
    """Build a pool of any size: images are read by all cores, a batch at a time, into a file.

    Memory stays at a few batches. A build that was killed goes on with the batches it has not done:
    they are kept in a hidden folder beside `folder`, with the digest of this very plan.
    """
    sources = [source for planned in classes for source in planned.sources]
    starts = np.cumsum([0, *(len(planned.sources) for planned in classes)])
    building = folder.with_name(f".{folder.name}.building")
    images, done = _begin_building(building, (len(sources), *shape), name, classes)
    batches = [b for b in range(0, len(sources), BATCH) if b not in done]
    (building / "done.txt").unlink(missing_ok=True)
    log = (building / "done.txt").open("x", encoding="utf-8")
    with log, meter(f"preparing {name}", len(sources), "images") as progress:
        log.writelines(f"{first}\n" for first in sorted(done))  # without a line cut short
        progress.skip(len(sources) - sum(len(sources[b : b + BATCH]) for b in batches))
        try:
            for first, pixels in _read_batches(read, sources, batches, workers):
                images[first : first + len(pixels)] = pixels
                log.write(f"{first}\n")
                log.flush()
                progress.advance(len(pixels))
        except InputError:
            shutil.rmtree(building)
            raise
    images.flush()
    held = [
        ImageClass(p.name, p.group, p.split, int(start), len(p.sources))
        for p, start in zip(classes, starts[:-1], strict=True)
    ]
    pool = ImagePool(name, images, with_digests(images, held), about)
    write_description(building, pool)
    for leftover in ("done.txt", "plan.txt"):
        (building / leftover).unlink()
    with whole_folder(folder) as temporary:
        temporary.rmdir()
        building.rename(temporary)
    return open_pool(folder)


def _begin_building(
    building: Path, shape: tuple[int, ...], name: str, classes: Sequence[PlannedClass]
) -> tuple[Pixels, set[int]]:
    """The file to fill, and the batches an earlier build of the same plan has filled."""
    plan = _digest(name, shape, classes)
    pixels = building / "images.npy"
    if os.path.lexists(building):
        try:
            done = _done(building, shape, plan)
            return np.lib.format.open_memmap(pixels, "r+"), done
        except (OSError, ValueError) as error:  # InputError among them
            said = printable(f"{building} cannot be gone on with ({error}); the build begins anew")
            print(said, file=sys.stderr)
        remove(building)
    building.mkdir(parents=True)
    try:
        images = make_room(pixels, np.uint8, shape)
    except OSError:
        shutil.rmtree(building)
        raise
    (building / "plan.txt").write_text(plan, encoding="utf-8")
    return images, set()


def _digest(name: str, shape: tuple[int, ...], classes: Sequence[PlannedClass]) -> str:
    """Of the plan, and of the size and time of each file it reads: pixels of two versions never mix."""
    whole = hashlib.sha256(repr((name, shape)).encode())
    last = None
    for planned in classes:  # one after the other: together they are a hundred megabytes of text
        whole.update(repr(planned).encode())
        for source in planned.sources:
            path = source.split("\0")[1] if "\0" in source else source  # as in archives.py
            if path != last:
                whole.update(_version(path))
            last = path
    return whole.hexdigest()


def _version(path: str) -> bytes:
    """Of a file that cannot be seen there is none: whoever reads it will say so."""
    try:
        about = Path(path).stat()
    except OSError:
        return b""
    return f"{about.st_size} {about.st_mtime_ns}\n".encode()


def _done(building: Path, shape: tuple[int, ...], plan: str) -> set[int]:
    """The batches that an earlier build has done; an error if it is another, or anything is odd."""
    if building.is_symlink():
        raise InputError("it is a link")
    for path in building.iterdir():  # what a link leads to would be written
        if path.is_symlink() or not path.is_file() or path.stat().st_nlink > 1:
            raise InputError(f"{path.name} is a link, or no file")
    if read_regular(building / "plan.txt", MOST_TEXT) != plan.encode():
        raise InputError("it is of other files, or of files that have changed")
    images = map_array(building / "images.npy")
    if images.dtype != np.uint8 or images.shape != shape or not images.flags.c_contiguous:
        raise InputError(f"images.npy holds {images.dtype} {images.shape}, not uint8 {shape}")
    log = building / "done.txt"
    text = read_regular(log, MOST_TEXT).decode() if log.exists() else ""
    done = {int(line) for line in text.split("\n")[:-1]}
    if not done <= set(range(0, shape[0], BATCH)):
        raise InputError("done.txt names what is no batch")
    return done


def _read_batches(
    read: Callable[[str], NDArray[np.uint8]],
    sources: Sequence[str],
    batches: Sequence[int],
    workers: int | None,
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """(first, pixels) of each batch, read by all cores, a few batches ahead of the writing."""
    count = workers or min(os.cpu_count() or 1, MOST_WORKERS)
    context = multiprocessing.get_context("spawn")  # a fork would copy torch's threads
    pool = ProcessPoolExecutor(count, context, _end_with_parent)
    waiting: deque[tuple[int, Future[NDArray[np.uint8]]]] = deque()
    try:
        for first in batches:
            with _deaf_to_ctrl_c():  # a worker may be started here
                future = pool.submit(_read_batch, read, sources[first : first + BATCH])
            waiting.append((first, future))
            if len(waiting) > 2 * count:
                place, future = waiting.popleft()
                yield place, future.result()
        for place, future in waiting:
            yield place, future.result()
    except BrokenExecutor as error:
        raise OSError(
            "a process that read images was killed, perhaps for want of memory; the same command goes on"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)  # whoever stops early waits for no batch


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """What is started here never hears it: Ctrl-C is for the parent, which hears it a moment later."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """In a worker: end when the parent is killed, instead of waiting for its next batch forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    signal.signal(signal.SIGTERM, _end_soon)


def _end_soon(number: int, frame: FrameType | None) -> None:
    """A worker that dies while it sends a batch would leave its parent waiting for the rest of it."""
    last = threading.Timer(LAST_WORDS, os._exit, [128 + number])
    last.daemon = True
    last.start()


def _read_batch(
    read: Callable[[str], NDArray[np.uint8]], sources: Sequence[str]
) -> NDArray[np.uint8]:
    return np.stack([read(source) for source in sources])
