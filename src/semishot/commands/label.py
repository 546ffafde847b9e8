"""The command `label`: a pile, labeled in the browser."""

import tyro

from semishot.commands.flags import Flags
from semishot.errors import InputError
from semishot.label.requests import LabelRequest


def label(request: tyro.conf.PositionalRequiredArgs[Flags[LabelRequest]]) -> None:
    """Label a pile of images in the browser: click a few, and semishot sorts the rest."""
    try:
        from semishot.label.server import label
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise InputError(
            "labeling needs two more packages: pip install 'semishot[label]'"
        ) from error
    label(request)
