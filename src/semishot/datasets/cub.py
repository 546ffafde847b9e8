"""CUB: the 200 birds of CUB-200-2011 (11,788 photographs), 84x84, 100/50/50 classes (Chen et al., 2019).

The split is a rule: in the order of the folders, from `001.Black_footed_Albatross` on, every second class
trains, beginning with the first, and the others are for validation and for test in turn (`filelists/CUB`
of github.com/wyharveychen/CloserLookFewShot). Images are not cropped to the birds.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from semishot.data.decoding import decode
from semishot.data.framing import Whole
from semishot.data.image_sources import ImageSource, WholeFile, read_bytes
from semishot.data.pool import SPLITS, ImagePool, Split
from semishot.data.pool_builder import PlannedClass, PoolPlan, build_pool
from semishot.errors import InputError

SIDE, CLASSES = 84, 200
FRAMING = Whole
ACCEPTED = (
    "the unpacked CUB_200_2011.tgz of https://www.vision.caltech.edu/datasets/cub_200_2011: a folder "
    "images/ of 200 folders"
)
IN_TURN: tuple[Split, ...] = ("train", "val", "train", "test")


def prepare(folder: Path, source: Path) -> ImagePool:
    """Build the pool in `folder` from the images of CUB-200-2011 in `source`."""
    trees = [source / "CUB_200_2011" / "images", source / "images"]
    tree = next((tree for tree in trees if tree.is_dir()), source)
    names = sorted(path.name for path in tree.iterdir() if path.name[:3].isdecimal())
    if [int(name[:3]) for name in names] != list(range(1, CLASSES + 1)):
        raise InputError(
            f"{tree} has {len(names)} numbered class folders, not 001 to {CLASSES}: it needs {ACCEPTED}"
        )
    planned = [
        PlannedClass(
            name.partition(".")[2],
            "birds",
            IN_TURN[index % len(IN_TURN)],
            tuple(WholeFile(str(path)) for path in sorted((tree / name).glob("[!.]*.jpg"))),
        )
        for index, name in enumerate(names)
    ]
    if empty := [c.name for c in planned if not c.sources]:
        raise InputError(f"{tree}: {empty[0]} holds no .jpg; unpack CUB_200_2011.tgz again")
    planned.sort(key=lambda c: SPLITS.index(c.split))
    about = {"form": "CUB-200-2011", "prepared": "84x84 RGB, Pillow bilinear"}
    return build_pool(folder, PoolPlan("cub", (3, SIDE, SIDE), planned, read, about))


def read(source: ImageSource) -> NDArray[np.uint8]:
    """One image (3, 84, 84)."""
    return decode(read_bytes(source), source.name, SIDE)
