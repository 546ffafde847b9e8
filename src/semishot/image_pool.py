"""The prepared data set on disk: `semishot.data.pool` under the path that others rely on."""

from semishot.data.pool import (
    ImageClass,
    ImagePool,
    Split,
    changed_classes,
    open_pool,
    save_pool,
)

__all__ = ["ImageClass", "ImagePool", "Split", "changed_classes", "open_pool", "save_pool"]
