"""Arrays in a safetensors file, read one at a time, or a row at a time."""

import json
import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from semishot.errors import InputError
from semishot.system.open_files import open_regular, reading

KINDS: dict[str, np.dtype[Any]] = {"U8": np.dtype("u1"), "F32": np.dtype("<f4")}
"""The types that are read."""
MOST_HEADER = 2**20


@dataclass(frozen=True)
class Stored:
    kind: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    """The byte of the file where it begins."""


class OpenTensors:
    """An open file of at most `most` bytes. InputError if its header does not match its content."""

    def __init__(self, path: Path, most: int) -> None:
        self.path = path
        self.metadata: dict[str, str] = {}
        self.file = open_regular(path)
        try:
            with reading(path):
                self.stored = self._header(most)
        except BaseException:
            self.file.close()
            raise

    def _header(self, most: int) -> dict[str, Stored]:
        whole = os.fstat(self.file.fileno()).st_size
        size = int.from_bytes(self.file.read(8), "little")
        if whole > most or size > min(MOST_HEADER, whole):
            raise ValueError(f"{whole:,} bytes, {size:,} of them a header")
        begin = 8 + size
        found = {}
        for name, about in json.loads(self.file.read(size)).items():
            if name == "__metadata__":
                self.metadata = {str(key): str(value) for key, value in about.items()}
                continue
            if about["dtype"] not in KINDS:
                continue
            kind, shape = KINDS[about["dtype"]], tuple(about["shape"])
            first, last = about["data_offsets"]
            fits = last - first == kind.itemsize * prod(shape)
            if not fits or min(shape, default=0) < 0 or not 0 <= first <= last <= whole - begin:
                raise ValueError(f"{name} does not fit")
            found[name] = Stored(kind, shape, begin + first)
        return found

    def __getitem__(self, name: str) -> NDArray[Any]:
        one = self.stored[name]
        return self._read(one.start, one.kind, one.shape)

    def row(self, name: str, place: int) -> NDArray[Any]:
        """One row of an array."""
        row: NDArray[Any] = self.part(name, place, place + 1)[0]
        return row

    def part(self, name: str, first: int, last: int) -> NDArray[Any]:
        """Some rows of an array; none beyond its end."""
        one = self.stored[name]
        rows = max(0, min(last, one.shape[0]) - max(0, first))
        size = one.kind.itemsize * prod(one.shape[1:])
        return self._read(one.start + first * size, one.kind, (rows, *one.shape[1:]))

    def _read(self, start: int, kind: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        size = kind.itemsize * prod(shape)
        self.file.seek(start)
        content = self.file.read(size)
        if len(content) < size:
            raise InputError(f"{self.path} was changed while it was read")
        return np.frombuffer(content, kind).reshape(shape)

    def close(self) -> None:
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
