"""The prepared data set on disk: one memory-mapped uint8 array, its classes, and a fingerprint.

A pool is a folder with `images.npy` (I, C, H, W) and `pool.json`. The images of a class are
contiguous, so a class is a name, a group (alphabet, category), a split, and the range start:start + count.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray
from platformdirs import user_cache_dir

from semishot.data.settings import SPLITS as SPLITS
from semishot.data.settings import Split as Split
from semishot.errors import InputError
from semishot.system.files import whole_folder, write_json
from semishot.system.npy import make_room, map_array
from semishot.system.structs import read_struct

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
        classes = tuple(c for c in self.classes if c.split == split)
        if not classes:
            others = ", ".join(s for s in SPLITS if any(c.split == s for c in self.classes))
            raise InputError(f"pool {self.name!r} has no {split!r} classes; it holds {others}")
        return classes

    @property
    def fingerprint(self) -> str:
        """One digest of every class's name, group, split and pixels."""
        text = json.dumps([[c.name, c.group, c.split, c.count, c.digest] for c in self.classes])
        return hashlib.sha256(text.encode()).hexdigest()


Count = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True)
class PoolFile:
    """The content of `pool.json`; a class is a row of the fields of `ImageClass`."""

    format: Literal[1]
    name: str
    fingerprint: str
    about: dict[str, Any]
    classes: tuple[tuple[str, str, Split, Count, Count, str], ...]


def data_root(given: Path | None = None) -> Path:
    """`--data-root`, else $SEMISHOT_DATA, else the platform's cache folder."""
    if chosen := given or os.environ.get("SEMISHOT_DATA"):
        return Path(chosen)
    root = Path(user_cache_dir("semishot"))
    if root.parts[0] == "~":  # neither HOME nor an entry in passwd
        raise InputError(
            "there is no home folder for prepared data: set HOME or SEMISHOT_DATA, or pass --data-root"
        )
    return root


def digest_of(image_class: ImageClass, images: NDArray[np.uint8]) -> str:
    own = images[image_class.start : image_class.start + image_class.count]
    return hashlib.sha256(np.ascontiguousarray(own).data).hexdigest()


def save_pool(
    folder: Path,
    name: str,
    images: NDArray[np.uint8],
    classes: Sequence[ImageClass],
    about: dict[str, Any],
) -> ImagePool:
    """Write a pool atomically and open it. The digests of the classes are computed here."""
    with whole_folder(folder) as temporary:
        mapped = make_room(temporary / "images.npy", np.uint8, images.shape)
        mapped[:] = images
        mapped.flush()
        write_description(temporary, ImagePool(name, images, tuple(classes), about))
    return open_pool(folder)


def write_description(folder: Path, pool: ImagePool) -> None:
    """Write `pool.json`, with the digests of the classes."""
    classes = tuple(replace(c, digest=digest_of(c, pool.images)) for c in pool.classes)
    pool = replace(pool, classes=classes)
    rows = tuple(map(astuple, classes))
    saved = PoolFile(1, pool.name, pool.fingerprint, pool.about, rows)
    write_json(folder / "pool.json", vars(saved))


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
    saved = read_struct(PoolFile, folder / "pool.json")
    images = map_array(folder / "images.npy")
    classes = tuple(ImageClass(*row) for row in saved.classes)
    pool = ImagePool(saved.name, images, classes, saved.about)
    if pool.fingerprint != saved.fingerprint:
        raise InputError("pool.json was altered")
    needed = max((c.start + c.count for c in classes), default=0)
    if images.dtype != np.uint8 or images.ndim != 4 or len(images) < needed:
        raise InputError(
            f"images.npy holds {images.dtype} {images.shape}, but pool.json needs uint8 "
            f"({needed}, C, H, W)"
        )
    return pool


def gather(images: NDArray[np.uint8], indices: Indices, out: NDArray[np.uint8]) -> None:
    """out[i] = images[indices[i]], by several threads: most of the time is waiting for memory and disk."""

    def take(some: Indices, part: NDArray[np.uint8]) -> None:
        np.take(images, some, axis=0, out=part, mode="clip")  # `raise` would make a second copy

    threads = min(8, os.cpu_count() or 1)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(take, np.array_split(indices, threads), np.array_split(out, threads)))


def changed_classes(pool: ImagePool) -> list[str]:
    """The classes whose pixels no longer match the digest taken when the pool was saved."""
    return [
        f"{c.split}/{c.group}/{c.name}"
        for c in pool.classes
        if digest_of(c, pool.images) != c.digest
    ]
