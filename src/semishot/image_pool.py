"""The prepared data set on disk: one memory-mapped uint8 array, its classes, and a fingerprint.

A pool is a folder with `images.npy` (I, C, H, W) and `pool.json`. The images of a class lie side by
side, so a class is a name, a group (alphabet, category), a split, and the range start:start + count.
"""

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from platformdirs import user_cache_dir

from semishot.errors import InputError
from semishot.files import read_json, whole_folder, write_json
from semishot.npy import map_array
from semishot.progress import meter

FORMAT = 1
BATCH = 256
"""Images that a worker reads at a time."""
MOST_WORKERS = 16
"""Each takes 50 MB, and more of them would wait for the disk."""
Indices = NDArray[np.int64]
Number = TypeVar("Number", bound=np.generic)
Pixels = np.memmap[Any, np.dtype[np.uint8]]
Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")


@dataclass(frozen=True)
class ImageClass:
    name: str
    group: str
    split: Split
    start: int
    count: int
    digest: str = ""
    """SHA-256 of the class's pixels, filled in when the pool is saved."""


@dataclass(frozen=True)
class ImagePool:
    name: str
    images: NDArray[np.uint8]
    """(I, C, H, W), read-only memory map when opened from disk."""
    classes: tuple[ImageClass, ...]
    about: dict[str, Any] = field(default_factory=dict)
    """Where the images come from and how they were prepared."""

    def of_split(self, split: Split) -> tuple[ImageClass, ...]:
        found = tuple(c for c in self.classes if c.split == split)
        if not found:
            held = ", ".join(s for s in SPLITS if any(c.split == s for c in self.classes))
            raise InputError(f"pool {self.name!r} has no {split!r} classes; it holds {held}")
        return found

    @property
    def fingerprint(self) -> str:
        """One digest of every class's name, group, split and pixels."""
        text = json.dumps([[c.name, c.group, c.split, c.count, c.digest] for c in self.classes])
        return hashlib.sha256(text.encode()).hexdigest()


def data_root(given: Path | None = None) -> Path:
    """`--data-root`, else $SEMISHOT_DATA, else the platform's cache folder."""
    return given or Path(os.environ.get("SEMISHOT_DATA") or user_cache_dir("semishot"))


def digest(images: NDArray[np.uint8]) -> str:
    return hashlib.sha256(np.ascontiguousarray(images).data).hexdigest()


def save_pool(
    folder: Path,
    name: str,
    images: NDArray[np.uint8],
    classes: Sequence[ImageClass],
    about: dict[str, Any],
) -> ImagePool:
    """Write a pool, whole or not at all, and open it. The classes' digests are computed here."""
    pool = ImagePool(name, images, _with_digests(images, classes), about)
    with whole_folder(folder) as temporary:
        room = make_room(temporary / "images.npy", np.uint8, images.shape)
        room[:] = images
        room.flush()
        _write_description(temporary, pool)
    return open_pool(folder)


def make_room(
    path: Path, dtype: type[Number], shape: tuple[int, ...]
) -> np.memmap[Any, np.dtype[Number]]:
    """A file to fill, with all its space: a disk that fills up under a memory map kills the process."""
    try:
        array = np.lib.format.open_memmap(path, "w+", dtype, shape)
        with path.open("r+b") as file:
            if hasattr(os, "posix_fallocate"):  # not on every platform
                os.posix_fallocate(file.fileno(), 0, array.offset + array.nbytes)
    except OSError as error:
        error.filename = str(path)
        raise
    return array


def _with_digests(
    images: NDArray[np.uint8], classes: Sequence[ImageClass]
) -> tuple[ImageClass, ...]:
    return tuple(replace(c, digest=digest(images[c.start : c.start + c.count])) for c in classes)


