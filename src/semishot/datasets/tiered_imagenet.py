"""tieredImageNet: 608 classes of ILSVRC-12 in 34 categories, 84x84; a category has one split.

The images come from ILSVRC-12, all files of each class, or from the files of the paper's authors:

- `*_images_png.pkl`, PNGs, which OpenCV wrote from BGR, so that other readers see RGB.
- `*_labels.pkl`, which name a class in words; `class_names.txt` and `synsets.txt` beside them give
  its WordNet id. Their categories (`label_general`) are wrong; the list of classes is used instead.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.data import safe_pickles
from semishot.data.decoding import decode
from semishot.data.framing import Whole
from semishot.data.image_sources import (
    ILSVRC_TAR,
    REMEDY,
    ByteRange,
    ImageSource,
    ilsvrc_files,
    read_bytes,
)
from semishot.data.pool import SPLITS, ImagePool, Split
from semishot.data.pool_builder import PlannedClass, PoolPlan, build_pool
from semishot.errors import InputError
from semishot.system.files import own_text, read_regular, reading

CLASSES = Path(__file__).with_name("tiered_imagenet_classes.txt")
"""A line for each category: its split, its WordNet id, and those of its classes (Appendix B)."""
HIERARCHY = Path(__file__).with_name("tiered_imagenet_hierarchy.txt")
"""The categories with their names, indented below what WordNet calls their kinds."""
TABLE4: dict[Split, tuple[int, int]] = {
    "train": (351, 448_695),
    "val": (97, 124_261),
    "test": (160, 206_209),
}
"""Classes and images of each split."""
SIDE = 84
FRAMING = partial(Whole, bicubic=True)
MOST_TEXT = 2**20  # bytes
PNG = b"\x89PNG\r\n\x1a\n"
LABELS, PNGS = "{}_labels.pkl", "{}_images_png.pkl"
NAMES, IDS = "class_names.txt", "synsets.txt"
ACCEPTED = (
    f"an ILSVRC-12 training tree, its classes' tars or {ILSVRC_TAR}; or the authors' "
    f"{PNGS.format('{train,val,test}')} with {LABELS.format('*')}, {NAMES} and {IDS}"
)


def prepare(folder: Path, source: Path, partial: bool = False) -> ImagePool:
    """Build the pool in `folder` from `source`; `partial` accepts one that lacks classes."""
    known = class_list()
    if any((source / LABELS.format(split)).is_file() for split in SPLITS):
        form, read_one = "the authors' published files", read_pickled
        files = _published(source, known)
    else:
        form, read_one = "the ILSVRC-12 training images", read
        files = ilsvrc_files(source, [c.name for c in known])
    planned = [replace(c, sources=tuple(files[c.name])) for c in known if files.get(c.name)]
    missing = [c for c in known if c.name not in {p.name for p in planned}]
    if not planned:
        raise InputError(f"no files of tieredImageNet in {source}: it needs {ACCEPTED}")
    if missing and not partial:
        raise InputError(
            f"{source} lacks {len(missing)} of tieredImageNet's {len(known)} classes, first "
            f"{missing[0].name} of {missing[0].split}; add them, or pass --partial to go without"
        )
    about = {"form": form, "prepared": "84x84 RGB, Pillow bicubic where it was larger"}
    return build_pool(
        folder, PoolPlan("tiered-imagenet", (3, SIDE, SIDE), planned, read_one, about)
    )


def class_list() -> list[PlannedClass]:
    """The 608 classes by split, category and WordNet id, without images."""
    rows = [line.split() for line in own_text(CLASSES).splitlines()]
    return [
        PlannedClass(name, category, split, ())
        for split in SPLITS
        for its_split, category, *names in rows
        if its_split == split
        for name in names
    ]


def describe(pool: ImagePool) -> list[str]:
    """What the pool holds: which variant, and how it differs from Table 4."""
    categories = len({c.group for c in pool.classes})
    lines = [f"{len(pool.classes)} classes in {categories} categories, from {pool.about['form']}"]
    differs = False
    for split, (classes, images) in TABLE4.items():
        counts = [c.count for c in pool.classes if c.split == split]
        more = sum(counts) - images
        compared = f"{abs(more):,} {'more' if more > 0 else 'fewer'} than" if more else "as many as"
        counted = f"{split}: {len(counts)} of {classes} classes, {sum(counts):,} images"
        lines.append(f"{counted}, {compared} in Table 4")
        differs |= more != 0
    missing = sum(classes for classes, _ in TABLE4.values()) - len(pool.classes)
    if missing:
        return [*lines, f"partial: {missing} classes are missing; no published number refers to it"]
    return [*lines, "every class, but other images than the paper's" if differs else "complete"]


def is_partial(pool: ImagePool) -> bool:
    """Whether classes are missing: no published number refers to such a pool."""
    return len(pool.classes) < sum(classes for classes, _ in TABLE4.values())


def read(source: ImageSource) -> NDArray[np.uint8]:
    """One image (3, 84, 84)."""
    return decode(read_bytes(source), source.name, SIDE, bicubic=True)


def read_pickled(source: ImageSource) -> NDArray[np.uint8]:
    """One image (3, 84, 84) of the authors' files."""
    data = safe_pickles.unescape(read_bytes(source), PNG)
    return decode(data, source.name, SIDE, bicubic=True)


