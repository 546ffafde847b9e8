"""Memory-mapped arrays in .npy files, whose headers are not trusted."""

import os
import warnings
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from semishot.system.files import create, open_regular, reading

Number = TypeVar("Number", bound=np.generic)
Mapped = np.memmap[Any, np.dtype[Number]]
MOST_HEADER = 10_000
REMEDY = "it must be a .npy file of numbers or strings"
Header = tuple[tuple[int, ...], bool, np.dtype[Any]]
"""Shape, whether the order is Fortran's, and type."""


def map_array(path: Path) -> NDArray[Any]:
    """The array, read when it is used; InputError if the file does not hold all of it."""
    with open_regular(path) as file, reading(path, REMEDY):
        header = read_header(file)
        return _mapped(file, header, "r")


def map_to_fill(path: Path) -> Mapped[Any]:
    """The array in one's own file, to be changed."""
    with (
        path.open("r+b") as file,
        reading(path, REMEDY),
    ):
        found = _mapped(file, read_header(file), "r+")
        assert isinstance(found, np.memmap), "not empty"
        return found


def make_room(path: Path, dtype: type[Number], shape: tuple[int, ...]) -> Mapped[Number]:
    """A memory-mapped file to fill. Its space is allocated first: a full disk would kill the process."""
    kind = np.dtype(dtype)
    try:
        path.unlink(missing_ok=True)  # a link would not be followed, but refused
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
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        version = npy_format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"version {version[0]}.{version[1]}")
        first = version == (1, 0)
        start = file.tell()
        size = int.from_bytes(file.read(2 if first else 4), "little")
        if size > MOST_HEADER:  # numpy would read it
            raise ValueError(f"a header of {size:,} bytes")
        file.seek(start)
        read = npy_format.read_array_header_1_0 if first else npy_format.read_array_header_2_0
        header: Header = read(file)
    shape, _, kind = header
    if kind.kind not in "biufcSU":
        raise ValueError(f"it holds {str(kind)[:80]}")
    count = prod(shape)
    if kind.itemsize == 0 and count:
        raise ValueError(f"it holds {count:,} strings of no characters")
    return header


def _mapped(file: BinaryIO, header: Header, mode: Any) -> NDArray[Any]:
    shape, fortran, kind = header
    order: Any = "F" if fortran else "C"
    if not all(0 <= length < 2**63 for length in shape) or len(shape) > 32:
        raise ValueError(f"the shape {str(shape)[:80]}")
    start, size = file.tell(), kind.itemsize * prod(shape)
    held = os.fstat(file.fileno()).st_size
    if start + size > held:
        raise ValueError(f"{held:,} bytes, too few for {kind} {_shown(shape)}")
    if size == 0:
        return np.empty(shape, kind, order)
    return np.memmap(file, kind, mode, start, shape, order)


def _shown(shape: Sequence[int]) -> str:
    return "(" + ", ".join(f"{length:,}" for length in shape) + ")"
