"""Small images for pages, as the encoder sees them: of image files, and of a pool's pixels."""

import base64
import io

from PIL import Image

from semishot.data.decoding import Pixels, upright
from semishot.data.framing import draft

SIDE, QUALITY = 112, 75
"""Pixels of a thumbnail's longer side, and of JPEG."""
LARGE_SIDE, LARGE_QUALITY = 1024, 82
"""Of the pictures that a page shows large."""
LARGE, ENOUGH = 512, 0.75
"""Pixels of a side from which on a JPEG is decoded at about that size, at this share of it or more."""
PNG = b"\x89PNG"


def thumbnail(
    image: Image.Image, side: int = SIDE, quality: int = QUALITY, optimize: bool = True
) -> bytes:
    """A small JPEG of an opened image, without metadata such as place and time.

    It may be smaller by a quarter, if a JPEG can be decoded at that size.
    """
    if side >= LARGE:
        share = ENOUGH * side / max(image.size)
        image.draft(None, (max(1, int(image.width * share)), max(1, int(image.height * share))))
    else:
        draft(image, side, side)
    with upright(image) as small:
        small.info.clear()  # comments would be saved, too
        small.thumbnail((side, side), Image.Resampling.LANCZOS)
        return _encoded(small, quality, optimize)


def large_thumbnail(image: Image.Image) -> bytes:
    """A picture that a page shows large, of an opened image."""
    return thumbnail(image, LARGE_SIDE, LARGE_QUALITY, optimize=False)


def small_copy(shown: Image.Image) -> bytes:
    """The thumbnail of an image that is decoded already, which is left as it is."""
    factor = max(1, max(shown.size) // (2 * SIDE))
    small = shown.reduce(factor) if factor > 1 else shown.copy()
    small.info.clear()
    small.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    return _encoded(small, QUALITY, True)


def large_copy(shown: Image.Image) -> bytes:
    """What `large_thumbnail` makes, of an image that is decoded already.

    Nothing, if it would have been decoded at another size.
    """
    if not ENOUGH * LARGE_SIDE <= max(shown.size) <= LARGE_SIDE:
        return b""
    shown.info.clear()
    return _encoded(shown, LARGE_QUALITY, False)


def _encoded(small: Image.Image, quality: int, optimize: bool) -> bytes:
    file = io.BytesIO()
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
