r"""Tables that say which class images have: a CSV of path,label, or predictions.csv with its corrections.

Where we write them, bytes of a file name that are not UTF-8 are escaped: 0xe9 is written as `\udce9`.
"""

import csv
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from semishot.errors import InputError, printable
from semishot.sorter.listing import STRANGER, Item, Listing, Skipped, as_label
from semishot.sorter.predictions import CORRECT, CORRECTED, DECISION, FORMULA, LABELED, NEAREST
from semishot.system.files import real_path, real_place
from semishot.system.tables import read_rows

ESCAPE = re.compile(r"\\udc[89a-f][0-9a-f]")
USED = {"path", "label", NEAREST, DECISION, CORRECT}
"""The columns that are kept in memory."""


@dataclass(frozen=True)
class LabelTable:
    """A CSV: the names of its columns, and the number of each line with its cells that are used."""

    path: Path
    columns: tuple[str, ...]
    rows: list[tuple[int, dict[str, str]]]

    def check(self, columns: Collection[str], do: str) -> None:
        """It must have these columns; else the user is told what to do."""
        if missing := [column for column in columns if column not in self.columns]:
            raise InputError(f"{self.path} has no column {' and no column '.join(missing)}: {do}")


def read_table(path: Path) -> LabelTable:
    """A CSV in UTF-8; its cells are separated by commas, semicolons or tabs."""
    try:
        rows = read_rows(path)
        _, columns = next(rows, (0, []))
        if twice := [column for column in columns if column in USED and columns.count(column) > 1]:
            raise InputError(
                f"{path} has two columns {twice[0]}: remove or rename one of them in its first line"
            )
        used = [(index, column) for index, column in enumerate(columns) if column in USED]
        kept = [
            (line, {column: "".join(cells[index : index + 1]) for index, column in used})
            for line, cells in rows
        ]
        return LabelTable(path, tuple(columns), kept)
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {path} ({error}): it must be a CSV in UTF-8") from error


def from_table(
    table: LabelTable, pile: Listing | None = None, moved: Mapping[Path, Path] | None = None
) -> Listing:
    """Labeled images, then the others, with corrections; last what is only in the pile.

    An empty label means unlabeled. Paths are relative to the table; in predictions.csv, to the folder where
    `classify` runs. There, rows that were corrected before have a label, and a guess that was changed is
    refused: corrections belong into the column `correct`. moved: as of `from_folders`.
    """
    predicted, moved = DECISION in table.columns, moved or {}
    table.check(("path", "label"), "its first line must be path,label")
    if predicted:
        do = "its labels are guesses; run classify again, and write the right ones into that column"
        table.check((NEAREST, CORRECT), do)
    folder, listing = Path() if predicted else table.path.parent, Listing()
    for line, row in table.rows:
        if not row["path"] or "\0" in row["path"]:
            listing.skipped.append(Skipped(f"{table.path}, line {line}", "names no path"))
            continue
        path, label = folder / written_path(row["path"], folder), label_in(row["label"])
        decision = row[DECISION] if predicted else LABELED
        if predicted and (correct := label_in(row[CORRECT])):
            listing.corrections[str(path)] = correct
        if decision not in (LABELED, CORRECTED):
            guess = STRANGER if decision == STRANGER else label_in(row[NEAREST])
            if label != guess and not correct:
                raise InputError(
                    f"{table.path}, line {line}: the label of {printable(row['path'])} was changed; leave "
                    f"it, and write the right class into the column {CORRECT}"
                )
            label = ""
        item = Item(str(path), label or None, path, decision != LABELED or not label)
        if moved and (source := real_place(path)) in moved:
            item = replace(item, path=moved[source], home=source)
        listing.items.append(item)
    listing.items.sort(key=lambda item: item.of_pile)
    if pile is not None:
        # a labeled row of a table of labels may be of the pile, too, and is sorted with it
        named = (item for item in listing.items if item.of_pile or predicted)
        known = {real_path(Path(item.shown)) for item in named}
        listing.items += [i for i in pile.items if real_path(Path(i.shown)) not in known]
        listing.skipped += pile.skipped
    return listing


def corrections_in(path: Path) -> dict[str, str]:
    """What the column `correct` of a predictions.csv says, by path; nothing if there is no such table."""
    table = read_table(path) if path.exists() else None
    return from_table(table).corrections if table and set(table.columns) >= USED else {}


def label_in(cell: str) -> str:
    """A label as it was before it was written so that no spreadsheet executes it."""
    cell = cell.strip()
    return as_label(cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell)


def written_path(cell: str, folder: Path = Path()) -> str:
    """The path that a cell names, relative to a folder; a file that has the cell as its name comes first."""
    if not ESCAPE.search(cell) or os.path.lexists(folder / cell):
        return cell
    return ESCAPE.sub(lambda match: chr(int(match[0][2:], 16)), cell)
