r"""Which of a user's files to read, and their labels: from folders, or a table of paths and labels.

In our tables, bytes of a file name that are not UTF-8 are escaped: 0xe9 is written as `\udce9`.
"""

import csv
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from semishot.data.decoding import EXTENSIONS
from semishot.data.walk_folders import walk
from semishot.errors import InputError, counted, printable
from semishot.system.files import real_path, real_place
from semishot.system.tables import read_rows

NUMBERS = {"-1": "unlabeled", "-2": "strangers"}
"""What these numbers mean as labels in Python: they are not the names of classes."""
STRANGER = "stranger"
"""Reserved: the folder, and the label in a table, of images that belong to none of the classes."""

HEIC = {".heic", ".heif"}
# fmt: off
TO_CONVERT = {".heic", ".heif", ".avif", ".jxl", ".jp2", ".svg", ".psd", ".cr2", ".nef", ".arw", ".dng"}
# fmt: on
ARCHIVES = {".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar"}
ESCAPE = re.compile(r"\\udc[89a-f][0-9a-f]")
USED = {"path", "label", "nearest_class", "decision", "correct"}
"""The columns of tables that are kept in memory."""


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
class TableRows:
    """A CSV: the names of its columns, and the number of each line with its cells that are used."""

    columns: tuple[str, ...]
    rows: list[tuple[int, dict[str, str]]]


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
    images_in: dict[str, int] = {}
    for path in _files(listing, labeled, inner):
        parts = path.relative_to(labeled).parts
        if len(parts) == 1:
            listing.skipped.append(Skipped(str(path), "is not in the folder of a class"))
        else:
            images_in[parts[0]] = images_in.get(parts[0], 0) + _add(
                listing, path, as_label(parts[0])
            )
    for entry in sorted(labeled.iterdir()):
        if entry.is_dir() and not entry.name.startswith(".") and real_path(entry) not in inner:
            if not images_in.get(entry.name):
                listing.notes.append(f"class {printable(entry.name)} has no images: left out")
            elif as_label(entry.name) == STRANGER:
                number = counted(images_in[entry.name], STRANGER)
                listing.notes.append(f"{printable(str(entry))}: {number}")
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
    """A label as it was written, and `stranger` in any case."""
    if text in NUMBERS:
        raise InputError(
            f"a class is called {text}, which elsewhere means {NUMBERS[text]}: give it another name, leave "
            f"the label of an unlabeled image empty, and call images of no class {STRANGER}"
        )
    return STRANGER if text.casefold() == STRANGER else text


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
        name, label = row["path"], as_label(row["label"]) or None
        if not name or "\0" in name:
            labeled.skipped.append(Skipped(f"{table}, line {line}", "names no path"))
            continue
        into = labeled if label is not None else others
        path = table.parent / written_path(name, table.parent)
        into.items.append(Item(str(path), label, path, of_pile=label is None))
    labeled.items += others.items
    if strangers := sum(item.label == STRANGER for item in labeled.items):
        labeled.notes.append(f"{printable(str(table))}: {counted(strangers, STRANGER)}")
    return labeled


def table_rows(table: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and cells of each row of a CSV that has these columns."""
    rows = read_table(table)
    if missing := [c for c in columns if c not in rows.columns]:
        raise InputError(
            f"{table} has no column {' and no column '.join(missing)}: its first line must be "
            f"{','.join(columns)}"
        )
    yield from rows.rows


def unescaped(text: str) -> str:
    """A name as it was before it was escaped."""
    return ESCAPE.sub(lambda match: chr(int(match[0][2:], 16)), text)


def written_path(cell: str, folder: Path = Path()) -> str:
    """The path that a cell names, relative to a folder; a file that has the cell as its name comes first."""
    if not ESCAPE.search(cell) or os.path.lexists(folder / cell):
        return cell
    return unescaped(cell)


def read_table(table: Path) -> TableRows:
    """A CSV in UTF-8; its cells are separated by commas, semicolons or tabs."""
    try:
        rows = read_rows(table)
        _, columns = next(rows, (0, []))
        if twice := [column for column in columns if column in USED and columns.count(column) > 1]:
            raise InputError(
                f"{table} has two columns {twice[0]}: remove or rename one of them in its first line"
            )
        used = [(index, column) for index, column in enumerate(columns) if column in USED]
        kept = [
            (line, {column: "".join(cells[index : index + 1]) for index, column in used})
            for line, cells in rows
        ]
        return TableRows(tuple(columns), kept)
    except FileNotFoundError as error:
        raise InputError(f"no file {table}") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {table} ({error}): it must be a CSV in UTF-8") from error
