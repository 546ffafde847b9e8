"""Rows of text -> the cells of a sortable table, with what is above and below the paper."""

import re
from dataclasses import dataclass

NUMBER = re.compile(r"[±\s]*([+-]?[\d,]*\d(?:\.\d+)?)(?:\s*[±(].*)?")
"""A table's number, before its ± and the splits behind it."""


@dataclass(frozen=True)
class Entry:
    text: str
    rank: float | str
    """What to sort by; empty where nothing was measured."""
    tone: str = ""
    """`above` or `below`, of a difference."""


@dataclass(frozen=True)
class Grid:
    caption: str
    header: list[str]
    rows: list[list[Entry]]

    def is_numeric(self, column: int) -> bool:
        return any(isinstance(row[column].rank, float) for row in self.rows)


def grid(caption: str, header: list[str], rows: list[list[str]]) -> Grid:
    entries = [
        [_entry(text, name.endswith("difference")) for name, text in zip(header, row, strict=True)]
        for row in rows
    ]
    return Grid(caption, header, entries)


def _entry(text: str, is_difference: bool) -> Entry:
    number = NUMBER.fullmatch(text)
    if number is None:
        return Entry(text, "" if text == "-" else text)
    rank = float(number[1].replace(",", ""))
    if not is_difference:
        return Entry(text, rank)
    return Entry(text, rank, "below" if text.startswith("-") else "above")  # -0.00 is below
