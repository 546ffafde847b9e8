"""Encoded images -> pixels: the one place where a PNG, a JPEG or any other file is decoded."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from semishot.errors import InputError

__all__ = ["decode", "header", "opened", "quiet", "upright"]

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "WEBP", "TIFF")
"""What a data set may hold. Pillow knows more, and runs Ghostscript for some of it."""
MOST_PIXELS = 64_000_000
BITS_PER_SAMPLE, PHOTOMETRIC, WHITE_IS_ZERO = 258, 262, 0  # of TIFF
AGAIN = "replace or remove this file"


def decode(
    data: bytes, name: str, side: int, channels: int = 3, bicubic: bool = False
) -> NDArray[np.uint8]:
    """The pixels (channels, side, side) of an encoded image; `name` is for messages.

    Upright after EXIF, transparency over white, 16 bits scaled to 8; of an animation the first
    frame. Resized with Pillow's bilinear or bicubic filter, which looks at every pixel. The aspect
    ratio is not kept, as in the paper's code.
    """
    with quiet(), opened(data, name) as image:
        shown = upright(image, channels)
        if shown.size != (side, side):
            filter = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
            shown = shown.resize((side, side), filter)
        return np.array(shown).reshape(side, side, channels).transpose(2, 0, 1).copy()


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
    with suppress(Exception):  # unreadable EXIF is no reason to refuse the pixels
        ImageOps.exif_transpose(image, in_place=True)
    sixteen_bits = image.mode == "I" or image.mode.startswith("I;16")
    eight_bits = _from_16_bits(image) if sixteen_bits else _over_white(image)
    return eight_bits.convert({1: "L", 3: "RGB"}[channels])


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings of odd metadata. Of a whole process: threads that decode share one around them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def opened(data: bytes, name: str) -> Iterator[Image.Image]:
    """The image, its pixels not yet decoded, nor too many of them.

    Damage raises a dozen types in Pillow, here or while the pixels are used: all become one line.
    """
    if not data:
        raise InputError(f"{name} is empty; {AGAIN}")
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            _check_size(image, name)
            yield image
    except InputError:
        raise
    except UnidentifiedImageError as error:  # its text has an address in memory
        known = ", ".join(FORMATS)
        raise InputError(f"{name} is no readable image ({known}); {AGAIN}") from error
    except Image.DecompressionBombError as error:  # Pillow's own bound, far above ours
        raise InputError(f"{name} has more than {MOST_PIXELS:,} pixels; {AGAIN}") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"cannot read {name} ({reason}); {AGAIN}") from error


def _check_size(image: Image.Image, name: str) -> None:
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise InputError(
            f"{name} has {width:,} x {height:,}, more than {MOST_PIXELS:,} pixels; {AGAIN}"
        )


def _correct_transparent_color(image: Image.Image) -> None:
    """Pillow scales 2, 4 and 3 x 16 bits of a PNG to 8 when loading, but not the color to omit."""
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
