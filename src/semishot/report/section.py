"""A table as data: cells, grids, and the section that is rendered as text, Markdown or HTML."""

from collections.abc import Sequence
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


Cell = str | int | Number | None
"""Text, a count or a seed, a number, or None where nothing was measured."""


@dataclass(frozen=True)
class Grid:
    caption: str
    header: list[str]
    rows: list[list[Cell]]
    heading: str = ""
    """Shown above it in text."""
    captioned: bool = False
    """Markdown shows the caption too."""

    def has_words(self, column: int) -> bool:
        return any(isinstance(row[column], str) and row[column] for row in self.rows)

    def has_numbers(self, column: int) -> bool:
        return any(isinstance(row[column], int | Number) for row in self.rows)


NOT_NAMED = "not named: measured before records had them"


@dataclass(frozen=True)
class Provenance:
    """How, where and when records were measured, with every value that occurs."""

    devices: Sequence[str]
    versions: Sequence[str]
    dates: Sequence[str]
    split_seeds: Sequence[int] = ()
    settings: Sequence[tuple[str, str]] = ()
    """Episodes and recipe, by name."""
    wall_time: str = ""
    code: str = ""
    """The state of the code, and the data; empty if the records are older than these fields."""
    mixed: Sequence[str] = ()
    """What differs between the records, if they are not of one state of code, data and devices."""
    is_old: bool = False
    """Whether some records do not name their state."""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The name and value of each known item."""
        found = [
            ("split seeds", ", ".join(map(str, self.split_seeds))),
            *self.settings,
            ("device", "; ".join(self.devices)),
            ("code and data", self.code or (NOT_NAMED if self.is_old else "")),
            ("mixed", "; ".join(self.mixed)),
            ("versions", "; ".join(self.versions)),
            ("date", "; ".join(self.dates)),
            ("wall time", self.wall_time),
        ]
        return [(name, text) for name, text in found if text]


@dataclass(frozen=True)
class Section:
    """Text may contain `code` in backquotes."""

    title: str
    grids: list[Grid]
    provenance: Provenance
    commands: list[tuple[str, str]] = field(default_factory=list)
    """What to run again, and the command; the first is for everything."""
    prepare: str = ""
    """The command before these, if the images are not the usual ones."""
    detail: str = ""
    """The end of Markdown's title; HTML has it among the settings."""
    aim: str = ""
    """The purpose of the preset."""
    images: str = ""
    """Whether the images are the paper's, where they can be prepared in several ways."""
    about: list[str] = field(default_factory=list)
    """How to read it."""
    comparison: str = ""
    """How it compares with the paper, in a sentence."""
    findings: list[str] = field(default_factory=list)
    """What the numbers say."""
    is_complete: bool = True
    charts: list[Chart] = field(default_factory=list)
    about_charts: str = ""
    summary: list[Cell] = field(default_factory=list)
    """A row of the overview, if the paper has this table."""

    @property
    def conclusions(self) -> list[str]:
        return [*([self.comparison] if self.comparison else []), *self.findings]
