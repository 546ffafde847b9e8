"""Records and logs -> line charts, as the numbers that chart.svg draws."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, log10
from pathlib import Path

import numpy as np

from semishot.errors import InputError
from semishot.paper import published
from semishot.report import tables
from semishot.report.tables import Record
from semishot.system.files import MOST_JSON, read_regular
from semishot.training.config import FleetConfig
from semishot.training.log import read_log

WIDTH, HEIGHT = 440, 300
LEFT, RIGHT, TOP, BOTTOM = 54, 428, 10, 254
"""Where the axes run, in the units of the drawing."""
MARKS = (
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
    "m-5 -3.5h10l-5 8.5z",
    "m-4 -4h8v8h-8z",
    "m0 -5.5l5 5.5l-5 5.5l-5 -5.5z",
    "m-5 3.5h10l-5 -8.5z",
)
"""A disk, a triangle, a square, a diamond, a triangle: lines are told apart by more than color."""
LOOKS = {model: look for look, model in enumerate(published.MODELS)}
POINTS = 200
"""Of a learning curve, at most."""


@dataclass(frozen=True)
class Line:
    label: str
    look: int
    """Which color and mark, as in the paper's rows."""
    points: Sequence[tuple[float, float]]
    errors: Sequence[float] = ()
    marked: bool = True

    @property
    def legend(self) -> str:
        return f"M16 8{MARKS[self.look]}" if self.marked else ""


@dataclass(frozen=True)
class Chart:
    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    from_zero: bool = False
    filled: bool = False

    @cached_property
    def x_range(self) -> tuple[float, float]:
        values = [x for line in self.lines for x, _ in line.points]
        return min(values), max(max(values), min(values) + 1e-9)

    @cached_property
    def y_range(self) -> tuple[float, float]:
        """From tick to tick around everything drawn, error bars included."""
        ends = [(y, 0.0) for line in self.lines for _, y in line.points]
        for line in self.lines:
            ends += [(y, e) for (_, y), e in zip(line.points, line.errors, strict=False)]
        low = 0.0 if self.from_zero else min(y - e for y, e in ends)
        high = max(max(y + e for y, e in ends), low + 1e-9)
        step = tick_step(low, high)
        return floor(low / step) * step, ceil(high / step) * step

    @property
    def x_ticks(self) -> list[tuple[float, str]]:
        return [(self.across(x), label) for x, label in ticks(*self.x_range)]

    @property
    def y_ticks(self) -> list[tuple[float, str]]:
        return [(self.down(y), label) for y, label in ticks(*self.y_range)]

    def across(self, x: float) -> float:
        low, high = self.x_range
        return round(LEFT + (RIGHT - LEFT) * (x - low) / (high - low), 1)

    def down(self, y: float) -> float:
        low, high = self.y_range
        return round(BOTTOM - (BOTTOM - TOP) * (y - low) / (high - low), 1)

    def path(self, line: Line) -> str:
        return "M" + "L".join(f"{self.across(x)} {self.down(y)}" for x, y in line.points)

    def area(self, line: Line) -> str:
        """The line and the ground under it."""
        first, last = line.points[0][0], line.points[-1][0]
        return f"{self.path(line)}L{self.across(last)} {BOTTOM}L{self.across(first)} {BOTTOM}z"

    def marks(self, line: Line) -> str:
        return "".join(
            f"M{self.across(x)} {self.down(y)}{MARKS[line.look]}" for x, y in line.points
        )

    def bars(self, line: Line) -> str:
        ends = zip(line.points, line.errors, strict=True)
        return "".join(
            f"M{self.across(x) - 4} {self.down(y + s * e)}h8m-4 0V{self.down(y)}"
            for (x, y), e in ends
            for s in (-1, 1)
        )


def tick_step(low: float, high: float) -> float:
    """1, 2 or 5 times a power of ten, so that about five fit."""
    rough = (high - low) / 5
    power = 10.0 ** floor(log10(rough))
    return power * next(step for step in (1, 2, 5, 10) if step * power >= rough * 0.999)


def ticks(low: float, high: float) -> list[tuple[float, str]]:
    step = tick_step(low, high)
    decimals = max(0, -floor(log10(step)))
    places = range(ceil(low / step - 1e-6), floor(high / step + 1e-6) + 1)
    return [(place * step, f"{place * step:,.{decimals}f}") for place in places]


def unlabeled_charts(table: published.Table, records: list[Record]) -> list[Chart]:
    """Figures 4 and 6: a chart per shot and column, a line per model."""
    charts = []
    for shot in sorted({r["shot"] for r in records}):
        at = {m: tables.cells(records, shot, m) for m in table.tests}
        for h in published.DISTRACTORS:
            lines = []
            for model, label in published.MODELS.items():
                found = [(m, at[m][model, h]) for m in table.tests]
                points = [(m, ours.mean, ours.error) for m, ours in found if ours]
                if len(points) > 1:  # one, from a table, is no curve
                    dots, errors = [(m, mean) for m, mean, _ in points], [e for *_, e in points]
                    lines.append(Line(label, LOOKS[model], dots, errors))
            title = f"5-way {shot}-shot, {tables.COLUMNS[h]}"
            if lines:
                charts.append(
                    Chart(title, "unlabeled images per class at test", "accuracy (%)", lines)
                )
    return charts


def mask_chart(records: Sequence[Record]) -> Chart:
    """Figure 7: the mask values of distractors and of other images."""
    lines = []
    for name, label, look in (
        ("others", "of the episode's classes", 1),
        ("distractors", "distractors", 4),
    ):
        counts = np.array(
            [r["mask_histogram"][name] for r in records if "mask_histogram" in r]
        ).sum(0)
        shares = 100 * counts / counts.sum()
        edges = np.linspace(0, 1, len(shares) + 1)
        points = [(float(x), float(y)) for i, y in enumerate(shares) for x in edges[i : i + 2]]
        lines.append(Line(label, look, points, marked=False))
    x_label = "mask of an unlabeled image (largest over the classes)"
    return Chart(
        "Mask values", x_label, "% of the images of its kind", lines, from_zero=True, filled=True
    )


def learning_curves(folder: Path) -> Chart | None:
    """The loss of each method of a fleet, the mean over its splits; None if nothing is logged."""
    try:
        config = FleetConfig.from_json(read_regular(folder / "config.json", MOST_JSON).decode())
        log = read_log(folder)
        steps = np.array([line["step"] for line in log], float)
        losses = np.array([line["loss"] for line in log], float).reshape(-1, len(config.members))
    except (OSError, InputError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"cannot read the log of {folder}: {error}") from error
    if not len(losses) or not np.isfinite(losses).all():
        return None
    parts = np.array_split(np.arange(len(steps)), min(POINTS, len(steps)))
    lines = []
    for model in dict.fromkeys(member.model for member in config.members):
        runs = [run for run, member in enumerate(config.members) if member.model == model]
        means = losses[:, runs].mean(1)
        points = [(float(steps[part].mean()), float(means[part].mean())) for part in parts]
        lines.append(
            Line(published.MODELS.get(model, model), LOOKS.get(model, 0), points, marked=False)
        )
    s = config.shape
    episode = f"{s.way}-way {s.shot}-shot, M = {s.unlabeled}, H = {s.distractors}"
    title = f"{config.dataset}, preset {config.preset}, {episode}"
    return Chart(title, "updates", "training loss", lines, from_zero=True)
