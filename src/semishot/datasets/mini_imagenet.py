"""miniImageNet: 100 classes x 600 photographs, 84x84, in the split of Ravi and Larochelle.

The images come from the files that the Ravi csv files name, from ILSVRC-12, or from the cached pickles.

How a csv name such as `n0153282900000005.jpg` (class n01532829, number 5) finds its ILSVRC file:

- Known: the number is not an ILSVRC number: those have up to five digits, and here none exceeds 1,300,
  the size of the largest class. It counts the files of the class, from 1.
- Assumed: they are counted in the natural order of their names, n01532829_3.JPEG before
  n01532829_26.JPEG, and the class is complete. The authors never published the order; the public
  generators of miniImageNet (gitabcworld, yaoyao-liu/mini-imagenet-tools) use this one. If it is
  wrong, a class gets 600 other images of the same class: a valid data set, but a different one.
"""

import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semishot.data import safe_pickles
from semishot.data.decoding import decode
from semishot.data.framing import Whole
from semishot.data.image_sources import (
    ILSVRC_TAR,
    REMEDY,
    ImageSource,
    WholeFile,
    ZipMember,
    ilsvrc_files,
    read_bytes,
    walk,
)
from semishot.data.pool import SPLITS, ImagePool, Split
from semishot.data.pool_builder import PlannedClass, PoolPlan, Read, Source, build_pool
from semishot.data.settings import Lists, preparation
from semishot.errors import InputError
from semishot.system.files import reading
from semishot.system.tables import read_rows

CLASSES: dict[Split, int] = {"train": 64, "val": 16, "test": 20}
IMAGES = 600  # per class
SIDE = 84
PICKLE = "mini-imagenet-cache-{}.pkl"
ACCEPTED = (
    "{train,val,test}.csv (filename,label) beside an images/ folder, zips of it, an ILSVRC-12 "
    f"training tree or {ILSVRC_TAR}; or {PICKLE.format('{train,val,test}')}"
)
FRAMING = Whole
Named = dict[Split, dict[str, list[str]]]
"""split -> class -> the names of its images in the csv."""
Listed = dict[Split, dict[str, Sequence[Source]]]
"""split -> class -> its images."""


def prepare(
    folder: Path,
    source: Path,
    splits: tuple[Split, ...] = ("train", "val", "test"),
    lists: Lists = "usual",
) -> ImagePool:
    """Build the pool in `folder` from any form of miniImageNet in `source`."""
    taken = [split for split in SPLITS if split in splits]
    if lists == "swapped" and len(taken) < len(SPLITS):
        raise InputError("--lists swapped exchanges classes of all three lists; drop --splits")
    pickled = [split for split in taken if (source / PICKLE.format(split)).is_file()]
    if pickled == taken or (pickled and not any((source / f"{s}.csv").is_file() for s in taken)):
        _check_present(taken, pickled, f"no {PICKLE} in {source}")
        return _prepare_pickles(folder, source, taken, lists)
    named = _read_csvs(source, taken)
    if pictures := _pictures(source, named):
        listed, form = _by_name(source, named, pictures), "the image files of the Ravi csv"
    else:
        listed, form = _by_rank(source, named), "ILSVRC-12 by rank, see mini_imagenet.py"
    return _build(folder, listed, form, lists)


def describe(pool: ImagePool) -> list[str]:
    """What the pool holds."""
    return [
        f"{len(pool.classes)} classes of {IMAGES} photographs",
        str(pool.about["variant"]),
        f"from {pool.about['form']}",
    ]


def read(source: ImageSource) -> NDArray[np.uint8]:
    """One image (3, 84, 84); called in many threads."""
    return decode(read_bytes(source), source.name, SIDE)


