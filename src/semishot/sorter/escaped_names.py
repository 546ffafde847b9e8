r"""Names that are not UTF-8 in our tables: the byte 0xe9 is written as `\udce9`, and read back."""

import os
import re
from pathlib import Path

ESCAPE = re.compile(r"\\udc[89a-f][0-9a-f]")


def escaped(text: str) -> bytes:
    """UTF-8; bytes of a file name that are not UTF-8 are escaped."""
    return text.encode("utf-8", "backslashreplace")


def unescaped(text: str) -> str:
    """The text as it was before `escaped`."""
    return ESCAPE.sub(lambda found: chr(int(found[0][2:], 16)), text)


def written_path(cell: str, folder: Path = Path()) -> str:
    """The path that a cell names, relative to a folder; a file that has the cell as its name comes first."""
    if not ESCAPE.search(cell) or os.path.lexists(folder / cell):
        return cell
    return unescaped(cell)