def _write_description(folder: Path, pool: ImagePool) -> None:
    description = {
        "format": FORMAT,
        "name": pool.name,
        "fingerprint": pool.fingerprint,
        "about": pool.about,
        "classes": [list(asdict(c).values()) for c in pool.classes],
    }
    write_json(folder / "pool.json", description)


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
    log = (building / "done.txt").open("w", encoding="utf-8")
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
    pool = ImagePool(name, images, _with_digests(images, held), about)
    _write_description(building, pool)
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
    whole = hashlib.sha256(repr((name, shape)).encode())
    for planned in classes:  # one after the other: together they are a hundred megabytes of text
        whole.update(repr(planned).encode())
    plan = whole.hexdigest()
    written = building / "plan.txt"
    if not written.exists() or written.read_text(encoding="utf-8") != plan:
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        try:
            make_room(building / "images.npy", np.uint8, shape).flush()
        except OSError:
            shutil.rmtree(building)
            raise
        written.write_text(plan, encoding="utf-8")
    images = np.lib.format.open_memmap(building / "images.npy", "r+")
    log = building / "done.txt"
    lines = log.read_text(encoding="utf-8").split("\n")[:-1] if log.exists() else []
    return images, {int(line) for line in lines}


LAST_WORDS = 1.0
"""Seconds in which a worker that was told to end can finish sending."""


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


def open_pool(folder: Path) -> ImagePool:
    """Open a prepared pool in milliseconds, whatever its size: pixels are read when used."""
    try:
        written = read_json(folder / "pool.json")
        images = map_array(folder / "images.npy")
    except FileNotFoundError as error:
        raise InputError(
            f"no image pool in {folder}: run `semishot data prepare NAME` first, or pass --data-root"
        ) from error
    except InputError as error:
        raise InputError(f"damaged image pool in {folder} ({error}); prepare it again") from error
    found = written.get("format") if isinstance(written, dict) else None
    if found != FORMAT:
        raise InputError(
            f"{folder / 'pool.json'} has format {found}, this version reads {FORMAT}; prepare it again"
        )
    try:
        classes = tuple(ImageClass(*row) for row in written["classes"])
        for held in classes:
            _check_class(held)
        if not isinstance(written["name"], str) or not isinstance(written["about"], dict):
            raise TypeError("its name or description")
        pool = ImagePool(written["name"], images, classes, written["about"])
        altered = pool.fingerprint != written["fingerprint"]
    except (KeyError, TypeError, UnicodeEncodeError) as error:
        raise InputError(f"damaged image pool in {folder} ({error}); prepare it again") from error
    if altered:
        raise InputError(f"damaged image pool in {folder}: pool.json was altered; prepare it again")
    needed = max((c.start + c.count for c in classes), default=0)
    if images.dtype != np.uint8 or images.ndim != 4 or len(images) < needed:
        raise InputError(
            f"damaged image pool in {folder}: images.npy holds {images.dtype} {images.shape}, but "
            f"pool.json needs uint8 ({needed}, C, H, W); prepare it again"
        )
    return pool


def _check_class(held: ImageClass) -> None:
    """JSON may say anything."""
    words = (held.name, held.group, held.digest)
    if not all(isinstance(word, str) for word in words) or held.split not in SPLITS:
        raise TypeError(f"a class {held.name!r:.40}")
    if not all(type(number) is int and 0 <= number < 2**62 for number in (held.start, held.count)):
        raise TypeError(f"the images of class {held.name!r:.40}")


def gather(images: NDArray[np.uint8], places: Indices, out: NDArray[np.uint8]) -> None:
    """out[i] = images[places[i]], by several threads: they wait for memory and the disk together."""
    threads = min(8, os.cpu_count() or 1)
    parts = zip(np.array_split(places, threads), np.array_split(out, threads), strict=True)
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(_take, images, some, there) for some, there in parts]:
            done.result()


def _take(images: NDArray[np.uint8], places: Indices, out: NDArray[np.uint8]) -> None:
    np.take(images, places, axis=0, out=out, mode="clip")  # `raise` would make a second copy


def changed_classes(pool: ImagePool) -> list[str]:
    """The classes whose pixels no longer match the digest taken when the pool was saved."""
    return [
        f"{c.split}/{c.group}/{c.name}"
        for c in pool.classes
        if digest(pool.images[c.start : c.start + c.count]) != c.digest
    ]
