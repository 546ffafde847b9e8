"""Images -> features: the public import path of `semishot.sorter.encoders`."""

from semishot.sorter.encoder_files import DEFAULT
from semishot.sorter.encoders import ImageEncoder, load_encoder, open_encoder, save_encoder

__all__ = ["DEFAULT", "ImageEncoder", "load_encoder", "open_encoder", "save_encoder"]
