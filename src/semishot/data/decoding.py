"""Encoded images -> pixels as people see them: the one place where an image file is decoded."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, UnidentifiedImageError

from semishot.data.memory_budget import budget
from semishot.data.metadata_limits import check_file
from semishot.data.picture_limits import (
    BITS_PER_SAMPLE,
    MOST_PIXELS,
    ORIENTATION,
    PHOTOMETRIC,
    REMEDY,
    check_image,
    memory,
    reduce_if_needed,
)
from semishot.errors import InputError
from semishot.system.files import reading

# fmt: off
FORMATS = {
    "JPEG": {".jpg", ".jpeg", ".jpe", ".jfif"}, "PNG": {".png"}, "GIF": {".gif"}, "BMP": {".bmp"},
    "PPM": {".ppm", ".pgm", ".pbm", ".pnm"}, "WEBP": {".webp"}, "TIFF": {".tif", ".tiff"},
}
# fmt: on
"""The formats that are decoded, and their extensions. Pillow knows more, and runs Ghostscript for some."""
HEIF = "HEIF"
if find_spec("pillow_heif") is not None:  # the extra `heic`
    FORMATS[HEIF] = {".heic", ".heif"}
EXTENSIONS = frozenset().union(*FORMATS.values())
WHITE_IS_ZERO = 0  # of TIFF's photometric interpretation
AT_A_TIME = 2**18
"""Pixels that are converted at a time: no second whole picture is needed."""
MOST_BETWEEN = 32_000_000
"""Pixels between the two steps of a resize, which is first of lines and then of columns."""
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
Box = tuple[float, float, float, float]


def decode(data: bytes, name: str, side: int, channels: int = 3, bicubic: bool = False) -> Pixels:
    """The pixels (channels, side, side) of an encoded image; `name` is for messages.

    Turned upright by EXIF, transparency over white, 16 bits scaled to 8, the first frame of an
    animation. The aspect ratio is not kept, as in the paper's code.
    """
    with quiet(), opened(data, name) as image, upright(image, channels) as seen:
        return resized(seen, side, side, bicubic).transpose(2, 0, 1).copy()


def resized(
    image: Image.Image, height: int, width: int, bicubic: bool, box: Box | None = None
) -> Pixels:
    """(H, W, C), by Pillow's bilinear or bicubic filter, which averages over every pixel."""
    filter = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
    if width * image.height > MOST_BETWEEN:  # a tall one: columns first
        left, top, right, bottom = box or (0, 0, *image.size)
        image = image.resize((image.width, height), filter, (0, top, image.width, bottom))
        box = (left, 0, right, height)
    if image.size != (width, height) or box is not None:
        image = image.resize((width, height), filter, box)
    return np.array(image).reshape(height, width, -1)


def header(data: bytes, name: str) -> tuple[int, int, bool]:
    """Width and height as stored, and whether the image is grayscale, without decoding pixels."""
    with quiet(), opened(data, name) as image:
        gray = image.mode in {"1", "L", "LA", "I", "F"} or image.mode.startswith("I;16")
        if image.mode == "P":
            palette = np.array(image.getpalette("RGB")).reshape(-1, 3)
            gray = bool((palette == palette[:, :1]).all())
        return *image.size, gray


@contextmanager
def upright(image: Image.Image, channels: int = 3) -> Iterator[Image.Image]:
    """An opened image as people see it: turned by EXIF, over white, 8 bits, gray or RGB.

    Decodes it, once there is memory for it, and closes it.
    """
    file = getattr(image, "fp", None)
    data = file.getvalue() if isinstance(file, io.BytesIO) else b""
    reduce_if_needed(image, data)
    with budget.take(memory(image, data)):
        if isinstance(image, ImageFile.ImageFile) and image.tile:
            _correct_transparent_color(image)
            _fill_range(image, data)
            _decode_at_once(image, data)
        white, inverted = _white(image)
        image.load()
        yield _eight_bits(_turned(image), {1: "L", 3: "RGB"}[channels], white, inverted)


def _turned(image: Image.Image) -> Image.Image:
    method = None
    with suppress(Exception):  # the pixels are fine even if EXIF is not
        method = TURNS.get(image.getexif().get(ORIENTATION, 1))
    if method is None:
        return image
    turned = image.transpose(method)
    _release(image)
    return turned


def _release(image: Image.Image) -> None:
    """Free the pixels of an image that was opened, not of one that a caller made."""
    if isinstance(image, ImageFile.ImageFile):
        image.close()


