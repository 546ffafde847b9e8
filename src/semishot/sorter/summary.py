"""The results of `classify`: as JSON for programs, as a few lines for people.

Every number about a pile is computed here, and every sentence that has one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from semishot.errors import counted, printable
from semishot.sorter.listing import STRANGER
from semishot.sorter.moving.journal import SORTED, undo_command
from semishot.sorter.moving.move_files import Outcome
from semishot.sorter.out_folder import PREDICTIONS, REPORT, SKIPPED
from semishot.sorter.predictions import DIGITS, Prediction

if TYPE_CHECKING:  # they import scipy
    from semishot.estimator.answers import HeldOut
    from semishot.sorter.learning import FittedPile

SHOWN_CLASSES, SHOWN_KINDS, SHOWN_TYPICAL, TYPICAL = 50, 5, 3, 8
MOST_NAMED = 20
"""Files that are named one by one; of others the number is said."""
DOUBTS_NAMED = 10
"""How many doubtful labels are named."""
ENOUGH_HELD_OUT, CHANCE = 12, 0.05
"""Held-out images from which on it is judged whether they are predicted better than by chance, and how
probable their accuracy may be by chance."""


class UnnamedKind(NamedTuple):
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
    """Images of the pile that are taken for strangers."""
    likely_strangers: dict[str, float]
    """How many strangers the pile likely holds: expected, which is the sum of the probabilities of
    predictions.csv, and from low to high in 90 % of cases."""
    missed_strangers: float
    """How many strangers are likely among the accepted images: the sum of their probabilities."""
    lost_members: float
    """How many images that are taken for strangers likely belong to a class."""
    likely_wrong: float
    """How many decisions are likely wrong."""
    reject: float | str
    skipped: int
    """Files."""
    message: str
    held_out: "HeldOut | None"
    notes: list[str]
    next_to_label: list[str]
    kinds: list[UnnamedKind] = field(default_factory=list)
    """The largest first."""
    seconds: float = 0.0
    seconds_by_part: dict[str, float] = field(default_factory=dict)
    """Of the whole: listing, images, learning and page; reading, decoding and encoding of the images take
    place beside each other, so theirs are sums over threads."""

    def as_json(self) -> dict[str, Any]:
        kinds = [kind._asdict() for kind in self.kinds]
        held_out = self.held_out and self.held_out._asdict()
        return {**asdict(self), "held_out": held_out, "kinds": kinds}

    def verdict(self) -> list[str]:
        """Strangers, the use of the pile, and whether probabilities can be trusted."""
        calibration = "not known, as no labeled image can be held out"
        if (held_out := self.held_out) is not None:
            calibration = (
                f"of {held_out.examples:,} held-out labeled images {held_out.accuracy:.0%} are right, "
                f"at a mean probability of {held_out.probability:.0%}"
            )
        return [
            self.about_strangers(),
            f"The pile: {self.message}.",
            f"Calibration: {calibration}.",
        ]

    def about_strangers(self) -> str:
        """How many there likely are, how many images are taken for one, and how many are likely missed."""
        if not self.pile:
            return "Every image of the pile has a label."
        found = "none is taken for a stranger"
        if self.strangers:
            taken = counted(self.strangers, "is taken for a stranger", "are taken for strangers")
            found = f"{taken}, of which about {round(self.lost_members):,} likely belong to a class"
        expected, low, high = (round(self.likely_strangers[k]) for k in ("expected", "low", "high"))
        are = "is a stranger" if expected == 1 else "are strangers"
        missed = counted(round(self.missed_strangers), "is likely missed", "are likely missed")
        return (
            f"About {expected:,} ({low:,} to {high:,}) of the pile {are}, of none of the classes; {found}; "
            f"about {missed}. In all, about {round(self.likely_wrong):,} of {self.pile:,} are likely sorted "
            "wrong."
        )

    def lines(self) -> list[str]:
        """The counts, the verdict and the notes."""
        named = counted(self.named_strangers, "named stranger")
        strangers = f"{named}, " if self.named_strangers else ""
        singular, plural = "image", "images"
        seen = f", seen by the encoder {printable(self.encoder)}"
        if self.encoder == "features":
            singular, plural, seen = "row of features", "rows of features", ""
        lines = [
            f"{counted(sum(self.labeled.values()), f'labeled {singular}', f'labeled {plural}')} of "
            f"{counted(len(self.labeled), 'class', 'classes')}, {strangers}"
            f"{counted(self.pile, singular, plural)} in the pile{seen}."
        ]
        names = sorted(self.accepted, key=lambda name: -self.accepted[name])
        shown = names[:SHOWN_CLASSES]
        wide = max(map(len, shown))
        lines += [f"  {name:{wide}}  {self.accepted[name]:>7,}" for name in shown]
        if len(names) > SHOWN_CLASSES:
            more = counted(len(names) - SHOWN_CLASSES, "more class", "more classes")
            lines.append(f"  and {more}")
        notes = (f"Note: {note}." for note in self.notes)
        return [*lines, *self.verdict(), *self.about_kinds(), *notes]

    def about_kinds(self) -> list[str]:
        """The largest kinds without a name."""
        lines = []
        for kind in self.kinds[:SHOWN_KINDS]:
            typical = ", ".join(printable(name) for name in kind.typical[:SHOWN_TYPICAL])
            lines.append(f"About {kind.size:,} more look alike and have no class: see {typical}.")
        if (more := len(self.kinds) - SHOWN_KINDS) > 0:
            lines.append(f"{counted(more, 'smaller group looks', 'smaller groups look')} alike.")
        return lines


def summarize(fitted: "FittedPile", notes: Sequence[str], asked: Sequence[int]) -> PileSummary:
    """The numbers of a pile. asked: indices of the predictions that the user is asked to label next."""
    learned, predictions = fitted.classifier.learned, fitted.predictions
    names = [str(name) for name in fitted.classifier.classes]
    decided = Counter(prediction.label for prediction in predictions)
    labels = Counter(str(item.label) for item in fitted.labeled_items)
    named_strangers = labels.pop(STRANGER, 0)
    kept = [prediction for prediction in predictions if not prediction.stranger]
    missed = sum(prediction.stranger_probability for prediction in kept)
    lost = sum(1 - p.stranger_probability for p in predictions if p.stranger)
    more = _doubts(fitted)
    if len(names) == 1:
        more.append("there is one class only: the question is which images belong to it")
    elif (line := _near_chance(fitted, labels)) is not None:
        more.append(line)
    return PileSummary(
        encoder=fitted.encoder.name if fitted.encoder else "features",
        labeled=dict(sorted(labels.items())),
        named_strangers=named_strangers,
        pile=len(predictions),
        accepted={name: decided[name] for name in names},
        strangers=decided[STRANGER],
        likely_strangers=_likely_strangers(fitted),
        missed_strangers=round(missed, DIGITS),
        lost_members=round(lost, DIGITS),
        likely_wrong=round(lost + sum(1 - prediction.sure for prediction in kept), DIGITS),
        reject=fitted.classifier.parameters.reject,
        skipped=len(fitted.rows.skipped),
        message=learned.message,
        held_out=learned.held_out,
        notes=[*notes, *more],
        next_to_label=[predictions[index].item.shown for index in asked],
        kinds=[
            UnnamedKind(len(kind), [predictions[index].item.shown for index in kind[:TYPICAL]])
            for kind in fitted.kinds()
        ],
    )


def _likely_strangers(fitted: "FittedPile") -> dict[str, float]:
    """The sum of what is written for each image. Copies count as often as they are there: the interval is
    that of the distinct ones, widened as much."""
    count, pile = fitted.classifier.learned.count, fitted.predictions
    expected = sum(prediction.stranger_probability for prediction in pile)
    distinct = len(set(fitted.fitted_as) - set(range(fitted.first)))
    known = sum(
        p.stranger and r < fitted.first for p, r in zip(pile, fitted.fitted_as, strict=True)
    )
    times = (len(pile) - known) / max(distinct, 1)
    low, high = (expected + times * (end - count.expected) for end in (count.low, count.high))
    ends = max(0.0, min(low, expected)), min(float(len(pile)), max(high, expected))
    return {
        "expected": round(expected, DIGITS),
        "low": round(ends[0], 1),
        "high": round(ends[1], 1),
    }


def _doubts(fitted: "FittedPile") -> list[str]:
    """Labels that the others contradict, in words."""
    doubts, names = fitted.classifier.learned.doubts, [*fitted.classifier.classes, "a stranger"]
    lines = [
        f"{printable(fitted.rows.items[doubt.row].shown)} looks like {names[doubt.suggested]}, not "
        f"{names[doubt.given]}"
        for doubt in doubts[:DOUBTS_NAMED]
    ]
    more = len(doubts) - DOUBTS_NAMED
    return [*lines, f"{more:,} more labels look wrong"] if more > 0 else lines


def _near_chance(fitted: "FittedPile", labels: Mapping[str, int]) -> str | None:
    """A warning if held-out labels are predicted hardly better than by naming the largest class."""
    from scipy.special import bdtrc

    held_out = fitted.classifier.learned.held_out
    if held_out is None or held_out.examples < ENOUGH_HELD_OUT:
        return None
    chance = max(labels.values()) / sum(labels.values())
    right = round(held_out.accuracy * held_out.examples)
    if bdtrc(right - 1, held_out.examples, chance) <= CHANCE:  # P(at least `right`)
        return None
    name = printable(fitted.encoder.name) if fitted.encoder else "these features"
    return (
        f"of {held_out.examples:,} held-out labeled images {right:,} are predicted right, hardly better than "
        f"by chance: {name} may not separate your classes; try another --encoder, or check "
        "the labels"
    )


def named(what: str, problems: Sequence[str]) -> list[str]:
    """Problems, one per line; of many, the first and a count."""
    lines = [f"{what}: {printable(problem)}" for problem in problems[:MOST_NAMED]]
    more = len(problems) - MOST_NAMED
    return [*lines, f"{what}: {more:,} more"] if more > 0 else lines


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
        facts = {} if self.summary is None else self.summary.as_json()
        if self.outcome is not None:
            count = self.outcome.count
            completed = {"completed": count} if self.summary is None else {}
            facts |= {**completed, "apply": self.outcome.how, "files": count}
        return {**facts, "problems": self.problems}

    def lines(self) -> list[str]:
        """The summary, what is where, how sorting is undone, and which files were not sorted."""
        out, lines = printable(str(self.out)), list[str]()
        if self.summary is not None:
            lines += self.summary.lines()
            if self.summary.skipped:
                skipped = counted(self.summary.skipped, "file was", "files were")
                lines.append(f"{skipped} skipped: {out}/{SKIPPED} says why.")
            lines.append(f"Look at {out}/{REPORT}; all predictions are in {out}/{PREDICTIONS}.")
        if self.outcome is None:
            unchanged = f"{out}/{SORTED} is unchanged: pass --apply to sort it again."
            return [*lines, unchanged] if self.sorted_before else lines
        if self.summary is not None:
            done = f"The pile was sorted {'again ' * self.sorted_before}to {out}/{SORTED}"
        else:
            end = "was continued" if self.outcome.problems else "is complete"
            done = f"The interrupted sorting to {out}/{SORTED} {end}"
        undone = f"; `{printable(undo_command(self.out))}` undoes it"
        lines.append(f"{done}: {self._counts()}{undone if self.outcome.undoable else ''}.")
        return [*lines, *named("Not sorted", self.problems)]

    def _counts(self) -> str:
        assert self.outcome is not None
        return self.outcome.counts(self.sorted_before and self.summary is not None)

    def failure(self) -> str | None:
        """A line for people whose files were not all sorted."""
        if self.outcome is None or not (failed := len(self.outcome.problems)):
            return None
        again = "; the same command tries again" if self.outcome.left else ""
        return (
            f"{failed:,} of {failed + self.outcome.count:,} files could not be sorted "
            f"({self._counts()}){again}"
        )
