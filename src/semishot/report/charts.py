"""Charts as data, with the numbers and paths that chart.svg draws, and the learning curves of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from math import ceil, floor, log10
from pathlib import Path

import numpy as np

from semishot.paper import published
from semishot.system.files import reading
from semishot.training.config import read_config
from semishot.training.run_folder import read_log

MOST_POINTS = 200
"""Of a learning curve."""
MARKS = (
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
    "m-5 -3.5h10l-5 8.5z",
    "m-4 -4h8v8h-8z",
    "m0 -5.5l5 5.5l-5 5.5l-5 -5.5z",
    "m-5 3.5h10l-5 -8.5z",
    "m-5 -1.5h3.5v-3.5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5z",
    "m-4.5 0l2 -4h5l2 4l-2 4h-5z",
    "m3.5 -5v10l-8.5 -5z",
)
"""A disk, a triangle, a square, a diamond, a triangle, then for other methods a plus, a hexagon, a triangle:
lines differ by more than color."""
LOOKS = len(MARKS)


@dataclass(frozen=True)
class Line:
    label: str
    look: int
    """Which color and mark, as in the paper's rows; from 0 to LOOKS - 1."""
    points: Sequence[tuple[float, float]]
    errors: Sequence[float] = ()
    marked: bool = True


WIDTH, PLOT_HEIGHT, LEGEND_LINE = 440, 310, 20
SHORT = 29
"""Letters of a label that leaves room for another one beside it."""
LEFT, RIGHT, TOP, BOTTOM = 54, 428, 30, 264
"""Positions in the units of the drawing, in which text is 13 high."""


@dataclass(frozen=True)
class Chart:
    """Lines over one axis; its properties and methods are the numbers and paths of the drawing."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    from_zero: bool = False
    filled: bool = False
    x_names: Sequence[str] = ()
    """What stands at x = 1, 2, ..., instead of numbers."""

    @property
    def height(self) -> int:
        return PLOT_HEIGHT + LEGEND_LINE * ceil(len(self.lines) / self.in_a_row)

    @property
    def in_a_row(self) -> int:
        """Entries of the legend: two if they are short."""
        return 2 if all(len(line.label) < SHORT for line in self.lines) else 1

    @property
    def legend(self) -> list[tuple[Line, int, int]]:
        """Each line with the position of its entry."""
        across = self.in_a_row
        return [
            (line, 220 * (index % across), PLOT_HEIGHT + LEGEND_LINE * (index // across))
            for index, line in enumerate(self.lines)
        ]

    @cached_property
    def x_range(self) -> tuple[float, float]:
        if self.x_names:
            return 0.5, len(self.x_names) + 0.5
        values = [x for line in self.lines for x, _ in line.points]
        return min(values), max(max(values), min(values) + 1e-9)

    @cached_property
    def y_range(self) -> tuple[float, float]:
        """The range between ticks that contains everything drawn, error bars included."""
        ends = [
            (y, error)
            for line in self.lines
            for (_, y), error in zip(line.points, line.errors or repeat(0.0), strict=False)
        ]
        low = 0.0 if self.from_zero else min(y - error for y, error in ends)
        high = max(max(y + error for y, error in ends), low + 1e-9)
        step = tick_step(low, high)
        return floor(low / step) * step, ceil(high / step) * step

    @property
    def x_ticks(self) -> list[tuple[float, str]]:
        named = [(float(x), name) for x, name in enumerate(self.x_names, 1)]
        return [(self.across(x), label) for x, label in named or ticks(*self.x_range)]

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
        """The line and the area under it."""
        first, last = line.points[0][0], line.points[-1][0]
        return f"{self.path(line)}L{self.across(last)} {BOTTOM}L{self.across(first)} {BOTTOM}z"

    def marks(self, line: Line) -> str:
        at = (f"M{self.across(x)} {self.down(y)}" for x, y in line.points)
        return "".join(place + MARKS[line.look] for place in at)

    def bars(self, line: Line) -> str:
        return "".join(
            f"M{self.across(x) - 4} {self.down(y + end)}h8m-4 0V{self.down(y)}"
            for (x, y), error in zip(line.points, line.errors, strict=True)
            for end in (-error, error)
        )


def tick_step(low: float, high: float) -> float:
    """1, 2 or 5 times a power of ten, so that about five fit."""
    rough = (high - low) / 5
    power = 10.0 ** floor(log10(rough))
    return power * next(step for step in (1, 2, 5, 10) if step * power >= rough * 0.999)


def ticks(low: float, high: float) -> list[tuple[float, str]]:
    step = tick_step(low, high)
    decimals = max(0, -floor(log10(step)))
    indices = range(ceil(low / step - 1e-6), floor(high / step + 1e-6) + 1)
    return [(index * step, f"{index * step:,.{decimals}f}") for index in indices]


def steps(heights: Sequence[float]) -> list[tuple[float, float]]:
    """The outline of a histogram over bins of equal width from 0 to 1."""
    edges = np.linspace(0, 1, len(heights) + 1).tolist()
    return [(x, y) for i, y in enumerate(heights) for x in edges[i : i + 2]]


def learning_curves(folder: Path) -> Chart | None:
    """The loss of each method of a fleet, the mean over its splits; None if nothing is logged."""
    config, log = read_config(folder / "config.json"), read_log(folder)
    with reading(f"the log of {folder}"):
        updates = np.array([line["step"] for line in log], float)
        losses = np.array([line["loss"] for line in log], float).reshape(-1, len(config.members))
    if not len(losses) or not np.isfinite(losses).all():
        return None
    parts = np.array_split(np.arange(len(updates)), min(MOST_POINTS, len(updates)))
    methods, lines = [member.model for member in config.members], []
    for look, model in enumerate(published.rows(methods)):
        if runs := [run for run, method in enumerate(methods) if method == model]:
            means = losses[:, runs].mean(1)
            points = [(float(updates[part].mean()), float(means[part].mean())) for part in parts]
            lines.append(Line(published.title(model), look % LOOKS, points, marked=False))
    s = config.shape
    episode = f"{s.way}-way {s.shot}-shot, M = {s.unlabeled}, H = {s.distractors}"
    title = f"{config.dataset}, preset {config.preset}, {episode}"
    return Chart(title, "updates", "training loss", lines, from_zero=True)
