"""Images -> features: `semishot.sorter.encoders` under the path that others rely on."""

from semishot.sorter.encoders import (
    DEFAULT,
    ImageEncoder,
    load_encoder,
    open_encoder,
    save_encoder,
)

__all__ = ["DEFAULT", "ImageEncoder", "load_encoder", "open_encoder", "save_encoder"]
