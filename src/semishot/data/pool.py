"""The prepared data set on disk: one memory-mapped uint8 array, its classes, and a fingerprint.

A pool is a folder with `images.npy` (I, C, H, W) and `pool.json`. The images of a class are
contiguous, so a class is a name, a group (alphabet, category), a split, and the range start:start + count.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from platformdirs import user_cache_dir

from semishot.data.settings import SPLITS as SPLITS
from semishot.data.settings import Split as Split
from semishot.errors import InputError
from semishot.system.files import read_json, whole_folder, write_json
from semishot.system.json_fields import from_json
from semishot.system.npy import make_room, map_array

FORMAT = 1
POOL_FILES = {"images.npy", "pool.json"}
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class ImageClass:
    """A class of images: its name, its group (such as an alphabet), its split, and where its images are.

    The images are `pool.images[start : start + count]`.
    """

    name: str
    group: str
    split: Split
    start: int
    count: int
    digest: str = ""
    """SHA-256 of the class's pixels, filled in when the pool is saved."""


CLASS_FIELDS = tuple(field.name for field in fields(ImageClass))
"""A class is a row of these fields in `pool.json`."""


@dataclass(frozen=True)
class ImagePool:
    """A prepared data set: all images in one array, and the classes they belong to."""

    name: str
    images: NDArray[np.uint8]
    """(I, C, H, W), read-only memory map when opened from disk."""
    classes: tuple[ImageClass, ...]
    """The classes of all splits."""
    about: dict[str, Any] = field(default_factory=dict)
    """Where the images come from and how they were prepared."""

    def of_split(self, split: Split) -> tuple[ImageClass, ...]:
        """The classes of one split; `InputError` if there are none."""
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


@dataclass(frozen=True)
class Description:
    """The content of `pool.json`."""

    format: int
    name: str
    fingerprint: str
    about: Mapping[str, Any]
    classes: tuple[Any, ...]


def data_root(given: Path | None = None) -> Path:
    """`--data-root`, else $SEMISHOT_DATA, else the platform's cache folder."""
    if told := given or os.environ.get("SEMISHOT_DATA"):
        return Path(told)
    try:
        place = Path(user_cache_dir("semishot"))
    except RuntimeError:  # of newer versions of platformdirs
        place = Path("~")
    if place.parts[0] == "~":  # neither HOME nor an entry in passwd
        raise InputError(
            "there is no home folder for prepared data: set HOME or SEMISHOT_DATA, or pass --data-root"
        )
    return place


def digest(images: NDArray[np.uint8]) -> str:
    return hashlib.sha256(np.ascontiguousarray(images).data).hexdigest()


def save_pool(
    folder: Path,
    name: str,
    images: NDArray[np.uint8],
    classes: Sequence[ImageClass],
    about: dict[str, Any],
) -> ImagePool:
    """Write a pool atomically and open it. The digests of the classes are computed here."""
    pool = ImagePool(name, images, with_digests(images, classes), about)
    with whole_folder(folder) as temporary:
        mapped = make_room(temporary / "images.npy", np.uint8, images.shape)
        mapped[:] = images
        mapped.flush()
        write_description(temporary, pool)
    return open_pool(folder)


def with_digests(
    images: NDArray[np.uint8], classes: Sequence[ImageClass]
) -> tuple[ImageClass, ...]:
    return tuple(replace(c, digest=digest(images[c.start : c.start + c.count])) for c in classes)


def write_description(folder: Path, pool: ImagePool) -> None:
    rows = tuple(list(asdict(c).values()) for c in pool.classes)
    held = Description(FORMAT, pool.name, pool.fingerprint, pool.about, rows)
    write_json(folder / "pool.json", vars(held))


def open_pool(folder: Path) -> ImagePool:
    """Open a prepared pool of any size: pixels are read when they are used."""
    try:
        return _read_pool(folder)
    except FileNotFoundError as error:
        raise InputError(
            f"no image pool in {folder}: run `semishot data prepare NAME` first, or pass --data-root"
        ) from error
    except InputError as error:
        raise InputError(f"damaged image pool in {folder} ({error}); prepare it again") from error


def _read_pool(folder: Path) -> ImagePool:
    path = folder / "pool.json"
    written = read_json(path)
    images = map_array(folder / "images.npy")
    found = written.get("format") if isinstance(written, dict) else None
    if found != FORMAT:
        raise InputError(f"{path} has format {found}, this version reads {FORMAT}")
    held = from_json(Description, written, path)
    classes = tuple(_class(row, f"{path}: class {place}") for place, row in enumerate(held.classes))
    pool = ImagePool(held.name, images, classes, dict(held.about))
    if pool.fingerprint != held.fingerprint:
        raise InputError("pool.json was altered")
    needed = max((c.start + c.count for c in classes), default=0)
    if images.dtype != np.uint8 or images.ndim != 4 or len(images) < needed:
        raise InputError(
            f"images.npy holds {images.dtype} {images.shape}, but pool.json needs uint8 "
            f"({needed}, C, H, W)"
        )
    return pool


def _class(row: Any, where: str) -> ImageClass:
    if not isinstance(row, list) or len(row) > len(CLASS_FIELDS):
        raise InputError(f"{where} must be a list of {', '.join(CLASS_FIELDS)}, not {row!r:.40}")
    held = from_json(ImageClass, dict(zip(CLASS_FIELDS, row, strict=False)), where)
    if held.start < 0 or held.count < 0:
        raise InputError(f"{where}: images {held.start} + {held.count} must not be negative")
    return held


def gather(images: NDArray[np.uint8], places: Indices, out: NDArray[np.uint8]) -> None:
    """out[i] = images[places[i]], by several threads: most of the time is waiting for memory and disk."""
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
