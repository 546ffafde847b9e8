"""Encoded images -> pixels as people see them: the limits, and the one place where images are decoded."""

import io
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, UnidentifiedImageError
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
STRIP_PIXELS = 2**18
"""Pixels that are converted at a time: no further copy of a large image is needed."""
ORIENTATION, BITS_PER_SAMPLE, PHOTOMETRIC, WHITE_IS_ZERO = 274, 258, 262, 0
"""Tags of EXIF and TIFF, and a value of the last one."""
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""By EXIF's orientation."""
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
    white, inverted = _white(image)
    with _one_large_image if pixels > LARGE_PIXELS else nullcontext():
        yield _eight_bits(_turned(image), "L" if channels == 1 else "RGB", white, inverted)


def _turned(image: Image.Image) -> Image.Image:
    if isinstance(image, ImageFile.ImageFile) and image.tile:
        _correct_transparent_color(image)
    image.load()
    with suppress(Exception):  # the pixels are fine even if EXIF is not
        if (turn := TURNS.get(image.getexif().get(ORIENTATION, 1))) is not None:
            return image.transpose(turn)
    return image


def _correct_transparent_color(image: ImageFile.ImageFile) -> None:
    """Pillow scales 2, 4 and 3 x 16 bits of a PNG to 8 when loading, but not its transparent color."""
    key = image.info.get("transparency")
    match image.tile[0].args:
        case "L;2" if isinstance(key, int):
            image.info["transparency"] = key * 85
        case "L;4" if isinstance(key, int):
            image.info["transparency"] = key * 17
        case "RGB;16B" if isinstance(key, tuple):
            image.info["transparency"] = tuple(value >> 8 for value in key)


def _white(image: Image.Image) -> tuple[int, bool]:
    """The largest value of 16 bits, and whether it means black."""
    tags: dict[int, Any] = getattr(image, "tag_v2", {})
    white = 4095 if tags.get(BITS_PER_SAMPLE) == (12,) else 65535
    return white, tags.get(PHOTOMETRIC) == WHITE_IS_ZERO


def _eight_bits(image: Image.Image, mode: str, white: int, inverted: bool) -> Image.Image:
    """Some lines at a time; an image that is already in `mode` is not copied."""
    if image.mode == mode and not image.has_transparency_data:
        return image
    if image.mode == "F":
        raise ValueError("floating-point pixels have no white; save it with 8 or 16 bits")
    table = None
    if image.mode == "I" or image.mode.startswith("I;16"):
        values = np.asarray(image)
        least, most = int(values.min()), int(values.max())
        del values  # before another image is made
        if least < 0 or most > white:
            raise ValueError(
                f"pixels from {least:,} to {most:,}, not from 0 to {white:,}: save it with 8 or 16 bits"
            )
        table = _from_16_bits(white, inverted, image.info.get("transparency"))
    shown = Image.new(mode, image.size)
    lines = max(1, STRIP_PIXELS // image.width)
    for top in range(0, image.height, lines):
        strip = image.crop((0, top, image.width, min(top + lines, image.height)))
        eight = _over_white(strip) if table is None else Image.fromarray(table[np.asarray(strip)])
        shown.paste(eight.convert(mode), (0, top))
    return shown


def _from_16_bits(white: int, inverted: bool, transparent: object) -> Pixels:
    """Black to white becomes 0 to 255; Pillow's own conversion would clip at 255 of 65,535."""
    values = np.arange(white + 1)
    if inverted:
        values = white - values
    if transparent is not None:
        values[values == transparent] = white
    return ((values * 255 + white // 2) // white).astype(np.uint8)


def _over_white(image: Image.Image) -> Image.Image:
    if not image.has_transparency_data:
        return image
    seen = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)
