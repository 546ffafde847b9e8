"""CIFAR-100 from its archive, 100 classes of 600 photographs of 32x32: two data sets split it differently."""

import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semishot.data import safe_pickles
from semishot.data.pool import SPLITS, ImagePool, Split
from semishot.data.pool_builder import PlannedClass, PoolPlan, build_pool
from semishot.errors import InputError
from semishot.system.files import reading

SIDE = 32
ARCHIVE, FOLDER, FILES = "cifar-100-python.tar.gz", "cifar-100-python", ("train", "test")
ACCEPTED = f"{ARCHIVE} of https://www.cs.toronto.edu/~kriz/cifar.html, or its folder"


class CifarImage(NamedTuple):
    """An image in one of the two arrays."""

    path: str
    row: int


def build(folder: Path, source: Path, name: str, lists: dict[Split, str], level: str) -> ImagePool:
    """A pool of CIFAR-100. The lists are of classes ("fine") or of superclasses ("coarse")."""
    parts = {part: _part(source, part) for part in ("meta", *FILES)}
    listed: dict[str, Split] = {
        each: split for split, text in lists.items() for each in text.split()
    }
    rows: dict[tuple[str, str], list[CifarImage]] = {}
    images: dict[str, NDArray[np.uint8]] = {}
    with reading(source, "get CIFAR-100 for Python again"):
        coarse_names, fine_names = (parts["meta"][f"{k}_label_names"] for k in ("coarse", "fine"))
        for file in FILES:
            part, path = parts[file], str(source / file)
            images[path] = np.asarray(part["data"], np.uint8).reshape(-1, 3, SIDE, SIDE)
            labels = zip(part["coarse_labels"], part["fine_labels"], strict=True)
            for (coarse, fine), index in zip(labels, range(len(images[path])), strict=True):
                kind = str(coarse_names[coarse]), str(fine_names[fine])
                rows.setdefault(kind, []).append(CifarImage(path, index))
    planned = [
        PlannedClass(
            fine, coarse, listed.get({"fine": fine, "coarse": coarse}[level], "train"), tuple(own)
        )
        for (coarse, fine), own in sorted(rows.items())
    ]
    planned.sort(key=lambda c: SPLITS.index(c.split))

    def read(image: CifarImage) -> NDArray[np.uint8]:
        pixels: NDArray[np.uint8] = images[image.path][image.row]
        return pixels

    about = {"form": "CIFAR-100, training images first", "prepared": "32x32 RGB, as published"}
    return build_pool(folder, PoolPlan(name, (3, SIDE, SIDE), planned, read, about))


def _part(source: Path, part: str) -> Any:
    """A file of CIFAR-100, from its folder or from the archive."""
    for path in (source / part, source / FOLDER / part):
        if path.is_file():
            return safe_pickles.load(path)
    archive = source / ARCHIVE
    if not archive.is_file():
        raise InputError(f"no CIFAR-100 in {source}: it needs {ACCEPTED}")
    with reading(archive, "get it again"), tarfile.open(archive, "r:gz") as opened:
        return safe_pickles.load(archive, opened.extractfile(f"{FOLDER}/{part}"))