def _build(folder: Path, listed: Listed, form: str, lists: Lists, read: Read = read) -> ImagePool:
    if lists == "swapped":
        listed = {"train": listed["train"], "val": listed["test"], "test": listed["val"]}
    planned = [
        PlannedClass(name, name, split, tuple(sources))
        for split, classes in listed.items()
        for name, sources in sorted(classes.items())
    ]
    absent = [split for split in SPLITS if split not in listed]
    about = {
        "form": form,
        "images": sum(len(p.sources) for p in planned),
        "variant": "miniImageNet, Ravi split, "
        + (f"without {' and '.join(absent)}" if absent else "complete")
        + (", validation and test classes exchanged" if lists == "swapped" else ""),
        "prepared": "84x84 RGB, Pillow bilinear where it was larger",
    }
    if unusual := preparation("mini-imagenet", lists=lists):
        about["preparation"] = unusual
    return build_pool(folder, PoolPlan("mini-imagenet", (3, SIDE, SIDE), planned, read, about))


def _read_csvs(source: Path, taken: Sequence[Split]) -> Named:
    present = [split for split in taken if (source / f"{split}.csv").is_file()]
    if not present:
        raise InputError(f"no files of miniImageNet in {source}: it needs {ACCEPTED}")
    _check_present(taken, present, f"no {{}}.csv in {source}")
    named: Named = {split: _read_csv(source / f"{split}.csv") for split in taken}
    for split, classes in named.items():
        _check_counts(split, classes, source / f"{split}.csv")
    _check_disjoint(named, source)
    return named


def _read_csv(path: Path) -> dict[str, list[str]]:
    """class -> file names, in the order of the file."""
    classes: dict[str, list[str]] = {}
    with reading(path, REMEDY):
        rows = read_rows(path)
        _, columns = next(rows, (0, []))
        if not {"filename", "label"} <= set(columns):
            raise InputError(
                f"{path} has the columns {','.join(columns)[:200]}, not filename,label; "
                "get the csv of https://github.com/twitter/meta-learning-lstm"
            )
        for line, cells in rows:
            row = dict(zip(columns, cells, strict=False))
            if not row.get("filename") or not row.get("label"):
                raise InputError(f"{path}, line {line}: no filename or no label")
            classes.setdefault(row["label"], []).append(row["filename"])
    return classes


def _check_counts(split: Split, classes: Mapping[str, Sequence[object]], path: Path) -> None:
    if len(classes) != CLASSES[split]:
        raise InputError(
            f"{path} has {len(classes)} classes, not the {CLASSES[split]} of the Ravi split; "
            "the split of Vinyals et al. is different"
        )
    for name, images in classes.items():
        if len(images) != IMAGES or len(set(images)) != IMAGES:
            raise InputError(
                f"{path}: class {name} has {len(set(images))} different images in {len(images)} "
                f"entries, not {IMAGES} in {IMAGES}; get the file again"
            )


def _check_disjoint(listed: Mapping[Split, Iterable[str]], source: Path) -> None:
    home: dict[str, Split] = {}
    for split, classes in listed.items():
        for name in classes:
            if home.setdefault(name, split) != split:
                raise InputError(f"class {name} is in both {home[name]} and {split} of {source}")


def _check_present(taken: Sequence[Split], present: Sequence[Split], problem: str) -> None:
    """Raise unless all splits taken are present; `problem` has a placeholder for the missing split."""
    for split in taken:
        if split not in present:
            instead = f", or pass --splits {','.join(present)}" if present else ""
            raise InputError(f"{problem.replace('{}', split, 1)}; add what is missing{instead}")


# The files that the csv files name


def _pictures(source: Path, named: Named) -> dict[str, ImageSource]:
    """File name -> where it is, for the names in the csv files: in a zip, or anywhere below images/."""
    wanted = {name for classes in named.values() for names in classes.values() for name in names}
    pictures: dict[str, ImageSource] = {}
    for path in sorted(p for p in source.glob("*.zip") if p.is_file()):
        with reading(path, REMEDY), zipfile.ZipFile(path) as opened:
            members = opened.namelist()
        for member in members:
            if (name := member.rsplit("/", 1)[-1]) in wanted:
                pictures[name] = ZipMember(str(path), member)
    for path in (entry.path for entry in walk(source / "images") if not entry.problem):
        if path.name in wanted:
            pictures[path.name] = WholeFile(str(path))
    return pictures


