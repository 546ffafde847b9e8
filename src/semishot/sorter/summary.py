"""The results of `classify`: as JSON for programs, as a few lines for people.

Every number about a pile is computed here, and every sentence that has one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semishot.errors import counted, printable
from semishot.sorter.listing import STRANGER
from semishot.sorter.moving.journal import SORTED, undo_command
from semishot.sorter.moving.move_files import Outcome
from semishot.sorter.out_folder import PREDICTIONS, REPORT, SKIPPED
from semishot.sorter.predictions import DIGITS, Prediction

if TYPE_CHECKING:  # it imports scipy
    from semishot.sorter.learning import FittedPile

SHOWN_CLASSES, SHOWN_KINDS, SHOWN_TYPICAL, TYPICAL = 50, 5, 3, 8
MOST_NAMED, DOUBTS_NAMED = 20, 10
"""Files, and doubtful labels, that are named one by one; of others the number is said."""
ENOUGH_HELD_OUT, CHANCE = 12, 0.05
"""Held-out images from which on it is judged whether they are predicted better than by chance, and how
probable their accuracy may be by chance."""


@dataclass(frozen=True)
class UnnamedKind:
    """Images of the pile that look alike, and like none of the classes."""

    size: int
    typical: list[str]


@dataclass(frozen=True)
class PileSummary:
    """A classified pile in numbers: `result.json`."""

    encoder: str
    labeled: dict[str, int]
    """Labeled images of each class."""
    named_strangers: int
    """Images that the user has named strangers."""
    pile: int
    """Images in the pile."""
    accepted: dict[str, int]
    """Images of the pile that are accepted, of each class."""
    strangers: int
    """Images of the pile that are set aside as strangers."""
    likely_strangers: dict[str, float]
    """How many strangers the pile likely holds: expected, which is the sum of the probabilities of
    predictions.csv, and from low to high in 90 % of cases."""
    missed_strangers: float
    """How many strangers are likely among the accepted images."""
    lost_members: float
    """How many images that are set aside likely belong to a class."""
    likely_wrong: float
    """How many decisions are likely wrong."""
    reject: float | str
    skipped: int
    """Files."""
    message: str
    """How the pile was used."""
    held_out: dict[str, float] | None
    """Labeled images held out in turn: how many, the share predicted right, their mean probability."""
    notes: list[str]
    next_to_label: list[str]
    kinds: list[UnnamedKind] = field(default_factory=list)
    """The largest first."""
    seconds: float = 0.0
    seconds_by_part: dict[str, float] = field(default_factory=dict)
    """Of the whole: listing, images, learning and page; reading, decoding and encoding of the images take
    place beside each other, so theirs are sums over threads."""

    def lines(self) -> list[str]:
        """How many images there are of what, and what a person should know."""
        row = "row" if self.encoder == "features" else "image"
        seen = f", seen by the encoder {printable(self.encoder)}" if row == "image" else ""
        labeled = counted(sum(self.labeled.values()), f"labeled {row}")
        given = [f"{labeled} of {counted(len(self.labeled), 'class', 'classes')}"]
        if self.named_strangers:
            given.append(counted(self.named_strangers, "named stranger"))
        given.append(f"{counted(self.pile, row)} in the pile{seen}.")
        largest = sorted(self.accepted.items(), key=lambda pair: -pair[1])
        wide = max(len(name) for name, _ in largest[:SHOWN_CLASSES])
        counts = [f"  {name:{wide}}  {count:>7,}" for name, count in largest]
        counts = first_few(counts, SHOWN_CLASSES, "  and {} more")
        return [", ".join(given), *counts, self.likely(), *self.remarks()]

    def likely(self) -> str:
        """How many likely belong to no class, and how many are likely sorted wrong."""
        if not self.pile:
            return "Every image of the pile has a label."
        expected, low, high = (round(number) for number in self.likely_strangers.values())
        aside = "none is set aside"
        if self.strangers:
            aside = f"{counted(self.strangers, 'is', 'are')} set aside"
            aside += f", about {round(self.lost_members):,} wrongly"
        return (
            f"The pile holds about {counted(expected, 'stranger')} ({low:,} to {high:,}), which belong to "
            f"none of the classes; {aside}. In all, about {round(self.likely_wrong):,} of {self.pile:,} are "
            "likely sorted wrong."
        )

    def remarks(self) -> list[str]:
        """The largest kinds without a name, and the notes."""
        kinds = [
            f"About {kind.size:,} more look alike and have no class: see "
            f"{', '.join(map(printable, kind.typical[:SHOWN_TYPICAL]))}."
            for kind in self.kinds
        ]
        kinds = first_few(kinds, SHOWN_KINDS, "Smaller groups that look alike: {}.")
        return [*kinds, *(f"Note: {note}." for note in self.notes)]


def summarize(fitted: "FittedPile", asked: Sequence[int]) -> PileSummary:
    """The numbers of a pile. asked: indices of the predictions that the user is asked to label next."""
    learned, predictions = fitted.classifier.learned, fitted.predictions
    shown = [prediction.item.shown for prediction in predictions]
    decided = Counter(prediction.label for prediction in predictions)
    labels = Counter(str(item.label) for item in fitted.labeled_items)
    named_strangers = labels.pop(STRANGER, 0)
    missed = sum(p.stranger_probability for p in predictions if not p.stranger)
    lost = sum(1 - p.stranger_probability for p in predictions if p.stranger)
    return PileSummary(
        encoder=fitted.rows.encoder.name if fitted.rows.encoder else "features",
        labeled=dict(sorted(labels.items())),
        named_strangers=named_strangers,
        pile=len(predictions),
        accepted={str(name): decided[str(name)] for name in fitted.classifier.classes},
        strangers=decided[STRANGER],
        likely_strangers=_likely_strangers(fitted),
        missed_strangers=round(missed, DIGITS),
        lost_members=round(lost, DIGITS),
        likely_wrong=round(sum(1 - prediction.sure for prediction in predictions), DIGITS),
        reject=fitted.classifier.parameters.reject,
        skipped=len(fitted.rows.skipped),
        message=learned.message,
        held_out=learned.held_out and learned.held_out._asdict(),
        notes=[*fitted.rows.notes, *_doubts(fitted), *_doubtful_classes(fitted, labels)],
        next_to_label=[shown[index] for index in asked],
        kinds=[
            UnnamedKind(len(kind), [shown[index] for index in kind[:TYPICAL]])
            for kind in fitted.kinds()
        ],
    )


def _likely_strangers(fitted: "FittedPile") -> dict[str, float]:
    """The sum of what is written for each image. Copies count as often as they are there: the interval is
    that of the distinct ones, widened as much."""
    count, pile = fitted.classifier.learned.count, fitted.predictions
    expected = sum(prediction.stranger_probability for prediction in pile)
    pairs = zip(pile, fitted.fitted_as, strict=True)
    known = sum(p.stranger and row < fitted.first for p, row in pairs)
    distinct = len(fitted.rows.features) - fitted.first
    times = (len(pile) - known) / max(distinct, 1)
    low, high = (expected + times * (end - count.expected) for end in (count.low, count.high))
    return {
        "expected": round(expected, DIGITS),
        "low": round(max(0.0, min(low, expected)), 1),
        "high": round(min(float(len(pile)), max(high, expected)), 1),
    }


def _doubts(fitted: "FittedPile") -> list[str]:
    """Labels that the others contradict, in words."""
    doubts, names = fitted.classifier.learned.doubts, [*fitted.classifier.classes, "a stranger"]
    lines = [
        f"{printable(fitted.rows.items[doubt.row].shown)} looks like {names[doubt.suggested]}, not "
        f"{names[doubt.given]}"
        for doubt in doubts
    ]
    return first_few(lines, DOUBTS_NAMED, "labels that look wrong as well: {}")


def _doubtful_classes(fitted: "FittedPile", labels: Mapping[str, int]) -> list[str]:
    """A note if there is one class, or held-out labels are predicted hardly better than by chance."""
    from scipy.special import bdtrc

    if len(fitted.classifier.classes) == 1:
        return ["there is one class only: the question is which images belong to it"]
    held_out = fitted.classifier.learned.held_out
    if held_out is None or held_out.examples < ENOUGH_HELD_OUT:
        return []
    chance = max(labels.values()) / sum(labels.values())  # of naming the largest class
    right = round(held_out.accuracy * held_out.examples)
    if bdtrc(right - 1, held_out.examples, chance) <= CHANCE:  # P(at least `right`)
        return []
    name = printable(fitted.rows.encoder.name) if fitted.rows.encoder else "these features"
    return [
        f"of {held_out.examples:,} held-out labeled images {right:,} are predicted right, hardly better than "
        f"by chance: {name} may not separate your classes; try another --encoder, or check the labels"
    ]


def first_few(lines: Sequence[str], most: int, more: str) -> list[str]:
    """The first lines, and how many there are more."""
    left = len(lines) - most
    return [*lines[:most], *([more.format(f"{left:,}")] if left > 0 else [])]


def named(what: str, problems: Sequence[str]) -> list[str]:
    """Problems, one per line; of many, the first and a count."""
    lines = [f"{what}: {printable(problem)}" for problem in problems]
    return first_few(lines, MOST_NAMED, f"{what}: {{}} more")


@dataclass(frozen=True)
class Classified:
    """What `classify` did. Without a summary, it only completed a sorting that was interrupted."""

    out: Path
    summary: PileSummary | None = None
    predictions: list[Prediction] = field(default_factory=list)
    outcome: Outcome | None = None
    """What sorting the files did, if that was asked for."""
    left_alone: list[str] = field(default_factory=list)
    """What was not sorted, by rule."""
    sorted_before: bool = False

    @property
    def problems(self) -> list[str]:
        return [*self.left_alone, *(self.outcome.problems if self.outcome else ())]

    def as_json(self) -> dict[str, Any]:
        facts = {} if self.summary is None else asdict(self.summary)
        if self.outcome is not None:
            facts |= {"apply": self.outcome.how, "files": self.outcome.count}
        return {**facts, "problems": self.problems}

    def lines(self) -> list[str]:
        """The summary, what is where, how sorting is undone, and which files were not sorted."""
        out, summary, outcome = printable(str(self.out)), self.summary, self.outcome
        lines = summary.lines() if summary else []
        if summary and summary.skipped:
            skipped = counted(summary.skipped, "file was", "files were")
            lines.append(f"{skipped} skipped: {out}/{SKIPPED} says why.")
        if summary:
            lines.append(f"Look at {out}/{REPORT}; all predictions are in {out}/{PREDICTIONS}.")
        if outcome is None:
            unchanged = f"{out}/{SORTED} is unchanged: pass --apply to sort it again."
            return [*lines, unchanged] if self.sorted_before else lines
        if summary:
            done = f"The pile was sorted {'again ' * self.sorted_before}to {out}/{SORTED}"
        else:
            end = "was continued" if outcome.problems else "is complete"
            done = f"The interrupted sorting to {out}/{SORTED} {end}"
        undone = f"; `{printable(undo_command(self.out))}` undoes it" if outcome.count else ""
        counts = outcome.counts(self.sorted_before)
        return [*lines, f"{done}: {counts}{undone}.", *named("Not sorted", self.problems)]

    def failure(self) -> str | None:
        """A line for people whose files were not all sorted."""
        if self.outcome is None or not (failed := len(self.outcome.problems)):
            return None
        files = f"{failed:,} of {failed + self.outcome.count:,} files"
        return f"{files} could not be sorted; the same command tries again"
