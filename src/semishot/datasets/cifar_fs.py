"""CIFAR-FS: CIFAR-100's classes of 600 photographs, 32x32, in 64/16/20 classes (Bertinetto et al., 2019).

The split is that of the authors' lists (github.com/bertinetto/r2d2); a class has the images of CIFAR-100's
training file and then those of its test file. FC100 is another split of the same images.
"""

from pathlib import Path

from semishot.data import cifar100
from semishot.data.framing import Whole
from semishot.data.pool import ImagePool, Split

FRAMING, ACCEPTED = Whole, cifar100.ACCEPTED
CLASSES: dict[Split, str] = {
    "val": "beaver beetle butterfly camel cattle crab crocodile flatfish lamp maple_tree motorcycle otter "
    "sea shark television tractor",
    "test": "baby bed bicycle chimpanzee fox leopard man pickup_truck plain poppy rocket rose snail "
    "sweet_pepper table telephone wardrobe whale woman worm",
}
"""The others are for training."""


def prepare(folder: Path, source: Path) -> ImagePool:
    """Build the pool in `folder` from CIFAR-100 in `source`."""
    return cifar100.build(folder, source, "cifar-fs", CLASSES, level="fine")
