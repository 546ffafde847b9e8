"""Precomputed features in .npy files -> rows, a block at a time.

Letters: P rows, D features.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.errors import InputError
from semishot.sorter.embedding import Rows
from semishot.sorter.label_tables import read_table
from semishot.sorter.listing import STRANGER, Item, Skipped, as_label
from semishot.system.npy import make_room, map_array
from semishot.system.tables import check_rows

BLOCK = 4096
NUMBERS = {"-1": "", "-2": STRANGER}
"""Labels that are numbers: unlabeled, and none of the classes."""
Part = tuple[NDArray[Any], Sequence[Item]]
"""Features (P, D), and what each row is."""


@dataclass(frozen=True)
class FeatureFiles:
    """Features instead of images."""

    labeled: Path
    labels: Path | None
    unlabeled: Path | None
    corrections: Mapping[str, str]
    """What rows were corrected to: a name such as pile.npy:7 -> a label."""


def feature_rows(given: FeatureFiles, scratch: Path) -> Rows:
    """The labeled rows, then the others, each named by its number; rows that are not finite are skipped."""
    if given.labels is None:
        raise InputError(
            f"--labeled {given.labeled} holds features: pass their --labels too (.csv or .npy)"
        )
    files = [given.labeled] if given.unlabeled is None else [given.labeled, given.unlabeled]
    arrays = [read_features(path) for path in files]
    widths = [array.shape[1] for array in arrays]
    if widths[-1] != widths[0]:
        raise InputError(
            f"{files[-1]} has {widths[-1]:,} features in a row, {files[0]} has {widths[0]:,}"
        )
    labels = [read_labels(given.labels, len(arrays[0]))]
    labels += [[None] * len(array) for array in arrays[1:]]
    parts: list[Part] = []
    for path, array, own in zip(files, arrays, labels, strict=True):
        items = []
        for row, label in enumerate(own):
            name = f"{path.name}:{row}"
            correct = given.corrections.get(name, "")
            items.append(Item(name, correct or label, of_pile=label is None, correct=correct))
        parts.append((array, items))
    return gathered(parts, scratch)


def read_features(path: Path) -> NDArray[Any]:
    """(P, D), memory-mapped."""
    array = _read_array(path)
    if array.ndim != 2 or array.dtype.kind not in "fiu" or 0 in array.shape:
        raise InputError(
            f"{path} holds {array.dtype} {array.shape}; features are numbers (rows, features)"
        )
    check_rows(len(array), path)
    return array


def read_labels(path: Path, rows: int) -> list[str | None]:
    """A label for each row. -1 or nothing means unlabeled, -2 or `stranger` none of the classes."""
    if path.suffix.lower() == ".npy":
        array = _read_array(path)
        if array.ndim != 1 or array.dtype.kind not in "iuU":
            raise InputError(
                f"{path} holds {array.dtype} {array.shape}; labels are whole numbers or strings (rows,)"
            )
        given = [str(value) for value in array[: rows + 1]]
        count = len(array)
    else:
        table = read_table(path)
        table.check(("label",), "its first line must be label")
        given = [row["label"] for _, row in table.rows]
        count = len(given)
    if count != rows:
        raise InputError(f"{path} has {count:,} labels for {rows:,} rows of features")
    labels = [NUMBERS.get(value, value) for value in given]
    return [as_label(label) if label else None for label in labels]


def gathered(parts: Sequence[Part], scratch: Path) -> Rows:
    """The rows of several arrays in one file, in float32: those with a label first."""
    total = sum(len(array) for array, _ in parts)
    features = make_room(scratch, np.float32, (max(1, total), parts[0][0].shape[1]))
    rows = Rows(features)
    for labeled, (array, items) in product((True, False), parts):
        chosen = [row for row, item in enumerate(items) if (item.label is not None) == labeled]
        for first in range(0, len(chosen), BLOCK):
            indices = chosen[first : first + BLOCK]
            with np.errstate(over="ignore"):
                block = np.asarray(array[indices], np.float32)
            for index, row in zip(indices, block, strict=True):
                if np.isfinite(row).all():
                    features[rows.add(items[index], b"")] = row
                else:
                    rows.skipped.append(Skipped(items[index].shown, "not all of it is finite"))
    rows.features = features[: len(rows.items)]
    return rows


def _read_array(path: Path) -> NDArray[Any]:
    try:
        return map_array(path)
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror})") from error
