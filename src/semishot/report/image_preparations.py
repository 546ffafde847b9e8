"""Which images records were measured on: a sentence on them, and the commands that prepare and use them."""

import shlex
from collections.abc import Sequence

from semishot.data.drawing_preparations import AUTHORS, PREPARATIONS, DrawingPreparation
from semishot.training.records import Record

DRAWINGS = "omniglot"
"""The data set whose images can be prepared in several ways."""
PLACE = "FOLDER"
"""What commands call a data root of its own."""
MADE = {
    "antialiased": "reduced with antialiasing",
    "cubic": "reduced by OpenCV's cubic filter, without antialiasing",
    "linear": "reduced by OpenCV's linear filter, without antialiasing",
    "area": "reduced to means of areas",
    "nearest": "reduced to the nearest pixels",
    "exact": "turned exactly",
    "warped": "turned by a warp that also moves them by up to a pixel",
}


def preparation_of(records: Sequence[Record]) -> DrawingPreparation | None:
    """None for a data set whose images are prepared in one way."""
    name = records[0].get("preparation", "")
    return PREPARATIONS.get(name) if records[0]["dataset"] == DRAWINGS else None


def prepare_command(preparation: DrawingPreparation) -> str:
    flags = shlex.join(preparation.flags)
    return f"semishot data prepare {DRAWINGS} --download {flags} --data-root {PLACE}"


def prepared_as(records: Sequence[Record]) -> str:
    """The end of a title; empty for the usual images."""
    name = records[0].get("preparation")
    return f", images prepared `{name}`" if name else ""


def prepare_command_of(records: Sequence[Record]) -> str:
    """The command that prepares these images apart from the usual ones; empty for the usual ones."""
    preparation = preparation_of(records)
    return prepare_command(preparation) if preparation and preparation.name else ""


def data_root_flag(records: Sequence[Record]) -> str:
    """The end of a command that measures on these images: nothing for the usual ones."""
    return f" --data-root {PLACE}" if prepare_command_of(records) else ""


def about_images(records: Sequence[Record]) -> str:
    """Whether these images are those of the authors' code, and if not, how to get them."""
    preparation = preparation_of(records)
    if preparation is None:
        return ""
    made = f"{MADE[preparation.reduction]} and {MADE[preparation.rotations]}"
    if preparation == AUTHORS:
        return f"On images prepared as the authors' code does it: {made}. Compare this one with the paper."
    kind = "prepared otherwise" if preparation.name else "prepared as usual"
    return (
        f"On images {kind}, {made}. The authors' code prepares them differently; to compare with the paper: "
        f"`{prepare_command(AUTHORS)}`, then the same with `--data-root {PLACE}`."
    )


def rank(record: Record) -> tuple[int, str]:
    """The authors' images first, then the usual ones, then any others."""
    name = record.get("preparation", "")
    return [AUTHORS.name, ""].index(name) if name in (AUTHORS.name, "") else 2, name
