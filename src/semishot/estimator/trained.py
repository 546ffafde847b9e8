"""A fitted classifier as commands use it: `PrototypeClassifier` without scikit-learn, which loads slowly.

Letters: P rows, N classes, D features.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from torch import Tensor

from semishot.errors import InputError
from semishot.estimator.blocks import Array, one_thread
from semishot.estimator.features import check_large
from semishot.estimator.fitted import Fitted
from semishot.estimator.labels import NAMED_STRANGER, UNLABELED, Labels, read_labels
from semishot.estimator.models import read_in_blocks
from semishot.estimator.saved import Saved, not_saved, read_saved, write_saved
from semishot.estimator.settings import DEFAULTS, checked, fitted_to
from semishot.estimator.strangers import stranger_probability


class RowAnswers(NamedTuple):
    """What is said of P rows; NaN where it is not known."""

    classes: Array
    """(P, N), probabilities, given that the row belongs to one of the classes."""
    stranger: Array
    """(P,), the probability that it belongs to none of them."""
    scores: Array
    """(P,), the share of members that are more clearly members."""

    def of_rows(self, rows: list[int]) -> "RowAnswers":
        return RowAnswers(self.classes[rows], self.stranger[rows], self.scores[rows])


@dataclass(frozen=True)
class Trained:
    """What was learned, with the parameters of the PrototypeClassifier that would have learned it."""

    parameters: Mapping[str, Any]
    saved: Saved

    @property
    def reject(self) -> float | None:
        found: float | None = self.parameters["reject"]
        return found

    @property
    def features(self) -> int:
        """D."""
        return len(self.saved.model.space.center)

    def save(self, path: Path) -> None:
        """As `PrototypeClassifier.save` does, which reads it too."""
        write_saved(path, self.parameters, self.saved)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file of `save`, or of `PrototypeClassifier.save`."""
        parameters, saved = read_saved(path)
        try:
            if unknown := set(parameters) - set(DEFAULTS):
                raise InputError(f"unknown parameter {min(unknown)!r:.40}")
            parameters = {**DEFAULTS, **parameters}
            checked(parameters)
        except (TypeError, ValueError) as error:
            raise not_saved(path, error) from error
        return cls(parameters, saved)

    @one_thread()
    def read(self, features: Array) -> tuple[Tensor, Tensor]:
        """(P, D), finite -> logits (P, N) and scores (P,)."""
        check_large(features)
        return read_in_blocks(self.saved.model, features)

    @one_thread()
    def answers(self, features: Array) -> RowAnswers:
        """(P, D), finite, of rows that it was not fitted to."""
        logits, found = self.read(features)
        scores, members = found.double().numpy(), self.saved.members
        stranger = share = np.full(len(scores), np.nan)
        if members is not None:
            share = members.share_above(scores)
            if self.saved.strangers is not None:
                stranger = stranger_probability(scores, members, self.saved.strangers)
        return RowAnswers(logits.softmax(-1).numpy(), stranger, share)


@one_thread()
def train(features: Array, y: Array, reject: float) -> tuple[Trained, Fitted, RowAnswers]:
    """Fit the default classifier to finite rows (P, D) and labels (P,): what it learned and says of them."""
    parameters = {**DEFAULTS, "reject": reject}
    labels, fitted = fitted_to(checked(parameters), features, read_labels(y))
    saved = Saved(
        labels.classes,
        labels.stranger_label,
        fitted.model,
        fitted.members,
        fitted.strangers,
        fitted.count,
        fitted.pile_helps,
        fitted.message,
        fitted.held_out,
        [],
    )
    return Trained(parameters, saved), fitted, answers_for_rows(fitted, labels)


def answers_for_rows(fitted: Fitted, labels: Labels) -> RowAnswers:
    """What is said of the rows that were fitted: those that have a label keep it."""
    classes, scores, stranger = fitted.answer
    shares = np.full(len(scores), np.nan)
    stranger = shares.copy() if stranger is None else stranger
    for code in np.unique(labels.codes[labels.codes != UNLABELED]):
        rows = labels.codes == code
        stranger[rows] = float(code == NAMED_STRANGER)
        if code != NAMED_STRANGER:
            classes[rows] = np.arange(len(labels.classes)) == code
    if fitted.members is not None:
        shares = fitted.members.share_above(scores)
    return RowAnswers(classes, stranger, shares)
