"""The prediction for each image: made by a classifier, written as JSON or CSV, and predictions.csv read back.

Letters: B images, N classes.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semishot.errors import InputError, printable
from semishot.sorter.listing import (
    STRANGER,
    Item,
    Listing,
    Skipped,
    TableRows,
    as_label,
    read_table,
    unescaped,
    written_path,
)
from semishot.system.files import write_whole
from semishot.system.tables import csv_text

if TYPE_CHECKING:  # it imports scipy
    from semishot.estimator.fitted_model import FittedModel, RowAnswers

LABELED, CORRECTED = "labeled", "corrected"
"""The decisions of rows that are not predicted: labeled when given, or by a correction of the pile."""
DECISION, CORRECT, NEAREST = "decision", "correct", "nearest_class"
COLUMNS = (
    *("path", "label", NEAREST, "probability", "stranger_probability", "runner_up"),
    *("stranger_score", DECISION),
)
TABLE_COLUMNS = (*COLUMNS, CORRECT)
"""Of predictions.csv, which is read back: CORRECT is for the user to fill in."""
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""First characters of a cell that a spreadsheet would execute."""


@dataclass(frozen=True)
class Prediction:
    """The prediction for one image, or one row of features."""

    item: Item
    nearest_class: str
    """The most probable class, also of a stranger."""
    probability: float
    """The probability of that class, if the image belongs to one of the classes."""
    runner_up: str
    """The second most probable class, if there are two."""
    stranger_score: float | None
    """The share of members that are more clearly members. None: not known."""
    stranger: bool
    """Whether it is taken for a stranger."""
    stranger_probability: float | None = None
    """The probability that it belongs to none of the classes. None: not known."""

    @property
    def label(self) -> str:
        """The decision: its class, or `stranger`."""
        return STRANGER if self.stranger else self.nearest_class

    @property
    def sure(self) -> float | None:
        """The probability that it belongs to its class, strangers considered. None: not known."""
        if self.stranger_probability is None:
            return None
        return self.probability * (1 - self.stranger_probability)

    def cells(self) -> dict[str, Any]:
        values = (
            *(self.item.shown, self.label, self.nearest_class, round(self.probability, 4)),
            *(_rounded(self.stranger_probability), self.runner_up),
            *(_rounded(self.stranger_score), STRANGER if self.stranger else "accept"),
        )
        return dict(zip(COLUMNS, values, strict=True))


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def predictions_of(
    classifier: "FittedModel", answers: "RowAnswers", items: Sequence[Item]
) -> list[Prediction]:
    """A prediction for each item: answers for B rows."""
    names = [*(str(name) for name in classifier.classes), ""]
    order = np.argsort(-answers.classes, axis=1, kind="stable")  # (B, N)
    farthest, last = 1 - (classifier.parameters.reject or 0), len(names) - 1
    predictions = []
    for item, row, classes, score, stranger in zip(
        items, order, answers.classes, answers.scores, answers.stranger, strict=True
    ):
        predictions.append(
            Prediction(
                item,
                names[row[0]],
                float(classes[row[0]]),
                names[row[1] if last > 1 else last],
                None if np.isnan(score) else float(score),
                bool(score > farthest),
                None if np.isnan(stranger) else float(stranger),
            )
        )
    return predictions


def as_json(predictions: Sequence[Prediction]) -> str:
    return json.dumps([prediction.cells() for prediction in predictions], indent=1) + "\n"


def as_csv(predictions: Sequence[Prediction], labeled: Sequence[Item] = ()) -> str:
    """The predictions, then labeled images; the last column is for corrections."""
    rows = [(*prediction.cells().values(), "") for prediction in predictions]
    for item in labeled:
        decision = CORRECTED if item.of_pile else LABELED
        rows.append((item.shown, item.label, *[""] * 5, decision, item.correct))
    return csv_table(TABLE_COLUMNS, rows)


def write_skipped(path: Path, skipped: Sequence[Skipped]) -> None:
    write_text(path, csv_table(("path", "reason"), [(s.shown, s.reason) for s in skipped]))


