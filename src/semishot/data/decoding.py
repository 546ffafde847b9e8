"""Encoded images -> pixels as people see them: the limits, and the one place where images are decoded."""

import io
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL import _imaging as core

from semishot.errors import InputError
from semishot.system.files import reading

# fmt: off
FORMATS = {
    "JPEG": {".jpg", ".jpeg", ".jpe", ".jfif"}, "PNG": {".png"}, "GIF": {".gif"}, "BMP": {".bmp"},
    "PPM": {".ppm", ".pgm", ".pbm", ".pnm"}, "WEBP": {".webp"}, "TIFF": {".tif", ".tiff"},
}
# fmt: on
"""The formats that are decoded, and their extensions. Pillow knows more, and runs Ghostscript for some."""
if find_spec("pillow_heif") is not None:  # the extra `heic`
    FORMATS["HEIF"] = {".heic", ".heif"}
EXTENSIONS = frozenset().union(*FORMATS.values())
REMEDY = "replace or remove this file"
MOST_BYTES, MOST_PIXELS, MOST_SIDE = 64 * 2**20, 64_000_000, 65_535
"""The largest image: the bytes of its file, its pixels, and the pixels of a side."""
LARGE_PIXELS = 16_000_000
"""Larger images are decoded one at a time: each may take several hundred megabytes."""
ORIENTATION, BITS_PER_SAMPLE, PHOTOMETRIC, WHITE_IS_ZERO = 274, 258, 262, 0
"""Tags of EXIF and TIFF, and a value of the last one."""
Pixels = NDArray[np.uint8]
Picture = Image.Image | Pixels
"""An image that Pillow has opened, or an array (H, W) or (H, W, C)."""

_one_large_image = threading.Lock()
core.set_block_size(64 * 2**20)  # of pixels: smaller blocks are not returned to the system


def decode(data: bytes, name: str, side: int, channels: int = 3, bicubic: bool = False) -> Pixels:
    """The pixels (channels, side, side) of an encoded image; `name` is for messages.

    Turned upright by EXIF, transparency over white, 16 bits scaled to 8, the first frame of an
    animation. The aspect ratio is not kept, as in the paper's code.
    """
    with quiet(), opened(data, name) as image, upright(image, channels) as shown:
        filter = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
        pixels = np.asarray(shown.resize((side, side), filter)).reshape(side, side, channels)
        return pixels.transpose(2, 0, 1).copy()


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Pillow's warnings about odd metadata. This is global: decoding threads share one block."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def opened(data: bytes, name: str) -> Iterator[Image.Image]:
    """The image, its size checked, its pixels not yet decoded; a damaged one is a one-line error."""
    if not data:
        raise InputError(f"{name} is empty; {REMEDY}")
    with reading(name, REMEDY):
        try:
            with Image.open(io.BytesIO(data), formats=_formats(data[4:8] == b"ftyp")) as image:
                width, height = image.size
                if width * height > MOST_PIXELS or max(image.size) > MOST_SIDE:
                    most = f"{MOST_PIXELS:,} pixels, or {MOST_SIDE:,} on a side"
                    raise InputError(
                        f"{name} has {width:,} x {height:,} pixels, more than {most}; {REMEDY}"
                    )
                if image.format == "JPEG":  # 64 KiB at a time, threads wait for each other
                    image.decodermaxblock = len(data)
                yield image
        except UnidentifiedImageError as error:  # its text contains a memory address
            known = ", ".join(FORMATS)
            raise InputError(f"{name} is not a readable image ({known}); {REMEDY}") from error
        except Image.DecompressionBombError as error:  # Pillow's own limit, far above ours
            raise InputError(f"{name} has more than {MOST_PIXELS:,} pixels; {REMEDY}") from error


@cache
def _formats(heif: bool) -> list[str]:
    """HEIC is decoded by an extra package, which is loaded for a file that may be one."""
    if heif and "HEIF" in FORMATS:
        package = import_module("pillow_heif")
        package.register_heif_opener(thumbnails=False, depth_images=False, aux_images=False)
        package.options.DECODE_THREADS = 1  # images are decoded beside each other
    return [name for name in FORMATS if name != "HEIF" or heif]


@contextmanager
def upright(
    picture: Picture, channels: int = 3, least: tuple[int, int] | None = None
) -> Iterator[Image.Image]:
    """An image as people see it: turned by EXIF, over white, 8 bits, gray or RGB.

    least: the width and height that are needed; a JPEG that is larger is decoded at 1/2, 1/4 or 1/8 of its
    size, much faster and in less memory.
    """
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    pixels = image.width * image.height
    if least is not None and image.draft(None, least) and "progressive" not in image.info:
        pixels = image.width * image.height
    with _one_large_image if pixels > LARGE_PIXELS else nullcontext():
        image.load()
        mode, tags, turned = "L" if channels == 1 else "RGB", getattr(image, "tag_v2", {}), image
        with suppress(Exception):  # the pixels are fine even if EXIF is not
            if image.getexif().get(ORIENTATION, 1) != 1:
                turned = ImageOps.exif_transpose(image)
        shown = _over_white(_eight_bits(turned, tags))
        yield shown if shown.mode == mode else shown.convert(mode)


def _eight_bits(image: Image.Image, tags: Mapping[int, Any]) -> Image.Image:
    """Black to white of 16 bits becomes 0 to 255; Pillow's own conversion would clip at 255 of 65,535."""
    if image.mode == "F":
        raise ValueError("floating-point pixels have no white; save it with 8 or 16 bits")
    if image.mode != "I" and not image.mode.startswith("I;16"):
        return image
    white = 4095 if tags.get(BITS_PER_SAMPLE) == (12,) else 65535
    values = np.asarray(image)
    least, most = int(values.min()), int(values.max())
    if least < 0 or most > white:
        raise ValueError(
            f"pixels from {least:,} to {most:,}, not from 0 to {white:,}: save it with 8 or 16 bits"
        )
    table = np.arange(white + 1)
    if tags.get(PHOTOMETRIC) == WHITE_IS_ZERO:
        table = white - table
    if (transparent := image.info.get("transparency")) is not None:
        table[table == transparent] = white
    return Image.fromarray(((table * 255 + white // 2) // white).astype(np.uint8)[values])


def _over_white(image: Image.Image) -> Image.Image:
    if not image.has_transparency_data:
        return image
    seen = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
