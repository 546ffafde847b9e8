"""A small pool to build, and how its images are read."""

import time
from pathlib import Path

import numpy as np

from semishot.data.image_sources import ImageSource, WholeFile
from semishot.data.pool_builder import PlannedClass
from semishot.errors import InputError

SHAPE = (3, 4, 5)


def numbered(first: int, last: int) -> tuple[WholeFile, ...]:
    return tuple(WholeFile(str(number)) for number in range(first, last))


CLASSES = [
    PlannedClass("a", "g", "train", numbered(0, 7)),
    PlannedClass("b", "g", "val", numbered(7, 10)),
    PlannedClass("c", "h", "test", numbered(10, 21)),
]


def read(source: ImageSource, log: str = "", seconds: float = 0.0, bad: str = "") -> np.ndarray:
    """An image of its own; the log says which were read.

    With `seconds`, each takes that long, and the later ones for ever: the process is killed there.
    """
    if source.path == bad:
        raise InputError(f"image {source.path} is damaged")
    time.sleep(1000 if seconds and int(source.path) > 12 else seconds)
    if log:
        with Path(log).open("a") as file:
            file.write(f"{source.path}\n")
    return np.full(SHAPE, int(source.path), np.uint8) + np.arange(60, dtype=np.uint8).reshape(SHAPE)


def first_byte(source: ImageSource) -> np.ndarray:
    return np.full(SHAPE, Path(source.path).read_bytes()[0], np.uint8)
