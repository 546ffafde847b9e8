"""Memory-mapped arrays of numbers or strings in .npy files."""

import os
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from semishot.system.files import check_regular, create, reading

Number = TypeVar("Number", bound=np.generic)
Mapped = np.memmap[Any, np.dtype[Number]]
REMEDY = "it must be a .npy file of numbers or strings"
Header = tuple[tuple[int, ...], bool, np.dtype[Any]]
"""Shape, whether the order is Fortran's, and type."""


def map_array(path: Path) -> NDArray[Any]:
    """The array, read when it is used; InputError if the file does not hold all of it."""
    return _mapped(path, "r")


def map_to_fill(path: Path) -> Mapped[Any]:
    """The array in one's own file, to be changed."""
    array = _mapped(path, "r+")
    assert isinstance(array, np.memmap), "not empty"
    return array


def make_room(path: Path, dtype: type[Number], shape: tuple[int, ...]) -> Mapped[Number]:
    """A memory-mapped file to fill. Its space is allocated first: a full disk would kill the process."""
    kind = np.dtype(dtype)
    try:
        path.unlink(missing_ok=True)
        with create(path) as file:
            npy_format.write_array_header_1_0(
                file, {"descr": kind.str, "fortran_order": False, "shape": shape}
            )
            file.flush()
            start, size = file.tell(), kind.itemsize * prod(shape)
            if hasattr(os, "posix_fallocate"):  # not on every platform
                os.posix_fallocate(file.fileno(), 0, start + size)
            return np.memmap(file, kind, "r+", start, shape)
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


def read_header(file: BinaryIO) -> Header:
    """The header of an array of numbers or strings, where a file stands; ValueError for any other."""
    version = npy_format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version[0]}.{version[1]}")
    first = version == (1, 0)
    read = npy_format.read_array_header_1_0 if first else npy_format.read_array_header_2_0
    header: Header = read(file)
    _check_kind(header[2])
    return header


def _check_kind(kind: np.dtype[Any]) -> None:
    if kind.kind not in "biufcSU" or not kind.itemsize:
        raise ValueError(f"it holds {str(kind)[:80]}")


def _mapped(path: Path, mode: Any) -> NDArray[Any]:
    size = check_regular(path.stat(), path)
    with reading(path, REMEDY):
        with path.open("rb") as file:
            shape, fortran, kind = read_header(file)
            start, needed = file.tell(), kind.itemsize * prod(shape)
        if min(shape, default=0) < 0 or start + needed > size:
            raise ValueError(f"{size:,} bytes, too few for {kind} {shape}")
        order: Any = "F" if fortran else "C"
        if not needed:
            return np.empty(shape, kind, order)
        return np.memmap(path, kind, mode, start, shape, order)
