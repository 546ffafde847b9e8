"""Where the animal is: boxes in MegaDetector's format, and photographs taken in one burst."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct
from PIL import Image

from semishot.errors import InputError
from semishot.system.files import MOST_JSON, read_regular, reading

ANIMAL, LEAST = "1", 0.2
"""MegaDetector's category of animals, and how sure it must be."""
EXIF_TIMES = ((0x8769, 36867), (0x8769, 36868), (0, 306))
"""When a photograph was taken: the part of EXIF and the tag, the best first."""
Share = Annotated[float, Meta(ge=-0.01, le=1.01)]
Box = tuple[Share, Share, Share, Share]
"""Left, top, width and height as shares of an upright image, as detectors round them."""


class Detection(Struct):
    category: str
    conf: float
    bbox: Box


class DetectedImage(Struct):
    file: str
    detections: list[Detection] | None = None
    """None: it could not be read."""


class DetectorFile(Struct):
    images: list[DetectedImage]


@dataclass(frozen=True)
class Boxes:
    """The surest animal of each image, by the path that the detector was given."""

    digest: str
    """Of the file: features of other boxes are others."""
    by_file: dict[str, Box] = field(repr=False)

    def box(self, path: Path | None) -> Box | None:
        """The box of a file, by the longest end of its path that the detector names."""
        parts = PurePath(path or "").as_posix().split("/")
        ends = ("/".join(parts[first:]) for first in range(len(parts)))
        return next((self.by_file[end] for end in ends if end in self.by_file), None)


def read_boxes(path: Path) -> Boxes:
    """The boxes of `--crop`."""
    if not path.exists():
        raise InputError(f"no file {path}")
    with reading(path, "it must be of MegaDetector's format"):
        content = read_regular(path, MOST_JSON)
        images = msgspec.json.decode(content, type=DetectorFile).images
    by_file = {}
    for image in images:
        animals = [d for d in image.detections or () if d.category == ANIMAL and d.conf >= LEAST]
        if animals:
            surest = max(animals, key=lambda detection: detection.conf)
            by_file[image.file.replace("\\", "/")] = surest.bbox
    if not by_file:
        raise InputError(f"{path} has no animal with a confidence of {LEAST} or more")
    return Boxes(hashlib.sha256(content).hexdigest(), by_file)


def cropped(image: Image.Image, box: Box) -> Image.Image:
    """The square around a box of an upright image, as far as the image reaches."""
    size = np.array(image.size)
    corner, sides = np.array(box).reshape(2, 2) * size
    half = max(sides) / 2
    low = np.clip(np.round(corner + sides / 2 - half), 0, size - 1).astype(int)
    high = np.clip(np.round(corner + sides / 2 + half), low + 1, size).astype(int)
    return image.crop((*low.tolist(), *high.tolist()))


@lru_cache(maxsize=100_000)
def taken_at(path: Path) -> float | None:
    """Seconds since 1970 by EXIF, in the camera's own time; None if it does not say."""
    try:
        with Image.open(path) as image:
            exif = image.getexif()
            for part, tag in EXIF_TIMES:
                text: Any = (exif.get_ifd(part) if part else exif).get(tag)
                if text:
                    return datetime.strptime(str(text), "%Y:%m:%d %H:%M:%S").timestamp()
    except Exception:  # no image, or EXIF that is none: it belongs to no burst
        return None
    return None


def bursts(paths: Sequence[Path | None], seconds: float) -> list[tuple[int, int]]:
    """Rows of photographs of one folder, each taken at most so many seconds after the other."""
    taken = sorted(
        (path.parent, time, row)
        for row, path in enumerate(paths)
        if path is not None and (time := taken_at(path)) is not None
    )
    return [
        (row, next_row)
        for (folder, time, row), (next_folder, next_time, next_row) in pairwise(taken)
        if folder == next_folder and next_time - time <= seconds
    ]
