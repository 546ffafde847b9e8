"""Precomputed features in .npy files -> rows, each named by its number.

Letters: P rows, D features.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.errors import InputError
from semishot.sorter.embedding import Rows, collect
from semishot.sorter.label_tables import read_table
from semishot.sorter.listing import STRANGER, Item, as_label
from semishot.system.npy import map_array
from semishot.system.tables import check_rows

NUMBERS = {"-1": "", "-2": STRANGER}
"""Labels that are numbers: unlabeled, and none of the classes."""


def feature_rows(
    files: Sequence[Path],
    scratch: Path,
    labels: Path | None = None,
    corrections: Mapping[str, str] | None = None,
    width: int | None = None,
) -> Rows:
    """The rows of all files, those with a label first.

    labels: of the rows of the first file. corrections: from names of rows, such as pile.npy:7, to labels.
    width: the number of features that a saved model takes.
    """
    arrays, sources = [read_features(path) for path in files], list[tuple[Item, Any, int]]()
    expected = f"the model takes {width:,}" if width else f"{files[0]} has {arrays[0].shape[1]:,}"
    given = chain(read_labels(labels, len(arrays[0])) if labels else (), repeat(None))
    for path, array in zip(files, arrays, strict=True):
        if array.shape[1] != (width or arrays[0].shape[1]):
            raise InputError(f"{path} has {array.shape[1]:,} features in a row, {expected}")
        for row, label in zip(range(len(array)), given, strict=False):
            correct = (corrections or {}).get(name := f"{path.name}:{row}")
            of_pile = label is None or correct is not None
            sources.append((Item(name, correct or label, of_pile=of_pile), array, row))
    return collect(sources, arrays[0].shape[1], scratch)


def read_features(path: Path) -> NDArray[Any]:
    """(P, D), memory-mapped."""
    array = _read_array(path)
    if array.ndim != 2 or array.dtype.kind not in "fiu" or 0 in array.shape:
        raise InputError(
            f"{path} holds {array.dtype} {array.shape}; features are numbers (rows, features)"
        )
    return array


def read_labels(path: Path, rows: int) -> list[str | None]:
    """A label for each row. -1 or nothing means unlabeled, -2 or `stranger` none of the classes."""
    if path.suffix.lower() == ".npy":
        array = _read_array(path)
        if array.ndim != 1 or array.dtype.kind not in "iuU":
            raise InputError(
                f"{path} holds {array.dtype} {array.shape}; labels are whole numbers or strings (rows,)"
            )
        given = [str(value) for value in array]
    else:
        table = read_table(path, ("label",), "its first line must be label")
        given = [row["label"] for _, row in table]
    if len(given) != rows:
        raise InputError(f"{path} has {len(given):,} labels for {rows:,} rows of features")
    labels = [NUMBERS.get(value, value) for value in given]
    return [as_label(label) if label else None for label in labels]


def _read_array(path: Path) -> NDArray[Any]:
    try:
        array = np.asarray(map_array(path))  # rows of a mapped array are slow
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror})") from error
    check_rows(len(array) if array.ndim else 1, path)
    return array
