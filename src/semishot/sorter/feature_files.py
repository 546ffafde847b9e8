"""Precomputed features in .npy files -> rows, a block at a time.

Letters: P rows, D features.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.data.pool import make_room
from semishot.errors import InputError
from semishot.sorter.embedding import Rows
from semishot.sorter.listing import Item, Skipped, table_rows
from semishot.system.npy import map_array

__all__ = ["feature_rows", "read_features", "read_labels"]

BLOCK = 4096


def read_features(path: Path) -> NDArray[Any]:
    """(P, D), memory-mapped."""
    array = _read_array(path)
    if array.ndim != 2 or array.dtype.kind not in "fiu" or 0 in array.shape:
        raise InputError(
            f"{path} holds {array.dtype} {array.shape}; features are numbers (rows, features)"
        )
    return array


def read_labels(path: Path, rows: int) -> list[str | None]:
    """A label for each row; -1 in a .npy file or an empty cell in a .csv file means unlabeled."""
    labels: list[str | None]
    if path.suffix.lower() == ".npy":
        array = _read_array(path)
        if array.ndim != 1 or array.dtype.kind not in "iuU":
            raise InputError(
                f"{path} holds {array.dtype} {array.shape}; labels are whole numbers or strings (rows,)"
            )
        if array.dtype.kind == "U":  # numpy accepts any four bytes as a character
            characters = np.frombuffer(array.tobytes(), f"{array.dtype.str[0]}u4")
            if characters.max(initial=0) > sys.maxunicode:
                raise InputError(f"{path} holds strings that are not text")
        labels = [None if str(value) in ("-1", "") else str(value) for value in array.tolist()]
    else:
        labels = [row["label"] or None for _, row in table_rows(path, ("label",))]
    if len(labels) != rows:
        raise InputError(f"{path} has {len(labels):,} labels for {rows:,} rows of features")
    return labels


def feature_rows(labeled: Path, labels: Path | None, unlabeled: Path | None, scratch: Path) -> Rows:
    """The labeled rows, then the others, each named by its number; rows that are not finite are skipped."""
    if labels is None:
        raise InputError(
            f"--labeled {labeled} holds features: pass their --labels too (.csv or .npy)"
        )
    known = read_features(labeled)
    given = read_labels(labels, len(known))
    parts: list[tuple[NDArray[Any], list[Item], Sequence[int]]] = []
    items = [Item(f"{labeled.name}:{row}", label) for row, label in enumerate(given)]
    for wanted in (True, False):
        rows = [row for row, item in enumerate(items) if (item.label is not None) == wanted]
        parts.append((known, items, rows))
    if unlabeled is not None:
        pile = read_features(unlabeled)
        if pile.shape[1] != known.shape[1]:
            raise InputError(
                f"{unlabeled} has {pile.shape[1]:,} features in a row, {labeled} has {known.shape[1]:,}"
            )
        names = [Item(f"{unlabeled.name}:{row}") for row in range(len(pile))]
        parts.append((pile, names, range(len(pile))))
    return gathered(parts, scratch)


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
