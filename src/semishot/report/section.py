"""A kind of table as data: cells, grids of them, and the section that text, Markdown and HTML show."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from semishot.report.charts import Chart


@dataclass(frozen=True)
class Number:
    value: float
    error: float | None = None
    """Shown after a ±."""
    decimals: int = 2
    form: Literal["plain", "difference", "error"] = "plain"
    """A difference is shown with its sign, and whether it is above or below; an error after a ±."""
    note: str = ""
    """Shown in parentheses: the splits behind it, where they are fewer than those of other cells."""


Cell = str | int | Number | None
"""Words, a count or a seed, a number, or nothing that was measured."""


@dataclass(frozen=True)
class Grid:
    caption: str
    header: list[str]
    rows: list[list[Cell]]
    heading: str = ""
    """What text shows above it."""
    captioned: bool = False
    """Markdown shows the caption too: the section has several grids of the same header."""

    def has_words(self, column: int) -> bool:
        return any(isinstance(row[column], str) and row[column] for row in self.rows)

    def has_numbers(self, column: int) -> bool:
        return any(isinstance(row[column], int | Number) for row in self.rows)


@dataclass(frozen=True)
class Provenance:
    """What records were measured with, where and when; every value that occurs."""

    devices: Sequence[str]
    versions: Sequence[str]
    dates: Sequence[str]
    split_seeds: Sequence[int] = ()
    settings: Sequence[tuple[str, str]] = ()
    """Episodes and recipe, by name."""
    wall_time: str = ""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Name and value of whatever is known."""
        found = [
            ("split seeds", ", ".join(map(str, self.split_seeds))),
            *self.settings,
            ("device", "; ".join(self.devices)),
            ("versions", "; ".join(self.versions)),
            ("date", "; ".join(self.dates)),
            ("wall time", self.wall_time),
        ]
        return [(name, text) for name, text in found if text]


@dataclass(frozen=True)
class Section:
    """Words may hold code in backquotes."""

    title: str
    grids: list[Grid]
    provenance: Provenance
    commands: list[tuple[str, str]] = field(default_factory=list)
    """What to run again, and how; the first is all of it."""
    detail: str = ""
    """The end of Markdown's title; HTML has it among the settings."""
    aim: str = ""
    """What the preset is for."""
    about: list[str] = field(default_factory=list)
    """How to read it."""
    comparison: str = ""
    """With the paper, in a sentence."""
    findings: list[str] = field(default_factory=list)
    """What the numbers say."""
    is_complete: bool = True
    charts: list[Chart] = field(default_factory=list)
    about_charts: str = ""
    summary: list[Cell] = field(default_factory=list)
    """A row of the overview, where the paper has this table."""

    @property
    def conclusions(self) -> list[str]:
        return [self.comparison] if self.comparison else self.findings
