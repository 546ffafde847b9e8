"""A classifier fitted to labeled images and a pile: predictions, known copies, doubts, what to label next."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc

from semishot.errors import printable
from semishot.estimator.fitted_model import FittedModel, RowAnswers, fit_default
from semishot.estimator.labels import NAMED_STRANGER, UNLABELED
from semishot.estimator.models import Learned
from semishot.estimator.next_labels import next_to_label
from semishot.estimator.strangers import missed
from semishot.sorter.embedding import Rows
from semishot.sorter.encoders.image_encoder import ImageEncoder
from semishot.sorter.labeled_images import known_labels
from semishot.sorter.listing import STRANGER, Item
from semishot.sorter.predictions import Prediction, predictions_of
from semishot.sorter.summary import PileSummary

NAMED = 10
"""How many doubtful labels are named."""
ASKED = 10
"""How many images the user is asked to label next."""
BLOCK = 4096
SOME_HELD_OUT, ENOUGH_HELD_OUT, CHANCE = 6, 12, 0.05
"""Held-out images from which on it is judged whether they are predicted better than by chance, and how
probable their accuracy may be by chance."""


@dataclass(frozen=True)
class FittedPile:
    """A classifier and what it was fitted to: labeled rows and named strangers first, then the pile."""

    rows: Rows
    encoder: ImageEncoder | None
    classifier: FittedModel
    answers: RowAnswers
    """What is said of each row of `rows.features`."""
    predictions: list[Prediction]
    """The predictions for the pile."""
    fitted_as: list[int]
    """The row of `rows.features` of each image of the pile: a copy of a labeled image has that one's."""

    @property
    def learned(self) -> Learned:
        return self.classifier.learned

    @property
    def reject(self) -> float:
        reject: float = self.classifier.parameters.reject
        return reject

    @property
    def first(self) -> int:
        """The first row of the pile."""
        return len(self.rows.items) - len(self.predictions)

    @property
    def labeled_items(self) -> list[Item]:
        return self.rows.items[: self.first]

    def label_of(self, row: int) -> str:
        """The given or predicted class of a row, or `stranger`."""
        if (given := self.rows.items[row].label) is not None:
            return given
        prediction = self.predictions[row - self.first]
        return STRANGER if prediction.stranger else prediction.label

    def next_to_label(self) -> list[int]:
        """Places in `predictions`: never a copy of what is labeled, and of several copies one."""
        features, first = self.rows.features, self.first
        if first == len(features):  # the pile holds copies of labeled images only
            return []
        asked = next_to_label(features[first:], self.classifier, ASKED, labeled=features[:first])
        index_of = {row: index for index, row in reversed(list(enumerate(self.fitted_as)))}
        return [index_of[first + int(row)] for row in asked]


def fit_pile(rows: Rows, encoder: ImageEncoder | None, reject: float) -> FittedPile:
    """Fit the default classifier; the images of the pile take the answers it has for them.

    Each image counts once: copies within the pile, and of labeled images, take the answer of the first.
    """
    first = sum(item.label is not None for item in rows.items)  # the labeled rows come first
    known, kept, fitted_as = known_labels(rows), list(range(first)), []
    row_of = {digest: row for row, digest in enumerate(rows.digests[:first]) if digest in known}
    for index, digest in enumerate(rows.digests[first:], first):
        row = row_of.get(digest, len(kept))
        if row == len(kept):
            kept.append(index)
        if digest:  # rows of features have none
            row_of[digest] = row
        fitted_as.append(row)
    rows.features = keep_rows(rows.features, kept)
    numbers = {None: UNLABELED, STRANGER: NAMED_STRANGER}
    labels = [numbers.get(rows.items[p].label, rows.items[p].label) for p in kept]
    classifier, answers = fit_default(rows.features, np.array(labels, object), reject)
    predictions = predictions_of(classifier, answers.of_rows(fitted_as), rows.items[first:])
    predictions = [
        _known(prediction, str(rows.items[row].label)) if row < first else prediction
        for prediction, row in zip(predictions, fitted_as, strict=True)
    ]
    return FittedPile(rows, encoder, classifier, answers, predictions, fitted_as)


def keep_rows(features: NDArray[np.float32], kept: Sequence[int]) -> NDArray[np.float32]:
    """These rows of a file, in order, moved to its beginning: a copy might not fit into memory."""
    if len(kept) == len(features):
        return features
    for start in range(0, len(kept), BLOCK):
        block = list(kept[start : start + BLOCK])
        features[start : start + len(block)] = features[block]
    return features[: len(kept)]