def _eight_bits(image: Image.Image, mode: str, white: int, inverted: bool) -> Image.Image:
    """Some lines at a time; what is already so is not copied."""
    if image.mode == mode and not image.has_transparency_data:
        return image
    if image.mode == "F":
        raise ValueError("floating-point pixels have no white; save it with 8 or 16 bits")
    table = None
    if image.mode == "I" or image.mode.startswith("I;16"):
        _check_range(image, white)
        table = _from_16_bits(white, inverted, image.info.get("transparency"))
    shown = Image.new(mode, image.size)
    for top, some in _parts(image):
        eight = _over_white(some) if table is None else Image.fromarray(table[np.asarray(some)])
        shown.paste(eight.convert(mode), (0, top))
    _release(image)
    return shown


def _parts(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """The first line and the image of some lines."""
    lines = max(1, AT_A_TIME // image.width)
    for top in range(0, image.height, lines):
        yield top, image.crop((0, top, image.width, min(top + lines, image.height)))


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
        check_file(data, name)
        try:
            with Image.open(io.BytesIO(data), formats=_formats(data)) as image:
                check_image(image, data, name)
                yield image
        except UnidentifiedImageError as error:  # its text contains a memory address
            known = ", ".join(FORMATS)
            raise InputError(f"{name} is not a readable image ({known}); {REMEDY}") from error
        except Image.DecompressionBombError as error:  # Pillow's own limit, far above ours
            raise InputError(f"{name} has more than {MOST_PIXELS:,} pixels; {REMEDY}") from error


def _formats(data: bytes) -> tuple[str, ...]:
    """The decoder of HEIC is loaded for a file that may be one."""
    if data[4:8] != b"ftyp" or HEIF not in FORMATS:
        return tuple(name for name in FORMATS if name != HEIF)
    _register_heif()
    return tuple(FORMATS)


@cache
def _register_heif() -> None:
    package = import_module("pillow_heif")
    package.register_heif_opener(thumbnails=False, depth_images=False, aux_images=False)
    package.options.DECODE_THREADS = 1  # pictures are decoded beside each other


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


def _decode_at_once(image: ImageFile.ImageFile, data: bytes) -> None:
    """A JPEG in one call instead of 64 KiB at a time: after each, a thread waits for Python's lock."""
    if image.tile[0].codec_name == "jpeg":
        image.decodermaxblock = len(data)  # Pillow does not copy them


def _fill_range(image: ImageFile.ImageFile, data: bytes) -> None:
    """A PPM whose largest value is odd: what Pillow does with it in Python, a hundred times faster."""
    tile = image.tile[0]
    if tile.codec_name != "ppm" or not isinstance(tile.args, tuple):
        return
    largest, most = int(tile.args[1]), 65535 if image.mode == "I" else 255
    stored = np.dtype(">u2" if largest > 255 else "u1")
    count = image.width * image.height * len(image.getbands())
    count = min(count, (len(data) - tile.offset) // stored.itemsize)
    samples = np.frombuffer(data, stored, count, tile.offset)
    values = range(2 ** (8 * stored.itemsize))
    scaled = [min(most, round(value / largest * most)) for value in values]
    table = np.array(scaled, ">u2" if most > 255 else "u1")
    parts = [table[samples[at : at + AT_A_TIME]].tobytes() for at in range(0, count, AT_A_TIME)]
    image.fp = io.BytesIO(b"".join(parts))
    rawmode = "I;16B" if image.mode == "I" else image.mode
    image.tile = [tile._replace(codec_name="raw", offset=0, args=rawmode)]


def _over_white(image: Image.Image) -> Image.Image:
    if not image.has_transparency_data:
        return image
    seen = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)


def _white(image: Image.Image) -> tuple[int, bool]:
    """The largest value of 16 bits, and whether it means black."""
    tags: dict[int, Any] = getattr(image, "tag_v2", {})
    white = 4095 if tags.get(BITS_PER_SAMPLE) == (12,) else 65535
    return white, tags.get(PHOTOMETRIC) == WHITE_IS_ZERO


def _check_range(image: Image.Image, white: int) -> None:
    found = [(part.min(), part.max()) for part in (np.asarray(some) for _, some in _parts(image))]
    least, most = int(min(low for low, _ in found)), int(max(high for _, high in found))
    if least < 0 or most > white:
        raise ValueError(
            f"pixels from {least:,} to {most:,}, not from 0 to {white:,}: save it with 8 or 16 bits"
        )


def _from_16_bits(white: int, inverted: bool, transparent: object) -> Pixels:
    """Black to white becomes 0 to 255; Pillow's own conversion would clip at 255 of 65,535."""
    values = np.arange(white + 1)
    if inverted:
        values = white - values
    if transparent is not None:
        values[values == transparent] = white
    return ((values * 255 + white // 2) // white).astype(np.uint8)
