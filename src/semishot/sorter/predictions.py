"""The prediction for each image: made by a classifier, written as JSON or CSV.

Letters: B images, N classes.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from semishot.sorter.listing import STRANGER, Item
from semishot.system.files import write_whole
from semishot.system.tables import csv_text

if TYPE_CHECKING:  # it imports scipy
    from semishot.estimator.answers import Answer
    from semishot.estimator.fitted_model import FittedModel

LABELED, CORRECTED = "labeled", "corrected"
"""The decisions of rows that are not predicted: labeled when given, or by a correction of the pile."""
DECISION, CORRECT, NEAREST = "decision", "correct", "nearest_class"
COLUMNS = ("path", "label", NEAREST, "probability", "stranger_probability", "runner_up", DECISION)
"""Of predictions.csv, before CORRECT, which the user may fill in."""
DIGITS = 4
"""Of probabilities: all counts are sums of these rounded ones, so they follow from the table."""
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
    stranger: bool
    """Whether it is taken for a stranger."""
    stranger_probability: float
    """The probability that it belongs to none of the classes."""

    @property
    def label(self) -> str:
        """The decision: its class, or `stranger`."""
        return STRANGER if self.stranger else self.nearest_class

    @property
    def sure(self) -> float:
        """The probability that the decision is right."""
        stranger = self.stranger_probability
        return stranger if self.stranger else self.probability * (1 - stranger)

    def cells(self) -> tuple[object, ...]:
        """The values of COLUMNS."""
        return (
            *(self.item.shown, self.label, self.nearest_class, self.probability),
            *(self.stranger_probability, self.runner_up),
            STRANGER if self.stranger else "accept",
        )


def predictions_of(
    classifier: "FittedModel", answers: "Answer", items: Sequence[Item]
) -> list[Prediction]:
    """A prediction for each item: answers for B rows."""
    names = [str(name) for name in classifier.classes]
    order = np.argsort(-answers.classes, axis=1, kind="stable")  # (B, N)
    best = np.take_along_axis(answers.classes, order[:, :1], 1)[:, 0]  # (B,)
    columns = (order[:, :2], best, classifier.strangers(answers), answers.stranger)
    return [
        Prediction(
            item,
            nearest_class=names[nearest],
            probability=round(probability, DIGITS),
            runner_up=names[second[0]] if second else "",
            stranger=out,
            stranger_probability=round(stranger, DIGITS),
        )
        for item, (nearest, *second), probability, out, stranger in zip(
            items, *(column.tolist() for column in columns), strict=True
        )
    ]


def as_json(predictions: Sequence[Prediction]) -> str:
    rows = [dict(zip(COLUMNS, prediction.cells(), strict=True)) for prediction in predictions]
    return json.dumps(rows, indent=1) + "\n"


def as_csv(predictions: Sequence[Prediction], labeled: Sequence[Item] = ()) -> str:
    """The predictions, then labeled images; the last column is for corrections."""
    rows = [(*prediction.cells(), "") for prediction in predictions]
    for item in labeled:
        decision = CORRECTED if item.of_pile else LABELED
        # corrections of images are in labels.sqlite, those of rows of features only here
        correct = item.label if item.of_pile and item.path is None else ""
        rows.append((item.shown, item.label, *[""] * 4, decision, correct))
    return csv_table((*COLUMNS, CORRECT), rows)


def csv_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A CSV whose first column are paths; no cell begins like a formula."""
    cells = ([_harmless(first, "./"), *(_harmless(c, "'") for c in rest)] for first, *rest in rows)
    return csv_text([columns, *cells])


def _harmless(cell: object, prefix: str) -> object:
    """A path that begins like a formula becomes ./path, which is the same path; a label gets a quote."""
    return prefix + cell if isinstance(cell, str) and cell.startswith(FORMULA) else cell


def csv_bytes(text: str) -> bytes:
    """UTF-8; bytes of a file name that are not UTF-8 are escaped."""
    return text.encode("utf-8", "backslashreplace")


def write_text(path: Path, text: str) -> None:
    write_whole(path, csv_bytes(text))
