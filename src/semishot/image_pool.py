"""The prepared data set on disk: `semishot.data.pool` under the path that others rely on."""

from semishot.data.pool import (
    SPLITS,
    ImageClass,
    ImagePool,
    Indices,
    Split,
    changed_classes,
    data_root,
    gather,
    open_pool,
    save_pool,
)
from semishot.system.npy import make_room

__all__ = [
    "SPLITS",
    "ImageClass",
    "ImagePool",
    "Indices",
    "Split",
    "changed_classes",
    "data_root",
    "gather",
    "make_room",
    "open_pool",
    "save_pool",
]
