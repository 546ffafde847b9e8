"""Precomputed features in .npy files -> rows, a block at a time.

Letters: P rows, D features.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.errors import InputError
from semishot.sorter.embedding import Rows
from semishot.sorter.listing import STRANGER, Item, Skipped, as_label, table_rows
from semishot.system.npy import make_room, map_array
from semishot.system.tables import MOST_BYTES, check_rows

BLOCK = 4096
NUMBERS = {"-1": "", "-2": STRANGER}
"""Labels that are numbers: unlabeled, and none of the classes."""


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
        _check_count(len(array), rows, path)  # before each becomes a string
        if array.nbytes > MOST_BYTES:
            raise InputError(f"{path} has {array.nbytes:,} bytes, more than {MOST_BYTES:,}")
        if array.dtype.kind == "U":  # numpy accepts any four bytes as a character
            characters = np.frombuffer(array.tobytes(), f"{array.dtype.str[0]}u4")
            if characters.max(initial=0) > sys.maxunicode:
                raise InputError(f"{path} holds strings that are not text")
        given = [str(value) for value in array]
    else:
        given = [row["label"] for _, row in table_rows(path, ("label",))]
    labels = [NUMBERS.get(value, value) or None for value in given]
    labels = [None if label is None else as_label(label) for label in labels]
    _check_count(len(labels), rows, path)
    return labels


def _check_count(labels: int, rows: int, path: Path) -> None:
    if labels != rows:
        raise InputError(f"{path} has {labels:,} labels for {rows:,} rows of features")


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
    labeled, unlabeled = given.labeled, given.unlabeled
    if given.labels is None:
        raise InputError(
            f"--labeled {labeled} holds features: pass their --labels too (.csv or .npy)"
        )
    arrays = [(labeled, read_features(labeled))]
    labels = [read_labels(given.labels, len(arrays[0][1]))]
    if unlabeled is not None:
        arrays.append((unlabeled, read_features(unlabeled)))
        labels.append([None] * len(arrays[1][1]))
        known, pile = arrays[0][1].shape[1], arrays[1][1].shape[1]
        if pile != known:
            raise InputError(f"{unlabeled} has {pile:,} features in a row, {labeled} has {known:,}")
    parts: list[tuple[NDArray[Any], list[Item], Sequence[int]]] = []
    items = [
        [_row(f"{path.name}:{row}", label, given.corrections) for row, label in enumerate(own)]
        for (path, _), own in zip(arrays, labels, strict=True)
    ]
    for wanted in (True, False):
        for (_, array), own in zip(arrays, items, strict=True):
            rows = [row for row, item in enumerate(own) if (item.label is not None) == wanted]
            parts.append((array, own, rows))
    return gathered(parts, scratch)


def _row(name: str, label: str | None, corrections: Mapping[str, str]) -> Item:
    correct = corrections.get(name, "")
    return Item(name, correct or label, of_pile=label is None, correct=correct)


def gathered(
    parts: Sequence[tuple[NDArray[Any], Sequence[Item], Sequence[int]]], scratch: Path
) -> Rows:
    """Chosen rows of several arrays in one file, in float32."""
    total = sum(len(chosen) for _, _, chosen in parts)
    shape = (max(1, total), parts[0][0].shape[1])
    held = make_room(scratch, np.float32, shape)
    rows = Rows(held)
    for array, items, chosen in parts:
        for first in range(0, len(chosen), BLOCK):
            places = list(chosen[first : first + BLOCK])
            with np.errstate(over="ignore"):
                block = np.asarray(array[places], np.float32)
            for place, row in zip(places, block, strict=True):
                if np.isfinite(row).all():
                    held[rows.add(items[place], b"")] = row
                else:
                    rows.skipped.append(Skipped(items[place].shown, "not all of it is finite"))
    rows.features = held[: len(rows.items)]
    return rows


def _read_array(path: Path) -> NDArray[Any]:
    try:
        return map_array(path)
    except FileNotFoundError as error:
        raise InputError(f"no file {path}") from error
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror})") from error
