r"""Tables that say which class images have: a CSV of path,label, or predictions.csv with its corrections.

Where we write them, bytes of a file name that are not UTF-8 are escaped: 0xe9 is written as `\udce9`.
"""

import csv
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from semishot.errors import InputError, printable
from semishot.sorter.listing import STRANGER, Item, Listing, Skipped, as_label
from semishot.sorter.predictions import CORRECT, CORRECTED, DECISION, FORMULA, LABELED, NEAREST
from semishot.system.files import real_path, real_place
from semishot.system.tables import read_rows

ESCAPE = re.compile(r"\\udc[89a-f][0-9a-f]")
USED = {"path", "label", NEAREST, DECISION, CORRECT}
"""The columns that are kept in memory."""


def read_table(
    path: Path, needed: Collection[str] = (), do: str = ""
) -> list[tuple[int, dict[str, str]]]:
    """Number and cells of each line of a CSV in UTF-8; of its columns, those that are USED.

    needed: columns that it must have; else the user is told what to do.
    """
    try:
        rows = read_rows(path)
        _, columns = next(rows, (0, []))
        used = [(index, column) for index, column in enumerate(columns) if column in USED]
        if twice := [column for _, column in used if columns.count(column) > 1]:
            raise InputError(
                f"{path} has two columns {twice[0]}: remove or rename one of them in its first line"
            )
        if missing := [column for column in needed if column not in columns]:
            raise InputError(f"{path} has no column {' and no column '.join(missing)}: {do}")
        return [
            (line, {column: "".join(cells[index : index + 1]) for index, column in used})
            for line, cells in rows
        ]
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {path} ({error}): it must be a CSV in UTF-8") from error


def from_table(
    table: Path, pile: Listing | None = None, moved: Mapping[Path, Path] | None = None
) -> Listing:
    """Labeled images, then the others, with corrections; last what is only in the pile.

    An empty label means unlabeled. Paths are relative to the table; in predictions.csv, to the folder where
    `classify` runs. There, rows that were corrected before have a label, and a guess that was changed is
    refused: corrections belong into the column `correct`. moved: as of `from_folders`.
    """
    rows = read_table(table, ("path", "label"), "its first line must be path,label")
    predicted = any(DECISION in row for _, row in rows[:1])
    if predicted and not rows[0][1].keys() >= USED:
        raise InputError(
            f"{table} lacks columns of predictions.csv, such as {CORRECT}, so its labels may be guesses: "
            "delete it, and run classify again"
        )
    folder, listing = Path() if predicted else table.parent, Listing()
    for line, row in rows:
        if not row["path"] or "\0" in row["path"]:
            listing.skipped.append(Skipped(f"{table}, line {line}", "names no path"))
            continue
        path, label = folder / written_path(row["path"], folder), label_in(row["label"])
        decision = row[DECISION] if predicted else LABELED
        if predicted and (correct := label_in(row[CORRECT])):
            listing.corrections[str(path)] = correct
        if decision not in (LABELED, CORRECTED):
            guess = STRANGER if decision == STRANGER else label_in(row[NEAREST])
            if label != guess and not correct:
                raise InputError(
                    f"{table}, line {line}: the label of {printable(row['path'])} was changed; leave "
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
    return from_table(path).corrections if path.exists() else {}


def label_in(cell: str) -> str:
    """A label as it was before it was written so that no spreadsheet executes it."""
    cell = cell.strip()
    return as_label(cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell)


def written_path(cell: str, folder: Path = Path()) -> str:
    """The path that a cell names, relative to a folder; a file that has the cell as its name comes first."""
    if not ESCAPE.search(cell) or os.path.lexists(folder / cell):
        return cell
    return ESCAPE.sub(lambda match: chr(int(match[0][2:], 16)), cell)
