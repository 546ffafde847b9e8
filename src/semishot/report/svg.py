"""A chart as the numbers and paths that chart.html draws as SVG."""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, log10

from semishot.report.charts import Chart, Line, Steps

WIDTH, HEIGHT = 440, 300
LEFT, RIGHT, TOP, BOTTOM = 54, 428, 10, 254
"""The positions of the axes, in the units of the drawing."""
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


@dataclass(frozen=True)
class Drawing:
    chart: Chart

    @cached_property
    def x_range(self) -> tuple[float, float]:
        values = [x for line in self.chart.lines for x, _ in line.points]
        return min(values), max(max(values), min(values) + 1e-9)

    @cached_property
    def y_range(self) -> tuple[float, float]:
        """The range between ticks that contains everything drawn, error bars included."""
        ends = [(y, 0.0) for line in self.chart.lines for _, y in line.points]
        for line in self.chart.lines:
            ends += [(y, e) for (_, y), e in zip(line.points, line.errors, strict=False)]
        low = 0.0 if self.chart.from_zero else min(y - e for y, e in ends)
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

    def path(self, line: Line | Steps) -> str:
        return "M" + "L".join(f"{self.across(x)} {self.down(y)}" for x, y in line.points)

    def area(self, line: Line | Steps) -> str:
        """The line and the area under it."""
        first, last = line.points[0][0], line.points[-1][0]
        return f"{self.path(line)}L{self.across(last)} {BOTTOM}L{self.across(first)} {BOTTOM}z"

    def marks(self, line: Line | Steps) -> str:
        return "".join(
            f"M{self.across(x)} {self.down(y)}{MARKS[line.look]}" for x, y in line.points
        )

    def bars(self, line: Line | Steps) -> str:
        ends = zip(line.points, line.errors, strict=True)
        return "".join(
            f"M{self.across(x) - 4} {self.down(y + s * e)}h8m-4 0V{self.down(y)}"
            for (x, y), e in ends
            for s in (-1, 1)
        )

    def legend(self, line: Line | Steps) -> str:
        return f"M16 8{MARKS[line.look]}" if line.marked else ""


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
