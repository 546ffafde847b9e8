"""Tables as data: cells, grids, and the section that is rendered as text, Markdown or HTML."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from semishot.report.charts import Chart
from semishot.report.statistics import AGREES


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
    z: float | None = None
    """Of a difference to the paper's cell, in parentheses too."""
    t: float | None = None
    """Of a difference between our own splits, likewise."""
    needed: float = AGREES
    """Beyond this |z| or |t| the difference is marked as above or below."""


GridCell = str | int | Number | None
"""Text, a count or a seed, a number, or None where nothing was measured."""


@dataclass(frozen=True)
class Grid:
    caption: str
    header: list[str]
    rows: list[list[GridCell]]

    def has_words(self, column: int) -> bool:
        return any(isinstance(row[column], str) and row[column] for row in self.rows)

    def has_numbers(self, column: int) -> bool:
        return any(isinstance(row[column], int | Number) for row in self.rows)


@dataclass(frozen=True)
class Section:
    """Text may contain `code` in backquotes."""

    title: str
    grids: list[Grid]
    provenance: Mapping[str, str]
    """How, where and when it was measured, by name."""
    commands: list[str] = field(default_factory=list)
    """What to run to measure it again, in order."""
    notes: list[str] = field(default_factory=list)
    """How to read it, shown above the grids."""
    findings: list[str] = field(default_factory=list)
    """What the numbers say, shown below them."""
    charts: list[Chart] = field(default_factory=list)
    summary: list[GridCell] = field(default_factory=list)
    """A row of the overview, if the paper has this table."""
