"""The prepared data set on disk: the public import path of `semishot.data.pool`."""

from semishot.data.pool import (
    ImageClass,
    ImagePool,
    Split,
    changed_classes,
    open_pool,
    save_pool,
)

__all__ = ["ImageClass", "ImagePool", "Split", "changed_classes", "open_pool", "save_pool"]
