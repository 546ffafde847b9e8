"""Small JPEGs and PNGs of images, for every page: of image files, of decoded images, of a pool's pixels."""

import base64
import io

from PIL import Image

from semishot.data.decoding import Picture, Pixels, upright

SIDE, QUALITY = 112, 75
"""Pixels of a thumbnail's longer side, and the quality of its JPEG."""
LARGE_SIDE, LARGE_QUALITY = 1024, 82
"""Of the images that a page shows large."""
LARGE, ENOUGH = 512, 0.75
"""Pixels of a side from which on a JPEG is decoded at about that size, at this share of it or more."""
FINGERPRINT = 24
"""Pixels of a side at which near copies look the same."""
PNG = b"\x89PNG"


def thumbnail(
    picture: Picture, side: int = SIDE, quality: int = QUALITY, optimize: bool = True
) -> bytes:
    """A small JPEG of an image, without metadata such as place and time.

    It may be smaller by a quarter, if a JPEG can be decoded at that size.
    """
    least = (2 * side, 2 * side)
    if side >= LARGE and isinstance(picture, Image.Image):
        share = ENOUGH * side / max(picture.size)
        least = (max(1, int(picture.width * share)), max(1, int(picture.height * share)))
    with upright(picture, least=least) as image:
        return _encoded(image, side, quality, optimize)


def large_thumbnail(image: Image.Image) -> bytes:
    """What a page shows large, of an opened image."""
    return thumbnail(image, LARGE_SIDE, LARGE_QUALITY, optimize=False)


def small_copy(image: Image.Image) -> bytes:
    """The thumbnail of an image that is decoded already."""
    return _encoded(image.reduce(max(1, max(image.size) // (2 * SIDE))), SIDE, QUALITY, True)


def fingerprint(image: Image.Image) -> bytes:
    """FINGERPRINT x FINGERPRINT gray levels of a decoded image, the same at any size."""
    return image.convert("L").resize((FINGERPRINT, FINGERPRINT), Image.Resampling.BOX).tobytes()


def _encoded(image: Image.Image, side: int, quality: int, optimize: bool) -> bytes:
    small = image.copy()
    small.info.clear()  # comments would be saved, too
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
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
