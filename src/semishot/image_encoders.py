"""Images -> features: the public import path of `semishot.sorter.encoders`."""

from semishot.sorter.encoders.image_encoder import ImageEncoder, load_encoder, save_encoder
from semishot.sorter.encoders.names import DEFAULT, open_encoder

__all__ = ["DEFAULT", "ImageEncoder", "load_encoder", "open_encoder", "save_encoder"]
