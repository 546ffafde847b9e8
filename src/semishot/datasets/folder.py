"""Your own images: a tree class/image, split/class/image or group/class/image becomes a pool."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from semishot.data.decoding import EXTENSIONS, decode
from semishot.data.framing import Whole, is_drawing
from semishot.data.image_sources import ImageSource, WholeFile, read_bytes, walk
from semishot.data.pool import SPLITS, ImagePool, Split
from semishot.data.pool_builder import PlannedClass, PoolPlan, build_pool
from semishot.data.splits import random_words, uniforms
from semishot.errors import InputError
from semishot.system.files import real_path
from semishot.system.progress import track

FRAMING = Whole
LAYOUTS = "class/image, split/class/image or group/class/image"
ACCEPTED = f"images as {LAYOUTS}"
UNGROUPED = "all"
"""The group of every class if the tree has no groups."""
VAL_PERCENT, TEST_PERCENT = 16, 20  # of the classes or groups: 64/16/20, as in miniImageNet
PHOTOGRAPH, DRAWING = 84, 28  # pixels along a side
SIZES = range(16, 513)
"""The sides that may be asked for: four poolings need 16 pixels."""
ALMOST_SPLITS = {"training", "valid", "validation", "dev", "testing", "eval", "evaluation"}


@dataclass
class Tree:
    """A folder's content: the path of each class folder, in parts -> its images; and other files."""

    classes: dict[tuple[str, ...], list[str]] = field(default_factory=dict)
    ignored: int = 0


def prepare(folder: Path, source: Path, size: int | None = None) -> ImagePool:
    """Build the pool in `folder`, whose name it takes, from the images below `source`.

    size: the side in pixels. None: 28 if all images are drawings, else 84.
    """
    if size is not None and size not in SIZES:
        raise InputError(f"--size must be from {SIZES.start} to {SIZES.stop - 1}, not {size}")
    source = real_path(source)  # an interrupted build continues only with the same files
    tree = read_tree(source)
    layout = find_layout(tree, source)
    classes = plan(tree, layout, source)
    paths = [image.path for planned in classes for image in planned.sources]
    looked_at = track(paths, "looking at the images", len(paths))
    drawings = all(is_drawing(read_bytes(WholeFile(path)), path) for path in looked_at)
    side, channels = size or (DRAWING if drawings else PHOTOGRAPH), 1 if drawings else 3
    about = {
        "data_set": "folder",
        "source": str(source),
        "layout": f"{layout}/image",
        "ignored": tree.ignored,
        "splits": "as given" if layout == "split/class" else "64/16/20 %, shuffled with seed 0",
        "prepared": f"{side}x{side} Pillow bilinear, {'gray' if drawings else 'RGB'}",
    }
    read = partial(read_image, side=side, channels=channels)
    return build_pool(folder, PoolPlan(folder.name, (channels, side, side), classes, read, about))


def describe(pool: ImagePool) -> list[str]:
    """What the pool holds."""
    about = pool.about
    groups = {c.group for c in pool.classes} - {UNGROUPED}
    return [
        f"{about['layout']} below {about['source']}, splits {about['splits']}",
        *([f"{len(groups):,} groups"] if groups else []),
        f"{about['prepared']}; {about['ignored']:,} hidden or other files ignored",
    ]


def read_tree(source: Path) -> Tree:
    """Every image below `source`, at any depth, sorted."""
    tree = Tree()
    for entry in walk(source, hidden=True):
        path = entry.path
        if entry.hidden or (path.suffix.lower() not in EXTENSIONS and not path.is_dir()):
            tree.ignored += not path.is_dir()
        elif entry.problem:
            raise InputError(f"{path}: {entry.problem}; remove it")
        else:
            tree.classes.setdefault(path.relative_to(source).parts[:-1], []).append(path.name)
    for parts, images in tree.classes.items():
        images.sort()
        where = str(source.joinpath(*parts))
        _check_names(where, images)
        if len(parts) > 2:
            raise InputError(f"{where}/{images[0]} is too deep: {source} is not a tree {LAYOUTS}")
    return tree