def _known(prediction: Prediction, label: str) -> Prediction:
    """The prediction for a copy of a labeled image: its label."""
    if label == STRANGER:
        return replace(prediction, stranger_probability=1.0, stranger=True)
    runner_up = prediction.label if prediction.label != label else prediction.runner_up
    return replace(
        prediction,
        label=label,
        probability=1.0,
        runner_up=runner_up,
        stranger_probability=0.0,
        stranger=False,
    )


def summarize(fitted: FittedPile, notes: Sequence[str], asked: Sequence[int]) -> PileSummary:
    learned, predictions = fitted.learned, fitted.predictions
    names = [str(name) for name in fitted.classifier.classes]
    accepted = Counter(p.label for p in predictions if not p.stranger)
    known = learned.members is not None
    labels = Counter(i.label for i in fitted.labeled_items if i.label is not None)
    named = labels.pop(STRANGER, 0)
    more = list(_doubts(fitted))
    if len(names) == 1:
        more.append("there is one class only: the question is which images belong to it")
    elif (line := near_chance(fitted, labels)) is not None:
        more.append(line)
    return PileSummary(
        encoder=fitted.encoder.name if fitted.encoder else "features",
        labeled=dict(sorted(labels.items())),
        named_strangers=named,
        pile=len(predictions),
        accepted={name: accepted[name] for name in names},
        strangers=sum(p.stranger for p in predictions) if known else None,
        likely_strangers=_likely_strangers(fitted),
        missed_strangers=_missed_strangers(fitted),
        reject=fitted.reject,
        skipped=len(fitted.rows.skipped),
        pile_helps=learned.pile_helps,
        message=learned.message,
        held_out=learned.held_out,
        notes=[*notes, *more],
        next_to_label=[predictions[index].item.shown for index in asked],
    )


def _likely_strangers(fitted: FittedPile) -> dict[str, float] | None:
    """How many strangers the pile likely holds, by the classifier, and not fewer than are sorted out.

    Of members a share `reject` is sorted out, so that of the images sorted out all but
    reject / (1 - reject) for each accepted one are strangers.
    """
    count = fitted.learned.count
    if count is None:
        return None
    out = sum(prediction.stranger for prediction in fitted.predictions)
    lost = fitted.reject / (1 - fitted.reject) * (len(fitted.predictions) - out)
    pairs = zip(fitted.predictions, fitted.fitted_as, strict=True)
    known = sum(p.stranger and row < fitted.first for p, row in pairs)  # copies of named strangers
    expected = max(known + float(count.expected), out - lost)
    high = max(known + float(count.high), expected)
    likely = {"expected": expected, "low": known + float(count.low), "high": high}
    return {name: round(count, 1) for name, count in likely.items()}


def _missed_strangers(fitted: FittedPile) -> float | None:
    """How many strangers of the pile are likely among the accepted."""
    if fitted.learned.count is None:
        return None
    shares = fitted.answers.scores[fitted.first :]
    return round(missed(fitted.learned.count.expected, shares, fitted.reject), 1)


def _doubts(fitted: FittedPile) -> list[str]:
    """Labels that the others contradict, in words."""
    doubts, items = fitted.learned.doubts, fitted.rows.items
    names = fitted.classifier.classes
    lines = [
        f"{printable(items[doubt.row].shown)} looks like {printable(str(names[doubt.suggested]))}, not "
        f"{printable(str(names[doubt.given]))}"
        for doubt in doubts[:NAMED]
    ]
    return lines + (
        [f"{len(doubts) - NAMED:,} more labels look wrong"] if len(doubts) > NAMED else []
    )


def near_chance(fitted: FittedPile, labels: Mapping[str, int]) -> str | None:
    """A warning if held-out labels are predicted hardly better than by naming the largest class."""
    held_out = fitted.learned.held_out
    if held_out is None or held_out.examples < SOME_HELD_OUT:
        return None
    chance = max(labels.values()) / sum(labels.values())
    right = round(held_out.accuracy * held_out.examples)
    few = held_out.examples < ENOUGH_HELD_OUT  # for a test: only what is not better at all
    if held_out.accuracy > chance and (
        few or bdtrc(right - 1, held_out.examples, chance) <= CHANCE
    ):
        return None  # bdtrc: P(at least `right`)
    name = printable(fitted.encoder.name) if fitted.encoder else "these features"
    return (
        f"of {held_out.examples:,} held-out labeled images {right:,} are predicted right, hardly better than "
        f"by chance: {name} may not separate your classes; try another --encoder, or check "
        "the labels"
    )
