"""Which of a user's files to read: the images in folders, and the labels that folders give."""

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from semishot.data.decoding import EXTENSIONS
from semishot.data.image_sources import walk
from semishot.errors import InputError, printable
from semishot.system.files import real_path, real_place

NUMBERS = {"-1": "unlabeled", "-2": "strangers"}
"""What these numbers mean as labels in Python: they are not the names of classes."""
STRANGER = "stranger"
"""Reserved: the folder, and the label in a table, of images that belong to none of the classes."""
LONGEST_NAME = 100
"""The most characters of a class's name."""

HEIC = {".heic", ".heif"}
# fmt: off
TO_CONVERT = {".heic", ".heif", ".avif", ".jxl", ".jp2", ".svg", ".psd", ".cr2", ".nef", ".arw", ".dng"}
# fmt: on
ARCHIVES = {".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar"}


@dataclass(frozen=True)
class Item:
    """An image, or a row of features."""

    shown: str
    """How it is shown: the path as given, or the number of the row."""
    label: str | None = None
    """Its class, or `stranger`; None: to be found."""
    path: Path | None = None
    """Where it is now."""
    of_pile: bool = False
    """Whether `--apply` sorts it: it may have a label all the same, by a correction."""
    home: Path | None = None
    """Of a file that was moved by `--apply move`: where it came from."""
    digest: bytes = b""
    """SHA-256 of the file, when it has been read."""

    @property
    def source(self) -> Path | None:
        """The one name of its file before anything was sorted; None for a row of features."""
        return self.home or (real_place(self.path) if self.path else None)


class Skipped(NamedTuple):
    shown: str
    reason: str


@dataclass
class Listing:
    """Labeled items first, then the others; skipped files; and notes for the user."""

    items: list[Item] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    corrections: dict[str, str] = field(default_factory=dict)
    """What the column `correct` of a table says of some of them, by how they are shown."""


def from_folders(
    labeled: Path | None,
    pile: Iterable[Path],
    apart: Iterable[Path] = (),
    moved: Mapping[Path, Path] | None = None,
) -> Listing:
    """Images below labeled/CLASS with that label, and images below each of `pile`, or files in it, without.

    A folder inside another of these, or inside `apart`, is not part of that other one. Files of the pile
    that a sorting has moved, from source to target, are listed where they were.
    """
    listing, folders = Listing(), [*([labeled] if labeled else []), *pile]
    ends, filled = {real_path(folder) for folder in [*folders, *apart]}, set[str]()
    if labeled is not None:
        _check_labeled(labeled, folders[1:])
    for folder in folders:
        root = real_path(folder)
        entries = walk(folder, ends - {root}) if folder.exists() else ()
        for entry in entries:
            label, reason = None, entry.problem or _reason_to_skip(entry.path)
            if folder == labeled and not entry.problem:
                label, *inside = entry.path.relative_to(folder).parts
                reason = reason if inside else "is not in the folder of a class"
            if reason:
                listing.skipped.append(Skipped(str(entry.path), reason))
                continue
            if label is not None:
                filled.add(label)
                label = as_label(label)
            listing.items.append(Item(str(entry.path), label, entry.path, label is None))
        for source, target in (moved or {}).items():
            if folder != labeled and source.is_relative_to(root):
                shown = str(folder / source.relative_to(root))
                listing.items.append(Item(shown, None, target, of_pile=True, home=source))
    if moved:
        listing.items.sort(key=lambda i: (i.of_pile, Path(i.shown).parts if i.of_pile else ()))
    for path in sorted(labeled.iterdir()) if labeled else ():
        empty = path.name not in filled and real_path(path) not in ends
        if empty and path.is_dir() and not path.name.startswith("."):
            listing.notes.append(f"class {printable(path.name)} has no images: left out")
    return listing


def to_unpack(path: Path) -> str:
    """What to do if this is an archive of images, to be said after what is wrong."""
    return ", but an archive: unpack it first" if path.suffix.lower() in ARCHIVES else ""


def _check_labeled(labeled: Path, pile: Iterable[Path]) -> None:
    if not labeled.is_dir():
        raise InputError(
            f"--labeled {labeled} is not a folder{to_unpack(labeled)}; it holds one folder of images per "
            "class, or is a .csv of path,label, or .npy features"
        )
    if real_path(labeled) in map(real_path, pile):
        raise InputError(f"--labeled and --unlabeled are both {labeled}; they must be two folders")


def _reason_to_skip(path: Path) -> str:
    """Why a file cannot be an image, by its name."""
    ending = path.suffix.lower()
    if ending in TO_CONVERT - EXTENSIONS:
        install = ", or pip install 'semishot[heic]' (with GPL code)" if ending in HEIC else ""
        return f"{ending} files cannot be read; convert it to JPEG or PNG{install}"
    if ending in ARCHIVES:
        return f"is not an image{to_unpack(path)}"
    # without an extension, it may be an image
    return "the file name has no image extension" if ending and ending not in EXTENSIONS else ""


def as_label(text: str) -> str:
    """The name of a class as it is kept, one printable line; `stranger` in any case; or nothing."""
    words = " ".join(unicodedata.normalize("NFC", text).split())
    shown = "".join(c if c.isprintable() else "?" for c in words)
    name = shown[:LONGEST_NAME].rstrip() or (text and "?")
    if name in NUMBERS:
        raise InputError(
            f"a class is called {name}, which elsewhere means {NUMBERS[name]}: give it another name, leave "
            f"the label of an unlabeled image empty, and call images of no class {STRANGER}"
        )
    return STRANGER if name.casefold() == STRANGER else name
