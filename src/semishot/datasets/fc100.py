"""FC100: CIFAR-100 split by superclass, 60/20/20 classes of 12/4/4 superclasses (Oreshkin et al., 2018).

A superclass, such as fish, has one split, so that test classes are further from the training classes
than those of CIFAR-FS are. The split is that of the authors (github.com/ServiceNow/TADAM).
"""

from pathlib import Path

from semishot.data import cifar100
from semishot.data.framing import Whole
from semishot.data.pool import ImagePool, Split

FRAMING, ACCEPTED = Whole, cifar100.ACCEPTED
SUPERCLASSES: dict[Split, str] = {
    "val": "large_carnivores large_omnivores_and_herbivores non-insect_invertebrates small_mammals",
    "test": "aquatic_mammals insects medium_mammals people",
}
"""The others are for training."""


def prepare(folder: Path, source: Path) -> ImagePool:
    """Build the pool in `folder` from CIFAR-100 in `source`."""
    return cifar100.build(folder, source, "fc100", SUPERCLASSES, level="coarse")
