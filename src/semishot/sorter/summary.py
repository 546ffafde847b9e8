"""The results of `classify`: as JSON for programs, as a few lines for people."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semishot.errors import counted, printable
from semishot.sorter.moving.journal import SORTED, undo_command
from semishot.sorter.moving.move_files import Outcome
from semishot.sorter.out_folder import PREDICTIONS, REPORT, SKIPPED
from semishot.sorter.predictions import Prediction

if TYPE_CHECKING:  # it imports scipy
    from semishot.estimator.models import HeldOut

SHOWN_CLASSES = 50
MOST_NAMED = 20
"""Files that are named one by one; of others the number is said."""


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
    strangers: int | None
    """Images of the pile that are taken for strangers. None: not known."""
    likely_strangers: dict[str, float] | None
    """How many strangers the pile likely holds: expected, and from low to high in 90 % of cases."""
    missed_strangers: float | None
    """How many strangers are likely among the accepted images."""
    reject: float
    skipped: int
    """Files."""
    pile_helps: bool | None
    message: str
    held_out: "HeldOut | None"
    notes: list[str]
    next_to_label: list[str]
    seconds: float = 0.0
    seconds_by_part: dict[str, float] = field(default_factory=dict)
    """Of the whole: listing, images, learning and page; reading, decoding and encoding of the images take
    place beside each other, so theirs are sums over threads."""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "held_out": self.held_out and self.held_out._asdict()}

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
        """How many there likely are, how many are sorted out, and how many are likely missed."""
        if not self.pile:
            return "Every image of the pile has a label."
        if self.strangers is None:
            return (
                "Which images are strangers cannot be told: it takes two labeled images of some class, "
                "or two in the pile that differ."
            )
        out = "none is sorted out as a stranger"
        if self.strangers:
            sorted_out = counted(
                self.strangers, "is sorted out as a stranger", "are sorted out as strangers"
            )
            out = f"{sorted_out}, at a loss of about {self.reject:.0%} of members"
        if self.likely_strangers is None or self.missed_strangers is None:
            return f"{out[0].upper()}{out[1:]}."
        expected, low, high = (round(self.likely_strangers[k]) for k in ("expected", "low", "high"))
        belong = "belongs" if expected == 1 else "belong"
        missed = counted(round(self.missed_strangers), "is likely missed", "are likely missed")
        return (
            f"About {expected:,} ({low:,} to {high:,}) of the pile {belong} to none of the classes; {out}, "
            f"and about {missed}."
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
        wide = max(len(printable(name)) for name in shown)
        lines += [f"  {printable(n):{wide}}  {self.accepted[n]:>7,}" for n in shown]
        if len(names) > SHOWN_CLASSES:
            more = counted(len(names) - SHOWN_CLASSES, "more class", "more classes")
            lines.append(f"  and {more}")
        return [*lines, *self.verdict(), *(f"Note: {note}." for note in self.notes)]


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
