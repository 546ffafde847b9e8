"""Small images for pages, as the encoder sees them: of image files, and of a pool's pixels."""

import base64
import io

from PIL import Image

from semishot.data.decoding import Pixels, upright
from semishot.data.framing import draft

SIDE = 112
"""Pixels of a thumbnail's longer side."""
PNG = b"\x89PNG"


def thumbnail(
    image: Image.Image, side: int = SIDE, quality: int = 75, optimize: bool = True
) -> bytes:
    """A small JPEG of an opened image, without metadata such as place and time."""
    draft(image, side, side)
    file = io.BytesIO()
    with upright(image) as small:
        small.info.clear()  # comments would be saved, too
        small.thumbnail((side, side), Image.Resampling.LANCZOS)
        small.save(file, "jpeg", quality=quality, optimize=optimize)
    return file.getvalue()


def pool_thumbnail(pixels: Pixels) -> bytes:
    """(C, H, W) -> a PNG of dark ink on white paper, or a JPEG of a photograph."""
    file = io.BytesIO()
    if len(pixels) == 1:
        Image.fromarray(255 - pixels[0]).save(file, "png", optimize=True)
    else:
        Image.fromarray(pixels.transpose(1, 2, 0)).save(file, "jpeg", quality=85)
    return file.getvalue()


def data_uri(encoded: bytes) -> str:
    """A PNG or JPEG as the source of an `<img>`."""
    kind = "png" if encoded.startswith(PNG) else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(encoded).decode()}"
