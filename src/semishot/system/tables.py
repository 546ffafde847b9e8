"""Tables: a CSV is read row by row, and its size, its rows and the length of a row are bounded.

A table that is kept takes at most `BYTES_PER_ROW` for each row and four times its size in memory.
"""

import csv
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from semishot.errors import InputError
from semishot.system.files import open_regular

MOST_BYTES, MOST_ROWS = 2**28, 2_000_000
"""Of a table. Rows of features in .npy files are counted, too."""
MOST_IN_A_ROW = 2**20
"""Characters."""
BYTES_PER_ROW = 512


def read_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each row of a CSV in UTF-8, the first one with the names of its columns.

    Commas, semicolons or tabs separate the cells. Empty lines are left out.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            raise InputError(f"{path} has {size:,} bytes, more than {MOST_BYTES:,}")
        lines = _Lines(path, io.TextIOWrapper(file, encoding="utf-8-sig", newline=""))
        reader = csv.reader(lines, delimiter=lines.delimiter(), strict=True)
        count = -1  # without the names of the columns
        for cells in reader:
            lines.of_row = 0
            if cells:
                count += 1
                check_rows(count, path)
                yield reader.line_num, cells


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as a CSV. A cell with a carriage return is quoted: it must not begin another row."""
    lines = []
    for row in rows:
        line = io.StringIO(newline="")
        csv.writer(line, lineterminator="\r\n").writerow(row)
        lines.append(line.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)


def check_rows(count: int, path: Path) -> None:
    if count > MOST_ROWS:
        raise InputError(f"{path} has more than {MOST_ROWS:,} rows")


class _Lines:
    """The lines of a table. A row has several if a quoted cell holds a line break."""

    def __init__(self, path: Path, text: io.TextIOWrapper) -> None:
        self.path, self.text = path, text
        self.of_row = self.total = 0
        self.first = self._line()

    def delimiter(self) -> str:
        return next((mark for mark in ",;\t" if mark in self.first), ",")

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line, self.first = self.first or self._line(), ""
        if not line:
            raise StopIteration
        return line

    def _line(self) -> str:
        line = self.text.readline(MOST_IN_A_ROW + 1)
        self.of_row += len(line)
        self.total += len(line)
        if self.of_row > MOST_IN_A_ROW:
            raise InputError(f"{self.path}: a row has more than {MOST_IN_A_ROW:,} characters")
        if self.total > MOST_BYTES:  # it grows, or is in /proc, whose files have size 0
            raise InputError(f"{self.path} has more than {MOST_BYTES:,} bytes")
        return line
