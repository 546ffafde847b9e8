"""Where a path leads, through all links."""

import os
from pathlib import Path


def real_path(path: Path) -> Path:
    """The absolute path without links; of links that lead in a circle, or nowhere, as far as they lead.

    As `Path.resolve`, which raises RuntimeError for a circle until Python 3.12.
    """
    return Path(os.path.realpath(path))
