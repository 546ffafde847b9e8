"""Where a path leads, through all links, or all but the last."""

import os
from pathlib import Path


def real_path(path: Path) -> Path:
    """The absolute path without links; of links that lead in a circle, or nowhere, as far as they lead.

    As `Path.resolve`, which raises RuntimeError for a circle until Python 3.12.
    """
    return Path(os.path.realpath(path))


def real_place(path: Path) -> Path:
    """The one name of a file, whatever links lead to its folder; the file itself may be a link."""
    return real_path(path.parent) / path.name
