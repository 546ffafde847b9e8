"""Which images records were measured on: a sentence on them, and the commands that prepare and use them."""

import shlex
from collections.abc import Sequence

from semishot.data.settings import AUTHORS, VARIANTS, DatasetVariant, Setting
from semishot.training.records import Record

PLACE = "FOLDER"
"""What commands call a data root of its own."""
GOT = {"omniglot": "--download", "mini-imagenet": "--source IMAGES"}
AUTHORS_CODE = {
    "omniglot": "the authors' code",
    "mini-imagenet": "the first version of the authors' code",
}
MADE: dict[Setting, str] = {
    "antialiased": "reduced with antialiasing",
    "cubic": "reduced by OpenCV's cubic filter without antialiasing",
    "exact": "rotated exactly",
    "warped": "rotated by a warp that also shifts them by up to a pixel",
    "usual": "with the usual lists of classes",
    "swapped": "with the lists of validation and test classes exchanged",
}


def preparation_of(records: Sequence[Record]) -> DatasetVariant | None:
    """None for a data set that is prepared in one way."""
    return VARIANTS.get((records[0]["dataset"], records[0].get("preparation", "")))


def prepare_command(preparation: DatasetVariant) -> str:
    dataset, flags = preparation.dataset, shlex.join(preparation.flags)
    return f"semishot data prepare {dataset} {GOT[dataset]} {flags} --data-root {PLACE}"


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
    made, theirs = (
        " and ".join(MADE[each] for each in preparation.settings),
        AUTHORS[preparation.dataset],
    )
    code = AUTHORS_CODE[preparation.dataset]
    if preparation == theirs:
        return f"On images prepared as in {code}: {made}. Compare this table with the paper."
    kind = "prepared in another way" if preparation.name else "prepared as usual"
    return (
        f"On images {kind}, {made}. {code[0].upper()}{code[1:]} prepares them differently; to compare "
        f"with the paper: `{prepare_command(theirs)}`, then the same command with `--data-root {PLACE}`."
    )


def rank(record: Record) -> tuple[int, str]:
    """The authors' images first, then the usual ones, then any others."""
    name, theirs = record.get("preparation", ""), AUTHORS.get(record["dataset"])
    return 0 if theirs and name == theirs.name else 2 if name else 1, name
