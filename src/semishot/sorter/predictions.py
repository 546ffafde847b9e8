"""The prediction for each image: made by a classifier, written as JSON or as a CSV without formulas.

Letters: B images, D features, N classes.
"""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from semishot.estimator.classifier import PrototypeClassifier
from semishot.sorter.listing import Item, Skipped
from semishot.system.files import write_whole

__all__ = ["Prediction", "as_csv", "as_json", "predictions_of", "write_skipped", "write_text"]

ACCEPT: Final = "accept"
IRRELEVANT: Final = "irrelevant"
COLUMNS = ("path", "label", "probability", "runner_up", "distractor_score", "decision")
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""First characters of a cell that a spreadsheet would execute."""


@dataclass(frozen=True)
class Prediction:
    """The prediction for one image, or one row of features."""

    item: Item
    label: str
    """The nearest class, also of an irrelevant image."""
    probability: float
    """The probability of that class, if the image belongs to one of the classes."""
    runner_up: str
    """The second nearest class, if there are two."""
    distractor_score: float | None
    """The share of members that lie nearer to their class. None: not known."""
    decision: Literal["accept", "irrelevant"]

    @property
    def irrelevant(self) -> bool:
        return self.decision == IRRELEVANT

    def cells(self) -> dict[str, Any]:
        score = None if self.distractor_score is None else round(self.distractor_score, 4)
        values = (self.item.shown, self.label, round(self.probability, 4), self.runner_up, score)
        return dict(zip(COLUMNS, (*values, self.decision), strict=True))


def predictions_of(
    classifier: PrototypeClassifier, features: NDArray[np.float32], items: Sequence[Item]
) -> list[Prediction]:
    """(B, D) -> a prediction for each row."""
    probabilities = classifier.predict_proba(features)  # (B, N)
    best = probabilities.argmax(1)
    chance = probabilities.max(1)
    probabilities[np.arange(len(best)), best] = -1
    second = probabilities.argmax(1)
    names = [str(name) for name in classifier.classes_]
    farthest = 1 - (classifier.reject or 0)
    scores: list[float | None] = [None] * len(items)
    if classifier.members_ is not None:
        scores = classifier.distractor_score(features).tolist()
    return [
        Prediction(
            item,
            names[first],
            float(probability),
            names[next_] if len(names) > 1 else "",
            score,
            IRRELEVANT if score is not None and score > farthest else ACCEPT,
        )
        for item, first, probability, next_, score in zip(
            items, best, chance, second, scores, strict=True
        )
    ]


def as_json(predictions: Sequence[Prediction]) -> str:
    return json.dumps([prediction.cells() for prediction in predictions], indent=1) + "\n"


def as_csv(predictions: Sequence[Prediction]) -> str:
    return _table(COLUMNS, [tuple(prediction.cells().values()) for prediction in predictions])


def write_skipped(path: Path, skipped: Sequence[Skipped]) -> None:
    write_text(path, _table(("path", "reason"), [(s.shown, s.reason) for s in skipped]))


def write_text(path: Path, text: str) -> None:
    """Write UTF-8, line ends unchanged; bytes of a file name that are not UTF-8 are escaped."""
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
    """A path that begins like a formula becomes ./path, which is the same path; a label gets a quote."""
    return prefix + cell if isinstance(cell, str) and cell.startswith(FORMULA) else cell
