"""Tables as data: numbers, grids, sections of a page; records -> grids, beside published numbers."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from statistics import fmean
from typing import Literal, TypeVar

import numpy as np
from scipy.special import stdtrit

from semishot.errors import InputError
from semishot.paper.published import PublishedCell
from semishot.report.charts import LOOKS, Chart, Line
from semishot.training.records import Record

AGREES = 2.0
"""Cells agree up to this |z|; beyond it one is above the other."""
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Number:
    value: float
    error: float | None = None
    """Shown after a ±."""
    decimals: int = 2
    form: Literal["plain", "difference", "error"] = "plain"
    """A difference is shown with its sign, and as above or below; an error is shown after a ±."""
    note: str = ""
    """Shown in parentheses: the number of splits, if it is smaller than for other cells."""
    ratio: float | None = None
    """Of a difference to its standard error, in parentheses too."""
    statistic: Literal["z", "t"] = "z"
    """What the ratio is called: t for a difference between our own splits."""
    needed: float = AGREES
    """Beyond this ratio the difference is marked as above or below."""

    @property
    def tone(self) -> Literal["", "above", "below"]:
        """Of a difference that is more than chance."""
        if self.ratio is None or abs(self.ratio) <= self.needed:
            return ""
        return "below" if self.value < 0 else "above"


GridCell = str | int | Number | None
"""Text, a count or a seed, a number, or None where nothing was measured."""


@dataclass(frozen=True)
class Grid:
    caption: str
    header: list[str]
    rows: list[list[GridCell]]

    def has_words(self, column: int) -> bool:
        return any(isinstance(row[column], str) and row[column] for row in self.rows)


@dataclass(frozen=True)
class Section:
    """Text may contain `code` in backquotes."""

    title: str
    grids: list[Grid]
    provenance: Mapping[str, str]
    """How, where and when it was measured, by name."""
    commands: list[str] = field(default_factory=list)
    """What to run to measure it again, in order."""
    note: str = ""
    """How to read it, shown above the grids."""
    finding: str = ""
    """What the numbers say, shown below them."""
    charts: Sequence[Chart] = ()
    summary: list[GridCell] = field(default_factory=list)
    """A row of the overview, if the paper has this table."""


@dataclass(frozen=True)
class Measured:
    """One cell: accuracy in percent over splits."""

    mean: float
    error: float
    """Standard error over splits, with ddof = 1."""
    interval: float
    """Mean half-width of the 95 % interval over episodes within a split."""
    splits: int

    def number(self, most_splits: int = 0) -> Number:
        """One split has no standard error; fewer splits than other cells have are noted."""
        note = str(self.splits) if self.splits < most_splits else ""
        return Number(self.mean, self.error if self.splits > 1 else None, note=note)

    def z(self, theirs: PublishedCell) -> float | None:
        """The difference over the standard errors of both, as shown; None if either is unknown."""
        if self.splits < 2 or theirs.standard_error is None:
            return None
        error = math.hypot(self.error, theirs.standard_error)
        return round((self.mean - theirs.mean) / max(1e-12, error), 1)


def measured(records: Iterable[Record]) -> Measured | None:
    """The cell of these records, one for each split; None without records."""
    rows = list(records)
    if not rows:
        return None
    seed, count = Counter(row["split_seed"] for row in rows).most_common(1)[0]
    if count > 1:
        first = rows[0]
        raise InputError(
            f"{first['dataset']}, {first['model']}, {first['way']}-way {first['shot']}-shot, "
            f"M = {first['unlabeled']}, H = {first['distractors']}: two records of split seed {seed}; "
            "remove one of them from the result files"
        )
    accuracies = 100 * np.array([row["accuracy"] for row in rows])
    interval = 100 * float(np.mean([row["accuracy_ci95"] for row in rows]))
    error = standard_error(accuracies.tolist())
    return Measured(float(accuracies.mean()), error, interval, len(rows))


def standard_error(values: Sequence[float]) -> float:
    """Of the mean, with ddof = 1; 0 for a single value, of which nothing is known."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def beside(ours: Measured | None, theirs: PublishedCell | None) -> list[GridCell]:
    """The published number as printed, and how far the measured one is above it."""
    if theirs is None:
        return [None, None]
    published = Number(theirs.mean, theirs.error, note=theirs.source)
    if ours is None:
        return [published, None]
    return [published, Number(ours.mean - theirs.mean, form="difference", ratio=ours.z(theirs))]


def paired(ours: Mapping[int, float], base: Mapping[int, float]) -> Number:
    """The difference split by split, by split seed, with its 95 % interval and Student's t."""
    gaps = [ours[seed] - base[seed] for seed in ours]
    mean = fmean(gaps)
    if len(gaps) < 2:
        return Number(mean, form="difference")
    error, needed = standard_error(gaps), float(stdtrit(len(gaps) - 1, 0.975))
    note = f"{mean - needed * error:+.2f} to {mean + needed * error:+.2f}"
    ratio = mean / max(1e-12, error)
    return Number(mean, form="difference", note=note, ratio=ratio, statistic="t", needed=needed)


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """In the order in which the keys come."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def grid_of(
    records: Sequence[R],
    head: Mapping[str, Callable[[R], GridCell]],
    column: str,
    columns: Mapping[int, str],
    more: Sequence[str],
    cells: Callable[[list[R], int, list[R]], Sequence[GridCell]],
) -> Grid:
    """A row for the records of the same `head`, and in it, for each value of the field `column`, what `cells`
    makes of the row's records, the value, and its records: as many cells as it and `more` have titles."""
    rows = []
    for first, own in grouped(records, lambda r: tuple(cell(r) for cell in head.values())).items():
        by_column = grouped(own, itemgetter(column))
        found = [cells(own, value, by_column.get(value, [])) for value in columns]
        rows.append([*first, *chain(*found)])
    header = [name for title in columns.values() for name in (title, *more)]
    return Grid("", [*head, *header], rows)


def line_of(label: str, look: int, across: Iterable[float], cells: Iterable[GridCell]) -> Line:
    """The numbers of a row as points with error bars."""
    known = [(x, c) for x, c in zip(across, cells, strict=True) if isinstance(c, Number)]
    points = [(float(x), number.value) for x, number in known]
    return Line(label, look % LOOKS, points, [number.error or 0.0 for _, number in known])