def csv_bytes(text: str) -> bytes:
    """UTF-8; bytes of a file name that are not UTF-8 are escaped."""
    return text.encode("utf-8", "backslashreplace")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8, line ends unchanged; bytes of a file name that are not UTF-8 are escaped."""
    write_whole(path, csv_bytes(text))


def csv_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A CSV whose first column are paths; no cell begins like a formula."""
    cells = ([_harmless(first, "./"), *(_harmless(c, "'") for c in rest)] for first, *rest in rows)
    return csv_text([columns, *cells])


def _harmless(cell: object, prefix: str) -> object:
    """A path that begins like a formula becomes ./path, which is the same path; a label gets a quote."""
    return prefix + cell if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def unquoted(cell: str) -> str:
    """A label as it was before `_harmless` and `write_text`."""
    quoted = cell.startswith("'") and cell[1:].startswith(FORMULA)
    return unescaped(cell[1:] if quoted else cell)


def is_predictions(table: TableRows, path: Path) -> bool:
    """Whether a table is a predictions.csv, whose labels are guesses, and not a table of labels."""
    if DECISION in table.columns and CORRECT not in table.columns:
        raise InputError(
            f"{path} holds predictions without the column {CORRECT}: its labels are guesses; run classify "
            f"again, and write the right class of an image into the column {CORRECT}"
        )
    return {DECISION, CORRECT} <= set(table.columns)


def from_predictions(path: Path, table: TableRows) -> Listing:
    """A predictions.csv, given as --labeled: labeled rows, then the pile, where corrected rows have a label.

    Paths are as they were written: relative to the folder where `classify` runs. A label that is a guess and
    was changed is refused: corrections belong into the column `correct`.
    """
    for column in ("path", "label", NEAREST):
        if column not in table.columns:
            raise InputError(f"{path} has no column {column}: run classify again")
    given = [row["label"] for _, row in table.rows if row[DECISION] in (LABELED, CORRECTED)]
    classes = {as_label(unquoted(label)) for label in given}
    listing, pile, changed = Listing(), list[Item](), list[tuple[int, str]]()
    for line, row in table.rows:
        name, decision = Path(written_path(row["path"])), row[DECISION]
        label, correct = as_label(unquoted(row["label"])), _correct(row, classes)
        if not row["path"] or "\0" in row["path"]:
            listing.skipped.append(Skipped(f"{path}, line {line}", "names no path"))
        elif decision == LABELED:
            listing.items.append(Item(str(name), label, name, correct=correct))
        elif decision == CORRECTED:
            pile.append(Item(str(name), label, name, of_pile=True, correct=correct))
        else:
            pile.append(Item(str(name), None, name, of_pile=True, correct=correct))
            guess = STRANGER if decision == STRANGER else as_label(unquoted(row[NEAREST]))
            if not correct and label != guess:
                changed.append((line, row["path"]))
    if changed:
        line, shown = changed[0]
        more = f", and of {len(changed) - 1:,} more," if len(changed) > 1 else ""
        raise InputError(
            f"{path}, line {line}: the label of {printable(shown)}{more} was changed; leave it, and write "
            f"the right class into the column {CORRECT}"
        )
    listing.items += pile
    return listing


def corrections_in(path: Path) -> dict[str, str]:
    """Paths, as a predictions.csv has them -> what its column `correct` says."""
    table = read_table(path) if path.exists() else TableRows((), [])
    if not {"path", "label", NEAREST, DECISION, CORRECT} <= set(table.columns):
        return {}
    items = from_predictions(path, table).items
    return {item.shown: item.correct for item in items if item.correct}


def _correct(row: Mapping[str, str], classes: Collection[str]) -> str:
    """What the user wrote: a class, in its own spelling if it is a known one; `stranger`; or nothing."""
    written = as_label(unquoted(row[CORRECT].strip()))
    alike = [name for name in classes if name.casefold() == written.casefold()]
    return alike[0] if written not in classes and len(alike) == 1 else written