def _check_names(where: str, images: Sequence[str]) -> None:
    for path in (f"{where}/{name}" for name in images):
        try:
            path.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{path!a} has a name that is not UTF-8; rename it") from error


def find_layout(tree: Tree, source: Path) -> str:
    """`class`, `split/class` or `group/class`: what the folders above the images are."""
    example: dict[int, str] = {}
    for parts, images in tree.classes.items():
        example.setdefault(len(parts), "/".join((*parts, images[0])))
    if not example:
        raise InputError(
            f"no images below {source} ({tree.ignored:,} other files); it must be a tree {LAYOUTS}"
        )
    if len(example) > 1:
        shown = " and ".join(example[depth] for depth in sorted(example))
        raise InputError(f"{source} mixes levels, {shown}; make it one tree {LAYOUTS}")
    if 0 in example:
        raise InputError(f"{source} has images in no class, {example[0]}; make it a tree {LAYOUTS}")
    top = {parts[0] for parts in tree.classes}
    like_splits = {name for name in top if name.lower() in {*SPLITS, *ALMOST_SPLITS}}
    if 1 in example:
        if like_splits == top:  # one class may be called train, but not all of them
            raise InputError(
                f"{source} has images in a split but in no class, {example[1]}; make it a tree "
                "split/class/image"
            )
        return "class"
    if not like_splits:
        return "group/class"
    if not {"train", "test"} <= top <= set(SPLITS):
        raise InputError(
            f"{source} holds {', '.join(sorted(like_splits))} and {len(top - like_splits)} other "
            "folders; a tree of splits holds train, test and perhaps val: rename, add or move them"
        )
    return "split/class"


def plan(tree: Tree, layout: str, source: Path) -> list[PlannedClass]:
    """The classes, by group and name, or by split and name if splits are given."""
    if layout == "split/class":
        split_of = _given_splits(tree, source)
    else:
        units = sorted({parts[0] for parts in tree.classes})
        split_of = dict(zip(units, portable_split(units, layout, source), strict=True))
    planned = [
        PlannedClass(
            name=parts[-1],
            group=parts[0] if layout == "group/class" else UNGROUPED,
            split=split_of[parts[0]],
            sources=tuple(WholeFile(str(source.joinpath(*parts, image))) for image in images),
        )
        for parts, images in tree.classes.items()
    ]
    by_split = layout == "split/class"
    return sorted(planned, key=lambda c: (SPLITS.index(c.split) * by_split, c.group, c.name))


def _given_splits(tree: Tree, source: Path) -> dict[str, Split]:
    first: dict[str, str] = {}
    for split, name in sorted(tree.classes):
        if name in first:
            raise InputError(
                f"class {name} is in {first[name]} and in {split} of {source}, but new classes are "
                "what a split tests; join its images in one class, or make it a tree class/image"
            )
        first[name] = split
    return {split: split for split in SPLITS}


def portable_split(units: Sequence[str], layout: str, source: Path) -> list[Split]:
    """A split for each class or group: 64/16/20 %, the same on every machine."""
    count = len(units)
    kind = layout.split("/")[0]
    if count < 2:
        raise InputError(
            f"{source} has {count} {kind}, {units[0]}; at least 2 are needed, for train and for test"
        )
    test = max(1, (TEST_PERCENT * count + 50) // 100)
    val = (VAL_PERCENT * count + 50) // 100
    order = np.argsort(uniforms(random_words(0, "folder split", 0, count)), kind="stable")
    sizes: dict[Split, int] = {"test": test, "val": val, "train": count - test - val}
    drawn = [split for split, size in sizes.items() for _ in range(size)]
    split_at = dict(zip(order.tolist(), drawn, strict=True))
    return [split_at[index] for index in range(count)]


def read_image(source: ImageSource, side: int, channels: int) -> NDArray[np.uint8]:
    return decode(read_bytes(source), source.name, side, channels)
