"""Which of a user's files to read, and their labels: from folders, or a table of paths and labels."""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from semishot.data.decoding import EXTENSIONS
from semishot.data.walk_folders import walk
from semishot.errors import InputError, printable
from semishot.system.files import read_regular

__all__ = ["Item", "Listing", "Skipped", "from_folders", "from_table", "table_rows"]

# fmt: off
TO_CONVERT = {".heic", ".heif", ".avif", ".jxl", ".jp2", ".svg", ".psd", ".cr2", ".nef", ".arw", ".dng"}
# fmt: on
MOST_TABLE_BYTES = 2**28


@dataclass(frozen=True)
class Item:
    """An image, or a row of features."""

    shown: str
    """How it is shown: the path as given, or the number of the row."""
    label: str | None = None
    path: Path | None = None


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
    ends = {folder.resolve() for folder in [*pile, *apart, *([labeled] if labeled else [])]}
    if labeled is not None:
        _check_folders(labeled, pile)
        _add_classes(listing, labeled, ends)
    for place in pile:
        if not place.is_dir():
            _add(listing, place, None)
            continue
        for path in _files(listing, place, ends - {place.resolve()}):
            _add(listing, path, None)
    return listing


def _check_folders(labeled: Path, pile: Iterable[Path]) -> None:
    if not labeled.is_dir():
        raise InputError(
            f"--labeled {labeled} is not a folder; it holds one folder of images per class, or is a "
            ".csv of path,label, or .npy features"
        )
    for place in pile:
        if not place.is_dir():
            raise InputError(f"--unlabeled {place} is not a folder")
        if place.resolve() == labeled.resolve():
            raise InputError(
                f"--labeled and --unlabeled are both {labeled}; they must be two folders"
            )


def _add_classes(listing: Listing, labeled: Path, ends: set[Path]) -> None:
    inner = ends - {labeled.resolve()}
    found: dict[str, int] = {}
    for path in _files(listing, labeled, inner):
        parts = path.relative_to(labeled).parts
        if len(parts) == 1:
            listing.skipped.append(Skipped(str(path), "is not in the folder of a class"))
        else:
            found[parts[0]] = found.get(parts[0], 0) + _add(listing, path, parts[0])
    for entry in sorted(labeled.iterdir()):
        if entry.is_dir() and not entry.name.startswith(".") and entry.resolve() not in inner:
            if not found.get(entry.name):
                listing.notes.append(f"class {printable(entry.name)} has no images: left out")
        elif entry.is_dir() and entry.resolve() in inner:
            listing.notes.append(
                f"{printable(str(entry))} is not a class: it is the pile or the output"
            )


def _add(listing: Listing, path: Path, label: str | None) -> bool:
    """Add a file if it may be an image; else record why not."""
    ending = path.suffix.lower()
    reason = ""
    if ending in TO_CONVERT:
        reason = f"{ending} files cannot be read; convert it to JPEG or PNG"
    elif ending and ending not in EXTENSIONS:  # without an extension, it may be an image
        reason = "the file name has no image extension"
    if reason:
        listing.skipped.append(Skipped(str(path), reason))
        return False
    listing.items.append(Item(str(path), label, path))
    return True


def _files(listing: Listing, root: Path, ends: set[Path]) -> Iterator[Path]:
    """Every file below a folder, except hidden ones."""
    for entry in walk(root, ends):
        if entry.problem:
            listing.skipped.append(Skipped(str(entry.path), entry.problem))
        else:
            yield entry.path


def from_table(table: Path) -> Listing:
    """A CSV with the columns path and label; paths are relative to it, and an empty label means unlabeled."""
    labeled, others = Listing(), Listing()
    for line, row in table_rows(table, ("path", "label")):
        name, label = row["path"], row["label"] or None
        if not name or "\0" in name:
            labeled.skipped.append(Skipped(f"{table}, line {line}", "names no path"))
            continue
        into = labeled if label is not None else others
        into.items.append(Item(name, label, table.parent / name))
    labeled.items += others.items
    return labeled


def table_rows(table: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and cells of each row of a CSV that has these columns."""
    try:
        text = read_regular(table, MOST_TABLE_BYTES).decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        if missing := [c for c in columns if c not in (reader.fieldnames or ())]:
            raise InputError(
                f"{table} has no column {' and no column '.join(missing)}: its first line must be "
                f"{','.join(columns)}"
            )
        for row in reader:
            yield reader.line_num, {column: row[column] or "" for column in columns}
    except FileNotFoundError as error:
        raise InputError(f"no file {table}") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {table} ({error}): it must be a CSV in UTF-8") from error
