"""What is said of each image of a pile, as a CSV that no spreadsheet takes for formulas, or as JSON."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semishot.sorter.listing import Item, Skipped
from semishot.system.files import write_whole

__all__ = ["ACCEPT", "IRRELEVANT", "Prediction", "as_csv", "as_json", "write_skipped", "write_text"]

ACCEPT, IRRELEVANT = "accept", "irrelevant"
COLUMNS = ("path", "label", "probability", "runner_up", "distractor_score", "decision")
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a spreadsheet would run, as the first character of a cell."""


@dataclass(frozen=True)
class Prediction:
    item: Item
    label: str
    """The nearest class, also of an irrelevant image."""
    probability: float
    """Of that class, if it is one of them."""
    runner_up: str
    """The second nearest class, if there are two."""
    distractor_score: float | None
    """The share of members that lie nearer to their class. None: not known."""
    decision: str

    def cells(self) -> dict[str, Any]:
        score = None if self.distractor_score is None else round(self.distractor_score, 4)
        values = (self.item.shown, self.label, round(self.probability, 4), self.runner_up, score)
        return dict(zip(COLUMNS, (*values, self.decision), strict=True))


def as_json(predictions: Sequence[Prediction]) -> list[dict[str, Any]]:
    return [prediction.cells() for prediction in predictions]


def as_csv(predictions: Sequence[Prediction]) -> str:
    return _table(COLUMNS, [tuple(prediction.cells().values()) for prediction in predictions])


def write_skipped(path: Path, skipped: Sequence[Skipped]) -> None:
    write_text(path, _table(("path", "reason"), [(s.shown, s.reason) for s in skipped]))


def write_text(path: Path, text: str) -> None:
    """In UTF-8, line ends as they are; a file name that is none is written by its bytes' numbers."""
    data = text.encode("utf-8", "backslashreplace")
    write_whole(path, lambda temporary: temporary.write_bytes(data))


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for first, *rest in rows:
        writer.writerow([_harmless(first, "./"), *(_harmless(cell, "'") for cell in rest)])
    return file.getvalue()


def _harmless(cell: object, prefix: str) -> object:
    """A path that begins like a formula stays the same path as ./path; a label gets a quote."""
    return prefix + cell if isinstance(cell, str) and cell.startswith(FORMULA) else cell
