"""Your own images: a tree class/image, split/class/image or group/class/image becomes a pool."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from semishot.data.decoding import AGAIN, decode, header
from semishot.data.pool import SPLITS, ImagePool, Split
from semishot.data.pool_builder import PlannedClass, build_pool
from semishot.data.splits import random_words, uniforms
from semishot.errors import InputError
from semishot.system.files import read_regular
from semishot.system.progress import track

__all__ = ["describe", "prepare"]

LAYOUTS = "class/image, split/class/image or group/class/image"
# fmt: off
EXTENSIONS = {
    ".jpg", ".jpeg", ".jpe", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp",
    ".ppm", ".pgm", ".pbm", ".pnm",
}
# fmt: on
UNGROUPED = "all"
"""The group of every class where the tree has none."""
VAL_PERCENT, TEST_PERCENT = 16, 20  # of the classes or groups; miniImageNet's 64/16/20
PHOTOGRAPH, DRAWING = (3, 84, 84), (1, 28, 28)
MOST_BYTES = 64 * 2**20  # of one image file
LARGEST_DRAWING = 32  # pixels a side
DEEPEST = 64  # folders below the source, most of them hidden or empty
ALMOST_SPLITS = {"training", "valid", "validation", "dev", "testing", "eval", "evaluation"}


@dataclass
class Tree:
    """What lies below a folder: class folders as parts below it -> images, sorted, and the rest."""

    classes: dict[tuple[str, ...], list[str]] = field(default_factory=dict)
    ignored: int = 0


def prepare(folder: Path, source: Path | None = None) -> ImagePool:
    """Build the pool in `folder` from the images below `source`, in whichever layout they lie."""
    if source is None:
        raise InputError(f"pass --source FOLDER, a tree {LAYOUTS}")
    if not source.is_dir():
        raise InputError(f"{source} is not a folder; --source is a tree {LAYOUTS}")
    source = source.resolve()  # a killed build goes on only with the same files
    tree = read_tree(source)
    layout = find_layout(tree, source)
    classes = plan(tree, layout, source)
    shape = common_shape([image for planned in classes for image in planned.sources])
    about = {
        "source": str(source),
        "layout": f"{layout}/image",
        "ignored": tree.ignored,
        "splits": "as given" if layout == "split/class" else "64/16/20 %, shuffled with seed 0",
        "prepared": f"{shape[1]}x{shape[2]} Pillow bilinear, {'RGB' if shape[0] == 3 else 'gray'}",
    }
    read = partial(read_image, side=shape[1], channels=shape[0])
    return build_pool(folder, "folder", shape, classes, read, about)


def describe(pool: ImagePool) -> list[str]:
    """What the pool holds, for people."""
    about = pool.about
    groups = {c.group for c in pool.classes} - {UNGROUPED}
    return [
        f"{about['layout']} below {about['source']}, splits {about['splits']}",
        *([f"{len(groups):,} groups"] if groups else []),
        f"{about['prepared']}; {about['ignored']:,} hidden or other files ignored",
    ]


def read_tree(source: Path) -> Tree:
    """Every image below `source`, wherever it lies; never in the order of the directory."""
    tree = Tree()
    seen: dict[tuple[bool, int, int], str] = {}
    for where, folders, files in os.walk(source, onerror=_unreadable, followlinks=True):
        parts = Path(where).relative_to(source).parts
        hidden, about = _is_hidden(*parts), Path(where).stat()
        first = seen.setdefault((hidden, about.st_dev, about.st_ino), where)
        if first != where and hidden:
            folders.clear()
            continue
        if first != where:  # a link to a folder above would never end, one beside doubles a class
            raise InputError(f"{where} is {first} once more; remove the link")
        if len(parts) > DEEPEST:
            raise InputError(f"{where} lies too deep: {source} is no tree {LAYOUTS}")
        folders.sort()
        images = sorted(name for name in files if _is_image(name) and not hidden)
        tree.ignored += len(files) - len(images)
        if not images:
            continue
        _check_names(where, images)
        if len(parts) > 2:
            raise InputError(f"{where}/{images[0]} lies too deep: {source} is no tree {LAYOUTS}")
        tree.classes[parts] = images
    return tree


def _is_hidden(*parts: str) -> bool:
    """What a desktop or a version control leaves behind."""
    return any(part.startswith(".") or part == "__MACOSX" for part in parts)


def _is_image(name: str) -> bool:
    return Path(name).suffix.lower() in EXTENSIONS and not _is_hidden(name)


def _check_names(where: str, images: Sequence[str]) -> None:
    for path in (f"{where}/{name}" for name in images):
        try:
            path.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{path!a} has a name that is not UTF-8; rename it") from error


def _unreadable(error: OSError) -> NoReturn:
    raise InputError(f"cannot list {error.filename} ({error.strerror})") from error


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
        if like_splits == top:  # a class may be called train, but hardly all of them
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
    """The classes, by group and name, or by split and name where splits are given."""
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
            sources=tuple(str(source.joinpath(*parts, image)) for image in images),
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
    return [split_at[place] for place in range(count)]


def common_shape(sources: Sequence[str]) -> tuple[int, int, int]:
    """(C, H, W): that of drawings if all images are small and gray, else that of photographs."""
    return DRAWING if all(_are_drawings(sources)) else PHOTOGRAPH


def _are_drawings(sources: Sequence[str]) -> Iterator[bool]:
    for source in track(sources, "looking at the images", len(sources)):
        width, height, gray = header(_bytes(source), source)
        yield gray and max(width, height) <= LARGEST_DRAWING


def read_image(source: str, side: int, channels: int) -> NDArray[np.uint8]:
    return decode(_bytes(source), source, side, channels)


def _bytes(source: str) -> bytes:
    try:
        return read_regular(Path(source), MOST_BYTES)
    except InputError as error:
        raise InputError(f"{error}; {AGAIN}") from error
    except OSError as error:
        raise InputError(f"cannot read {source} ({error.strerror})") from error
