"""CSV tables: read row by row, bounded in bytes and rows; and written."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from semishot.errors import InputError
from semishot.system.files import check_regular

MOST_BYTES, MOST_ROWS = 2**28, 2_000_000
"""Of a table. Rows of features in .npy files are counted, too."""


def read_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each row of a CSV in UTF-8, the first one with the names of its columns.

    Commas, semicolons or tabs separate the cells. Empty lines are left out.
    """
    if (size := check_regular(path.stat(), path)) > MOST_BYTES:
        raise InputError(f"{path} has {size:,} bytes, more than {MOST_BYTES:,}")
    with path.open(encoding="utf-8-sig", newline="") as text:
        first = text.readline()
        delimiter = next((mark for mark in ",;\t" if mark in first), ",")
        reader = csv.reader(chain([first], text), delimiter=delimiter, strict=True)
        rows = ((reader.line_num, cells) for cells in reader if cells)
        for count, row in enumerate(rows):  # the first has the names of the columns
            check_rows(count, path)
            yield row


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