def _by_name(source: Path, named: Named, pictures: Mapping[str, ImageSource]) -> Listed:
    missing = {
        split: [name for names in classes.values() for name in names if name not in pictures]
        for split, classes in named.items()
    }
    present = [s for s in named if len(missing[s]) < CLASSES[s] * IMAGES]
    _check_present(list(named), present, f"the images of {{}}.csv are absent from {source}")
    for split, names in missing.items():
        if names:
            raise InputError(
                f"{len(names):,} of {CLASSES[split] * IMAGES:,} images of {split}.csv are absent "
                f"from {source}, such as {names[0]}; get its images again"
            )
    return {
        split: {label: [pictures[name] for name in names] for label, names in classes.items()}
        for split, classes in named.items()
    }


# ILSVRC-12


def _by_rank(source: Path, named: Named) -> Listed:
    files = ilsvrc_files(source, {label for classes in named.values() for label in classes})
    if not files:
        raise InputError(f"{source} has csv files but no images: it needs {ACCEPTED}")
    present = [split for split, classes in named.items() if not files.keys().isdisjoint(classes)]
    _check_present(list(named), present, f"the classes of {{}}.csv are absent from {source}")
    return {
        split: {
            label: [_ranked(files.get(label, []), name, label, source) for name in names]
            for label, names in classes.items()
        }
        for split, classes in named.items()
    }


def _ranked(files: Sequence[ImageSource], name: str, label: str, source: Path) -> ImageSource:
    number = re.fullmatch(re.escape(label) + r"(\d{8})\.jpe?g", name)
    if number is None or int(number[1]) == 0:
        raise InputError(f"{name} is not {label} and a number from 00000001; get the Ravi csv")
    rank = int(number[1])
    if rank > len(files):
        raise InputError(
            f"{name} is file {rank:,} of class {label}, but {source} has {len(files):,}; "
            "get the complete ILSVRC-12 training images"
        )
    return files[rank - 1]


# The cached pickles


class PickledImage(NamedTuple):
    path: str
    row: int
    """Of its array."""


def _prepare_pickles(folder: Path, source: Path, taken: Sequence[Split], lists: Lists) -> ImagePool:
    """From arrays in memory: up to 1.3 GB for all three splits."""
    listed: Listed = {}
    arrays: dict[str, NDArray[np.uint8]] = {}
    for split in taken:
        path = source / PICKLE.format(split)
        arrays[str(path)], classes = _read_pickle(path)
        _check_counts(split, classes, path)
        listed[split] = {
            label: [PickledImage(str(path), row) for row in rows] for label, rows in classes.items()
        }
    _check_disjoint(listed, source)

    def read_row(image: PickledImage) -> NDArray[np.uint8]:
        pixels: NDArray[np.uint8] = arrays[image.path][image.row]
        return pixels.transpose(2, 0, 1)

    return _build(folder, listed, "the cached pickles", lists, read_row)


def _read_pickle(path: Path) -> tuple[NDArray[np.uint8], dict[str, list[int]]]:
    """`image_data` (I, 84, 84, 3) and `class_dict` {class: rows}, checked."""
    content: Any = safe_pickles.load(path)
    if not isinstance(content, dict) or not {"image_data", "class_dict"} <= content.keys():
        keys = ", ".join(map(str, content)) if isinstance(content, dict) else type(content).__name__
        raise InputError(f"{path} holds {keys[:100]}, not image_data and class_dict")
    images = np.asarray(content["image_data"])
    with reading(path, REMEDY):
        classes = {str(k): [int(i) for i in rows] for k, rows in content["class_dict"].items()}
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (SIDE, SIDE, 3):
        raise InputError(
            f"{path}: image_data is {images.dtype} {images.shape}, not uint8 (I, {SIDE}, {SIDE}, 3)"
        )
    if not all(0 <= row < len(images) for rows in classes.values() for row in rows):
        raise InputError(
            f"{path}: class_dict names an image beyond the {len(images):,} of image_data"
        )
    return images, classes
