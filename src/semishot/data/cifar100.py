"""CIFAR-100 from its archive, 100 classes of 600 photographs of 32x32: two data sets split it differently."""

import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from semishot.data import safe_pickles
from semishot.data.pool import SPLITS, ImageClass, ImagePool, Split, save_pool
from semishot.errors import InputError
from semishot.system.files import reading

SIDE = 32
ARCHIVE, FOLDER, FILES = "cifar-100-python.tar.gz", "cifar-100-python", ("train", "test")
ACCEPTED = f"{ARCHIVE} of https://www.cs.toronto.edu/~kriz/cifar.html, or its folder"


def build(folder: Path, source: Path, name: str, lists: dict[Split, str], level: str) -> ImagePool:
    """A pool of CIFAR-100. The lists are of classes ("fine") or of superclasses ("coarse")."""
    meta, *files = (_part(source, part) for part in ("meta", *FILES))
    split_of = {each: SPLITS.index(split) for split in lists for each in lists[split].split()}
    rows: dict[tuple[int, str, str], list[int]] = {}
    with reading(source, "get CIFAR-100 for Python again"):
        images = np.concatenate([np.asarray(part["data"], np.uint8) for part in files])
        images = images.reshape(-1, 3, SIDE, SIDE)
        coarse, fine = (
            [
                str(meta[f"{kind}_label_names"][label])
                for p in files
                for label in p[f"{kind}_labels"]
            ]
            for kind in ("coarse", "fine")
        )
        for row, group, label in zip(range(len(images)), coarse, fine, strict=True):
            split = split_of.get(label if level == "fine" else group, SPLITS.index("train"))
            rows.setdefault((split, group, label), []).append(row)
    classes: list[ImageClass] = []
    order: list[int] = []
    for (split, group, label), own in sorted(rows.items()):
        classes.append(ImageClass(label, group, SPLITS[split], len(order), len(own)))
        order += own
    about = {"form": "CIFAR-100, training images first", "prepared": "32x32 RGB, as published"}
    return save_pool(folder, name, images[order], classes, about)


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
