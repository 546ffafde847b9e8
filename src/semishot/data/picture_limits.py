"""What a picture may cost: its bytes, pixels, memory and time, bounded before it is decoded."""

from typing import Any

from PIL import Image, ImageFile

from semishot.data.jpeg_scans import count_scans, in_one_scan, is_jpeg
from semishot.errors import InputError

MOST_BYTES = 64 * 2**20
"""The largest image file that is read."""
MOST_PIXELS, MOST_SIDE = 64_000_000, 200_000
MOST_MEMORY = 640_000_000
"""What decoding may take in a process, all its threads together, with the bytes of the files."""
MOST_SCANS, MOST_SCANNED = 100, 1_600_000_000
"""Of a JPEG, and the same times its pixels. Progressive JPEGs usually have about 10 scans."""
SLOW_BYTES, SLOW_PIXELS = 8 * 2**20, 16_000_000
"""Of plain PPM and of run lengths in BMP, which Pillow decodes in Python: about a second for a MiB."""
MOST_COMMENTS = 1_000
"""In plain PPM: each of them moves a MiB."""
REMEDY = "replace or remove this file"
SPARE = 16_000_000
"""For what is converted at a time, and small things."""
ORIENTATION, TILE_WIDTH, TILE_LENGTH, ROWS_PER_STRIP = 274, 322, 323, 278
BITS_PER_SAMPLE, SAMPLES_PER_PIXEL, PLANAR, PHOTOMETRIC, YCBCR = 258, 277, 284, 262, 6


def check_image(image: Image.Image, data: bytes, name: str) -> None:
    """Refuse an image whose header says that its pixels would take too much memory or time."""
    width, height = image.size
    problem, slow = "", _codec(image) in {"bmp_rle", "ppm_plain"}
    needed, scans = memory(image, data, reduced=True), count_scans(image, data)
    if width * height > MOST_PIXELS:
        problem = f", more than {MOST_PIXELS:,} pixels"
    elif max(width, height) > MOST_SIDE:
        problem = f" pixels, a side of more than {MOST_SIDE:,}"
    elif needed > MOST_MEMORY:
        problem = (
            f" pixels in a form that takes {needed // 10**6:,} MB of memory to decode, more than "
            f"{MOST_MEMORY // 10**6:,}: save it as PNG"
        )
    elif scans > MOST_SCANS or scans * width * height > MOST_SCANNED:
        problem = f" pixels in {scans:,} scans, which take too long to decode: save it as PNG"
    elif slow and (len(data) > SLOW_BYTES or width * height > SLOW_PIXELS):
        problem = " pixels in a form that takes too long to decode: save it as PNG"
    elif slow and data.startswith(b"P") and data.count(b"#") > MOST_COMMENTS:
        problem = f" pixels and more than {MOST_COMMENTS:,} comments"
    if problem:
        raise InputError(f"{name} has {width:,} x {height:,}{problem}; {REMEDY}")


def reduce_if_needed(image: Image.Image, data: bytes) -> None:
    """Let a JPEG decode at half its size if it takes too much memory otherwise."""
    if is_jpeg(image) and memory(image, data) > MOST_MEMORY:
        image.draft(None, (image.width // 2, image.height // 2))


def memory(image: Image.Image, data: bytes, reduced: bool = False) -> int:
    """The most bytes to hold at a time: to decode it, to turn it, and to make it 8-bit RGB.

    The figures are those that tests/support/worst_pictures.py measures. `reduced`: see above.
    """
    width, height = image.size
    native, shown = _held(image.mode, width, height), _held("RGB", width, height)
    beside = kept = 0
    if is_jpeg(image):
        beside = _coefficients(image, data)
    elif image.format in {"WEBP", "HEIF"}:
        kept, beside = 8 * width * height, 12 * width * height
    elif image.format == "TIFF":
        turned = getattr(image, "tag_v2", {}).get(ORIENTATION, 1) != 1
        beside = _strip(image) + turned * native
    elif image.format == "GIF":
        kept = beside = width * height
    elif _codec(image) in {"bmp_rle", "ppm_plain", "ppm"}:
        beside = 2 * native
    most = len(data) + max(beside + native, kept + native + max(native, shown)) + SPARE
    if reduced and most > MOST_MEMORY and is_jpeg(image) and not _scale(image):
        return len(data) + max(beside + native // 4, (native + shown) // 4) + SPARE
    return most


def _held(mode: str, width: int, height: int) -> int:
    """As Pillow stores it: lines of 1, 2 or 4 bytes for a pixel, and an address for each."""
    each = 1 if mode in {"1", "L", "P"} else 2 if mode.startswith("I;16") else 4
    return height * (-(-width * each // 4) * 4 + 8)


def _codec(image: Image.Image) -> str:
    tile = getattr(image, "tile", None)
    return str(tile[0][0]) if tile else ""


def _scale(image: Image.Image) -> int:
    """By how much a JPEG is reduced; 0 if nobody has asked for it yet."""
    config = image.decoderconfig if isinstance(image, ImageFile.ImageFile) else ()
    return int(config[0]) if config else 0


def _coefficients(image: Image.Image, data: bytes) -> int:
    """Bytes of a JPEG of several scans, whose coefficients are all held: two for each sample."""
    layers: list[tuple[int, ...]] = getattr(image, "layer", [])
    if not layers or in_one_scan(image, data):
        return 0
    scale = _scale(image) or 1
    highest = max(layer[1] for layer in layers) * 8, max(layer[2] for layer in layers) * 8
    width, height = (-(-side * scale // 64) * 64 for side in image.size)
    samples = sum(64 * v * h * width * height for _, v, h, _ in layers)
    return 2 * samples // max(1, highest[0] * highest[1])


def _strip(image: Image.Image) -> int:
    """Bytes of the strips or tiles that libtiff decodes at a time."""
    if _codec(image) != "libtiff":
        return 0
    tags: Any = getattr(image, "tag_v2", {})
    bits = tags.get(BITS_PER_SAMPLE, (1,))
    samples = tags.get(SAMPLES_PER_PIXEL, 1) if tags.get(PLANAR, 1) == 1 else 1
    each = 32 if tags.get(PHOTOMETRIC) == YCBCR else max(bits) * samples
    width, height = image.size
    if tags.get(ORIENTATION, 1) in (5, 6, 7, 8):
        width, height = height, width
    rows = min(height, tags.get(ROWS_PER_STRIP, height))
    if TILE_WIDTH in tags:
        width, rows = tags[TILE_WIDTH], tags.get(TILE_LENGTH, height)
    return int(-(-width * each // 8) * rows)
