"""Memory-mapped arrays of numbers or strings in .npy files."""

import os
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from semishot.system.files import check_regular, create, reading

Number = TypeVar("Number", bound=np.generic)
Mapped = np.memmap[Any, np.dtype[Number]]
REMEDY = "it must be a .npy file of numbers or strings"


def map_array(path: Path, mode: Literal["r", "r+"] = "r") -> Mapped[Any]:
    """The array, read when it is used, or `r+`: changed. InputError if the file does not hold all of it."""
    check_regular(path.stat(), path)
    with reading(path, REMEDY), np.errstate(all="ignore"):
        array: Mapped[Any] = open_memmap(path, mode)
        if array.dtype.kind not in "biufcSU" or not array.dtype.itemsize:
            raise ValueError(f"it holds {str(array.dtype)[:80]}")
        return array


def make_room(path: Path, dtype: type[Number], shape: tuple[int, ...]) -> Mapped[Number]:
    """A memory-mapped file to fill. Its space is allocated first: a full disk would kill the process."""
    try:
        path.unlink(missing_ok=True)
        mapped: Mapped[Number] = open_memmap(path, "w+", dtype, shape)
        if hasattr(os, "posix_fallocate"):  # not on every platform
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        return mapped
    except OSError as error:
        error.filename = str(path)
        raise


def file_of(array: NDArray[Any]) -> Path | None:
    """The .npy file that an array is mapped from."""
    if isinstance(array, np.memmap) and str(array.filename).endswith(".npy"):
        return Path(str(array.filename))
    return None


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write a new file, in a folder of one's own."""
    with create(path) as file:
        np.save(file, array, allow_pickle=False)