# The authors' files


def _published(source: Path, known: Sequence[PlannedClass]) -> dict[str, list[ImageSource]]:
    """class -> where its images are, in the order of the files."""
    files: dict[str, list[ImageSource]] = {}
    ids = _ids_of_names(source)
    for split in SPLITS:
        path = source / LABELS.format(split)
        if not path.is_file():
            continue
        labels, names = _labels(path)
        classes: list[str] = []
        own = {c.name for c in known if c.split == split}
        for name in names:
            fitting = own.difference(classes).intersection([name, *ids.get(name, [])])
            if len(fitting) != 1:
                raise InputError(
                    f"{path}: {name!r} is not a {split} class of tieredImageNet, or is there twice; "
                    f"put {NAMES} and {IDS} beside it, as published"
                )
            classes += fitting
        images = _images(source, split)
        if len(images) != len(labels):
            raise InputError(f"{path} has {len(labels):,} labels for {len(images):,} images")
        for label, wnid in enumerate(classes):
            files[wnid] = [images[i] for i in np.flatnonzero(labels == label)]
    return files


def _ids_of_names(source: Path) -> Mapping[str, list[str]]:
    """Name -> WordNet ids; ILSVRC-12 has two classes named crane."""
    ids: dict[str, list[str]] = {}
    if (source / NAMES).is_file() and (source / IDS).is_file():
        names, wnids = (
            read_regular(source / name, MOST_TEXT).decode("latin1").splitlines()
            for name in (NAMES, IDS)
        )
        if len(names) != len(wnids):
            raise InputError(
                f"{source / NAMES} has {len(names)} lines and {IDS} {len(wnids)}; get them again"
            )
        for name, wnid in zip(names, wnids, strict=True):
            ids.setdefault(name.strip(), []).append(wnid.strip())
    return ids


def _labels(path: Path) -> tuple[NDArray[np.integer[Any]], list[str]]:
    """Every image's label, and every label's name."""
    read: Any = safe_pickles.load(path)
    fields = {_text(k): v for k, v in read.items()} if isinstance(read, dict) else {}
    if not {"label_specific", "label_specific_str"} <= fields.keys():
        keys = ", ".join(fields) or type(read).__name__
        raise InputError(f"{path} holds {keys[:100]}, not label_specific and label_specific_str")
    with reading(path, REMEDY):
        labels = np.asarray(fields["label_specific"])
        names = [_text(name) for name in fields["label_specific_str"]]
    count = Counter(labels.tolist()) if labels.ndim == 1 and labels.dtype.kind in "iu" else {}
    if not count or not set(count) <= set(range(len(names))):
        raise InputError(f"{path}: label_specific is not a list of numbers below {len(names)}")
    return labels, names


def _text(value: object) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _images(source: Path, split: Split) -> list[ImageSource]:
    path = source / PNGS.format(split)
    if not path.is_file():
        raise InputError(f"no {path.name} in {source}; put it there")
    return [
        ByteRange(str(path), f"image {index}", start, size)
        for index, (start, size) in enumerate(safe_pickles.find_bytes(path, PNG))
    ]
