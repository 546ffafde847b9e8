"""Encoded images -> pixels as people see them: the one place where an image file is decoded."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from semishot.errors import InputError
from semishot.system.open_files import reading

__all__ = ["decode", "header", "opened", "quiet", "resized", "upright"]

# fmt: off
FORMATS = {
    "JPEG": {".jpg", ".jpeg", ".jpe", ".jfif"}, "PNG": {".png"}, "GIF": {".gif"}, "BMP": {".bmp"},
    "PPM": {".ppm", ".pgm", ".pbm", ".pnm"}, "WEBP": {".webp"}, "TIFF": {".tif", ".tiff"},
}
# fmt: on
"""The formats that are decoded, and their extensions. Pillow knows more, and runs Ghostscript for some."""
EXTENSIONS = frozenset().union(*FORMATS.values())
MOST_BYTES = 64 * 2**20
"""The largest image file that is read."""
MOST_PIXELS = 64_000_000
BITS_PER_SAMPLE, PHOTOMETRIC, WHITE_IS_ZERO = 258, 262, 0  # of TIFF
REMEDY = "replace or remove this file"
Pixels = NDArray[np.uint8]
Box = tuple[float, float, float, float]


def decode(data: bytes, name: str, side: int, channels: int = 3, bicubic: bool = False) -> Pixels:
    """The pixels (channels, side, side) of an encoded image; `name` is for messages.

    Turned upright by EXIF, transparency over white, 16 bits scaled to 8, the first frame of an
    animation. The aspect ratio is not kept, as in the paper's code.
    """
    with quiet(), opened(data, name) as image:
        shown = resized(upright(image, channels), side, side, bicubic)
        return shown.transpose(2, 0, 1).copy()


def resized(
    image: Image.Image, height: int, width: int, bicubic: bool, box: Box | None = None
) -> Pixels:
    """(H, W, C), by Pillow's bilinear or bicubic filter, which averages over every pixel."""
    if image.size != (width, height) or box is not None:
        filter = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
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


def upright(image: Image.Image, channels: int = 3) -> Image.Image:
    """An opened image as people see it: turned by EXIF, over white, 8 bits, gray or RGB."""
    _correct_transparent_color(image)
    image.load()
    with suppress(Exception):  # the pixels are fine even if EXIF is not
        ImageOps.exif_transpose(image, in_place=True)
    sixteen_bits = image.mode == "I" or image.mode.startswith("I;16")
    eight_bits = _from_16_bits(image) if sixteen_bits else _over_white(image)
    return eight_bits.convert({1: "L", 3: "RGB"}[channels])


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
            with Image.open(io.BytesIO(data), formats=tuple(FORMATS)) as image:
                _check_size(image, name)
                yield image
        except UnidentifiedImageError as error:  # its text contains a memory address
            known = ", ".join(FORMATS)
            raise InputError(f"{name} is not a readable image ({known}); {REMEDY}") from error
        except Image.DecompressionBombError as error:  # Pillow's own limit, far above ours
            raise InputError(f"{name} has more than {MOST_PIXELS:,} pixels; {REMEDY}") from error


def _check_size(image: Image.Image, name: str) -> None:
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise InputError(
            f"{name} has {width:,} x {height:,}, more than {MOST_PIXELS:,} pixels; {REMEDY}"
        )


def _correct_transparent_color(image: Image.Image) -> None:
    """Pillow scales 2, 4 and 3 x 16 bits of a PNG to 8 when loading, but not its transparent color."""
    key = image.info.get("transparency")
    match image.tile[0].args if isinstance(image, ImageFile.ImageFile) and image.tile else None:
        case "L;2" if isinstance(key, int):
            image.info["transparency"] = key * 85
        case "L;4" if isinstance(key, int):
            image.info["transparency"] = key * 17
        case "RGB;16B" if isinstance(key, tuple):
            image.info["transparency"] = tuple(value >> 8 for value in key)


def _over_white(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise ValueError("floating-point pixels have no white; save it with 8 or 16 bits")
    if not image.has_transparency_data:
        return image
    seen = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", seen.size, "white"), seen)


def _from_16_bits(image: Image.Image) -> Image.Image:
    """Black to white stays 0 to 255; Pillow's own conversion would clip at 255 of 65,535."""
    tags: dict[int, Any] = getattr(image, "tag_v2", {})
    white = 4095 if tags.get(BITS_PER_SAMPLE) == (12,) else 65535
    pixels = np.asarray(image).astype(np.int64)
    if pixels.min() < 0 or pixels.max() > white:
        raise ValueError(
            f"pixels from {pixels.min():,} to {pixels.max():,}, not from 0 to {white:,}: "
            "save it with 8 or 16 bits"
        )
    if tags.get(PHOTOMETRIC) == WHITE_IS_ZERO:
        pixels = white - pixels
    if "transparency" in image.info:
        pixels[pixels == image.info["transparency"]] = white
    return Image.fromarray(((pixels * 255 + white // 2) // white).astype(np.uint8))
