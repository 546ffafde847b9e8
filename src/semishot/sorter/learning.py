"""A classifier fitted to labeled images and a pile: predictions, known copies, what to label next."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from semishot.estimator.answers import Answer
from semishot.estimator.fitted_model import FittedModel, fit_default
from semishot.estimator.kinds import find_kinds
from semishot.estimator.labels import NAMED_STRANGER, UNLABELED
from semishot.estimator.next_labels import next_to_label
from semishot.sorter.embedding import Rows
from semishot.sorter.listing import STRANGER, Item
from semishot.sorter.predictions import Prediction, predictions_of

ASKED = 10
"""How many images the user is asked to label next."""


@dataclass(frozen=True)
class FittedPile:
    """A classifier and what it was fitted to: labeled rows and named strangers first, then the pile."""

    rows: Rows
    classifier: FittedModel
    answers: Answer
    """What is said of each row of `rows.features`."""
    predictions: list[Prediction]
    """The predictions for the pile."""
    fitted_as: list[int]
    """The row of `rows.features` of each image of the pile: a copy of a labeled image has that one's."""

    @property
    def first(self) -> int:
        """The first row of the pile."""
        return len(self.rows.items) - len(self.predictions)

    @property
    def labeled_items(self) -> list[Item]:
        return self.rows.items[: self.first]

    @property
    def labels(self) -> list[str]:
        """The given or predicted class of each item, or `stranger`."""
        given = [str(item.label) for item in self.labeled_items]
        return [*given, *(prediction.label for prediction in self.predictions)]

    def next_to_label(self) -> list[int]:
        """Places in `predictions`: never a copy of what is labeled, and of several copies one."""
        features, first = self.rows.features, self.first
        if first == len(features):  # the pile holds copies of labeled images only
            return []
        asked = next_to_label(features[first:], self.classifier, ASKED, labeled=features[:first])
        return [self._index_of[first + int(row)] for row in asked]

    def kinds(self) -> list[list[int]]:
        """Groups that look like classes of their own: places in `predictions`, the most typical first."""
        chance = self.answers.stranger
        chance[: self.first] = 0.0
        found = find_kinds(self.rows.features, self.classifier.learned.model.space, chance)
        return [[self._index_of[row] for row in kind.rows.tolist()] for kind in found]

    @cached_property
    def _index_of(self) -> dict[int, int]:
        """Row of `rows.features` -> the first place in `predictions`."""
        return {row: index for index, row in reversed(list(enumerate(self.fitted_as)))}


def fit_pile(rows: Rows, reject: float | str) -> FittedPile:
    """Fit the default classifier; the images of the pile take the answers it has for them.

    Each image of the pile counts once: a copy, of another or of a labeled image, takes the answer of that.
    """
    items = rows.items
    first = sum(item.label is not None for item in items)  # the labeled rows come first
    labels, fitted_as = np.full(len(rows.features), UNLABELED, object), rows.row_of[first:]
    given = (item.label for item in items[:first])
    labels[:first] = [NAMED_STRANGER if label == STRANGER else label for label in given]
    classifier, answers = fit_default(rows.features, labels, reject, rows.names)
    index_of = {str(name): index for index, name in enumerate(classifier.classes)}
    said = answers.take(fitted_as)
    for index, row in enumerate(fitted_as):
        if row < first and items[row].label == STRANGER:
            said.log_odds[index] = np.inf
        elif row < first:
            said.log_odds[index] = -np.inf
            said.classes[index] /= 2  # the second most probable class stays the second
            said.classes[index, index_of[str(items[row].label)]] = 1.0
    predictions = predictions_of(classifier, said, items[first:])
    return FittedPile(rows, classifier, answers, predictions, fitted_as)
