"""Pickles of an image array and the rows of each class, as miniImageNet is often cached.

Letters: I images.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.data import safe_pickles
from semishot.data.image_sources import REMEDY, ByteRange, ImageSource
from semishot.errors import InputError
from semishot.system.files import reading
from semishot.system.npy import write_array


@dataclass(frozen=True)
class ImagePickle:
    """The content of such a file."""

    images: NDArray[np.uint8]
    """(I, side, side, 3)"""
    classes: dict[str, list[int]]
    """class -> its rows of `images`."""
    state: os.stat_result
    """Of the file."""

    def laid_out(self, stem: Path) -> dict[str, list[ImageSource]]:
        """class -> its images, in an array file that workers read from: `stem`, and what tells the pickle."""
        size, times = self.state.st_size, (self.state.st_atime_ns, self.state.st_mtime_ns)
        # a build recognizes files by name, size and time, and is never resumed with those of another pickle
        rows = stem.with_name(f"{stem.name}-{size}-{self.state.st_mtime_ns}.npy")
        write_array(rows, np.ascontiguousarray(self.images))  # rows side by side
        os.utime(rows, ns=times)
        start, each = rows.stat().st_size - self.images.nbytes, int(np.prod(self.images.shape[1:]))
        return {
            label: [
                ByteRange(str(rows), f"image {row}", start + row * each, each, "rgb")
                for row in indices
            ]
            for label, indices in self.classes.items()
        }


def read_image_pickle(path: Path, side: int) -> ImagePickle:
    """`image_data` (I, side, side, 3) and `class_dict` {class: rows}, checked."""
    state = path.stat()
    held: Any = safe_pickles.load(path)
    if not isinstance(held, dict) or not {"image_data", "class_dict"} <= held.keys():
        keys = ", ".join(map(str, held)) if isinstance(held, dict) else type(held).__name__
        raise InputError(f"{path} holds {keys[:100]}, not image_data and class_dict")
    images, classes = held["image_data"], held["class_dict"]
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim != 4:
        raise InputError(f"{path}: image_data is not an array (I, {side}, {side}, 3) of uint8")
    if images.shape[1:] != (side, side, 3):
        raise InputError(f"{path}: image_data is {images.shape}, not (I, {side}, {side}, 3)")
    with reading(path, REMEDY):
        indices = {str(label): [int(i) for i in rows] for label, rows in classes.items()}
    for label, rows in indices.items():
        if not all(0 <= row < len(images) for row in rows):
            raise InputError(f"{path}: class {label} has an image beyond the {len(images):,} there")
    every = [row for rows in indices.values() for row in rows]
    if len(set(every)) < len(every):
        raise InputError(
            f"{path}: two entries of class_dict are the same image; get the file again"
        )
    return ImagePickle(images, indices, state)
