"""Which of a user's files to read: the images in folders, and the labels that folders give."""

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

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
    correct: str = ""
    """What the column `correct` of predictions.csv says."""
    home: Path | None = None
    """Of a file that was moved by `--apply move`: where it came from."""

    @property
    def correction(self) -> str:
        """What a predictions.csv corrects it to, now or when it was made."""
        return self.correct or (self.label or "" if self.of_pile else "")

    @property
    def source(self) -> Path | None:
        """The one name of its file before anything was sorted; None for a row of features."""
        return self.home or (real_place(self.path) if self.path else None)


@dataclass(frozen=True)
class Skipped:
    shown: str
    reason: str


@dataclass
class Listing:
    """Labeled items first, then the others; skipped files; and notes for the user."""

    items: list[Item] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def from_folders(labeled: Path | None, pile: Iterable[Path], apart: Iterable[Path] = ()) -> Listing:
    """Images below labeled/CLASS with that label, and images below each of `pile`, or files in it, without.

    A folder inside another of these, or inside `apart`, is not part of that other one.
    """
    pile = list(pile)
    listing = Listing()
    ends = {real_path(folder) for folder in [*pile, *apart, *([labeled] if labeled else [])]}
    if labeled is not None:
        _check_folders(labeled, pile)
        _add_classes(listing, labeled, ends)
    for folder in pile:
        if not folder.is_dir():
            _add(listing, folder, None)
            continue
        for path in _files(listing, folder, ends - {real_path(folder)}):
            _add(listing, path, None)
    return listing


def to_unpack(path: Path) -> str:
    """What to do if this is an archive of images, to be said after what is wrong."""
    return ", but an archive: unpack it first" if path.suffix.lower() in ARCHIVES else ""


def check_pile(folder: Path) -> None:
    if not folder.is_dir():
        raise InputError(f"--unlabeled {folder} is not a folder{to_unpack(folder)}")


def _check_folders(labeled: Path, pile: Iterable[Path]) -> None:
    if not labeled.is_dir():
        raise InputError(
            f"--labeled {labeled} is not a folder{to_unpack(labeled)}; it holds one folder of images per "
            "class, or is a .csv of path,label, or .npy features"
        )
    for folder in pile:
        check_pile(folder)
        if real_path(folder) == real_path(labeled):
            raise InputError(
                f"--labeled and --unlabeled are both {labeled}; they must be two folders"
            )


def _add_classes(listing: Listing, labeled: Path, ends: set[Path]) -> None:
    inner = ends - {real_path(labeled)}
    has_images = set[str]()
    for path in _files(listing, labeled, inner):
        parts = path.relative_to(labeled).parts
        if len(parts) == 1:
            listing.skipped.append(Skipped(str(path), "is not in the folder of a class"))
        elif _add(listing, path, as_label(parts[0])):
            has_images.add(parts[0])
    for entry in sorted(labeled.iterdir()):
        if entry.is_dir() and not entry.name.startswith(".") and real_path(entry) not in inner:
            if entry.name not in has_images:
                listing.notes.append(f"class {printable(entry.name)} has no images: left out")
        elif entry.is_dir() and real_path(entry) in inner:
            listing.notes.append(
                f"{printable(str(entry))} is not a class: it is the pile or the output"
            )


def _add(listing: Listing, path: Path, label: str | None) -> bool:
    """Add a file if it may be an image; else record why not."""
    ending = path.suffix.lower()
    reason = ""
    if ending in TO_CONVERT - EXTENSIONS:
        install = ", or pip install 'semishot[heic]' (with GPL code)" if ending in HEIC else ""
        reason = f"{ending} files cannot be read; convert it to JPEG or PNG{install}"
    elif ending in ARCHIVES:
        reason = f"is not an image{to_unpack(path)}"
    elif ending and ending not in EXTENSIONS:  # without an extension, it may be an image
        reason = "the file name has no image extension"
    if reason:
        listing.skipped.append(Skipped(str(path), reason))
        return False
    listing.items.append(Item(str(path), label, path, of_pile=label is None))
    return True


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


def _files(listing: Listing, root: Path, ends: set[Path]) -> Iterator[Path]:
    """Every file below a folder, except hidden ones."""
    for entry in walk(root, ends):
        if entry.problem:
            listing.skipped.append(Skipped(str(entry.path), entry.problem))
        else:
            yield entry.path
