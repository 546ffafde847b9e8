"""What a picture may cost: its bytes, pixels, memory and time, bounded before it is decoded."""

import re
import struct
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from PIL import Image, ImageFile

from semishot.errors import InputError

MOST_BYTES = 64 * 2**20
"""The largest image file that is read."""
MOST_PIXELS, MOST_SIDE = 64_000_000, 200_000
MOST_MEMORY = 640_000_000
"""What decoding may take in a process, all its threads together, with the bytes of the files."""
LARGE_MEMORY = MOST_MEMORY // 8
"""Of processes that work on one pool, one at a time decodes a picture that takes more."""
MOST_SCANS, MOST_SCANNED = 100, 1_600_000_000
"""Of a JPEG, and the same times its pixels. Progressive JPEGs usually have about 10 scans."""
MOST_SEGMENTS, MOST_METADATA, MOST_EXIFS = 10_000, 16 * 2**20, 100
"""Of what precedes the pixels of a JPEG, and of the texts of a PNG: parts, and bytes."""
MOST_ODD = 4 * 2**20
"""Bytes of a JPEG with segments that Pillow does not know."""
MOST_CHUNKS, MOST_BLOCKS = 100_000, 1_000_000
"""Of a PNG, and of a GIF before its first frame."""
MOST_TAGS, MOST_VALUES = 4_096, 600_000
"""Of a TIFF: Python takes about 200 bytes for a number among its tags, and for a strip."""
SLOW_BYTES, SLOW_PIXELS = 8 * 2**20, 16_000_000
"""Of plain PPM and of run lengths in BMP, which Pillow decodes in Python: about a second for a MiB."""
MOST_COMMENTS = 1_000
"""In plain PPM: each of them moves a MiB."""
REMEDY = "replace or remove this file"
SPARE = 16_000_000
"""For what is converted at a time, and small things."""
TEXT_OF_A_CHUNK = 2**20
"""To which Pillow unpacks a compressed text of a PNG."""
ORIENTATION, TILE_WIDTH, TILE_LENGTH, ROWS_PER_STRIP = 274, 322, 323, 278
BITS_PER_SAMPLE, SAMPLES_PER_PIXEL, PLANAR, PHOTOMETRIC, YCBCR = 258, 277, 284, 262, 6
DIRECTORIES = {34665, 34853, 40965}
"""Tags that lead to more tags: Exif, GPS, interoperability."""
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
"""Bytes of a value by its type. The types 1, 2 and 7 are bytes; the others become numbers of Python."""
START_OF_SCAN = 0xDA
PILLOW_SKIPS = {*range(0xC0, 0xD0), *range(0xDA, 0xF0), 0xFE} - {0xC8}
"""Segments of a JPEG whose length Pillow uses."""
MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")


def check_file(data: bytes, name: str) -> None:
    """Refuse a file whose parts, other than its pixels, would take too much memory or time."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        problem = _png_problem(data)
    elif data.startswith(b"\xff\xd8\xff"):
        problem = _jpeg_problem(data)
    elif data.startswith((b"GIF87a", b"GIF89a")):
        problem = _gif_problem(data)
    elif data[:4] in (b"II*\0", b"MM\0*", b"II\0*", b"MM*\0", b"II+\0", b"MM\0+"):
        problem = _tiff_problem(data)
    else:
        problem = ""
    if problem:
        raise InputError(f"{name} has {problem}; {REMEDY}")


def check_image(image: Image.Image, data: bytes, name: str) -> None:
    """Refuse an image whose header says that its pixels would take too much memory or time."""
    width, height = image.size
    problem, slow = "", _codec(image) in {"bmp_rle", "ppm_plain"}
    needed, scans = memory(image, data, reduced=True), _scans(image, data)
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
    if _is_jpeg(image) and memory(image, data) > MOST_MEMORY:
        image.draft(None, (image.width // 2, image.height // 2))


def memory(image: Image.Image, data: bytes, reduced: bool = False) -> int:
    """The most bytes to hold at a time: to decode it, to turn it, and to make it 8-bit RGB.

    The figures are those that tests/support/worst_pictures.py measures. `reduced`: see above.
    """
    width, height = image.size
    native, shown = _held(image.mode, width, height), _held("RGB", width, height)
    beside = kept = 0
    if _is_jpeg(image):
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
    if reduced and most > MOST_MEMORY and _is_jpeg(image) and not _scale(image):
        return len(data) + max(beside + native // 4, (native + shown) // 4) + SPARE
    return most


def _held(mode: str, width: int, height: int) -> int:
    """As Pillow stores it: lines of 1, 2 or 4 bytes for a pixel, and an address for each."""
    each = 1 if mode in {"1", "L", "P"} else 2 if mode.startswith("I;16") else 4
    return height * (-(-width * each // 4) * 4 + 8)


def _codec(image: Image.Image) -> str:
    tile = getattr(image, "tile", None)
    return str(tile[0][0]) if tile else ""


def _is_jpeg(image: Image.Image) -> bool:
    return image.format in {"JPEG", "MPO"}  # MPO: a JPEG of some phones


def _scale(image: Image.Image) -> int:
    """By how much a JPEG is reduced; 0 if nobody has asked for it yet."""
    config = image.decoderconfig if isinstance(image, ImageFile.ImageFile) else ()
    return int(config[0]) if config else 0


def _coefficients(image: Image.Image, data: bytes) -> int:
    """Bytes of a JPEG of several scans, whose coefficients are all held: two for each sample."""
    layers: list[tuple[int, ...]] = getattr(image, "layer", [])
    if not layers or _in_one_scan(image, data):
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


def _png_problem(data: bytes) -> str:
    place, chunks, text = 8, 0, 0
    while place + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, place)
        if kind in (b"tEXt", b"iTXt"):
            text += length
        if kind in (b"zTXt", b"iTXt"):
            text += TEXT_OF_A_CHUNK
        place, chunks = place + 12 + length, chunks + 1
        if chunks > MOST_CHUNKS:
            return f"more than {MOST_CHUNKS:,} chunks"
        if text > MOST_METADATA:
            return f"texts that may be longer than {MOST_METADATA:,} characters"
    return ""


def _jpeg_problem(data: bytes) -> str:
    """What precedes the first scan: Pillow walks over it in Python, and copies Exif for each part."""
    before, most = len(data), MOST_METADATA
    for count, (place, kind, _) in enumerate(_segments(data)):
        if kind not in PILLOW_SKIPS:  # Pillow searches for markers in its content
            before, most = len(data), MOST_ODD
            break
        if kind == START_OF_SCAN or count == MOST_SEGMENTS:
            before = place if kind == START_OF_SCAN else len(data)
            most = MOST_METADATA if kind == START_OF_SCAN else 0
            break
    if before > most or data.count(b"Exif\0\0", 0, before) > MOST_EXIFS:
        return "too much before its pixels"
    return ""


def _segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Place after the marker, marker and length of each segment, as libjpeg finds them."""
    place = 2
    while found := MARKER.search(data, place):
        kind, place = found[1][0], found.end()
        if kind in (0xD8, 0xD9):
            return
        length = int.from_bytes(data[place : place + 2], "big") if kind != 1 else 0
        yield place, kind, length
        place += length


def _first_scan(data: bytes) -> int:
    """The number of components in the first scan of a JPEG."""
    for place, kind, _ in _segments(data):
        if kind == START_OF_SCAN:
            return data[place + 2] if place + 2 < len(data) else 0
    return 0


def _in_one_scan(image: Image.Image, data: bytes) -> bool:
    """Whether libjpeg expects no second scan, and ends after the first."""
    layers: list[tuple[int, ...]] = getattr(image, "layer", [])
    return "progressive" not in image.info and _first_scan(data) == len(layers)


def _scans(image: Image.Image, data: bytes) -> int:
    """Of a JPEG, as many as libjpeg may decode."""
    if not _is_jpeg(image) or _in_one_scan(image, data):
        return int(_is_jpeg(image))
    most = data.count(b"\xff\xda")  # thumbnails in Exif have their own
    if most <= 2:
        return most
    return sum(kind == START_OF_SCAN for _, kind, _ in _segments(data))


def _gif_problem(data: bytes) -> str:
    """Pillow walks over the blocks before the first frame in Python."""
    place, steps = 13, 0
    if len(data) > 10 and data[10] & 128:
        place += 3 << (data[10] & 7) + 1
    while place < len(data) and data[place] not in b",;":
        skipping = data[place] == 0x21
        place += 2 if skipping else 1
        while skipping and place < len(data) and steps <= MOST_BLOCKS:
            skipping, place, steps = data[place] > 0, place + 1 + data[place], steps + 1
        steps += 1
        if steps > MOST_BLOCKS:
            return f"more than {MOST_BLOCKS:,} blocks before its first frame"
    return ""


def _tiff_problem(data: bytes) -> str:
    order = "<" if data.startswith(b"II") else ">"
    large = data[2] == 43 or data[3] == 43
    head, entry = struct.Struct(order + "H"), struct.Struct(order + "HHI4s")
    word = order + "I"
    if large and data[2] == 43:  # Pillow reads the big-endian one as a small TIFF
        head, entry, word = struct.Struct(order + "Q"), struct.Struct(order + "HHQ8s"), order + "Q"
    try:
        waiting = [struct.unpack_from(word, data, 8 if word[1] == "Q" else 4)[0]]
    except struct.error:
        return ""
    tags = values = 0
    for place in waiting:  # it grows
        if place + head.size > len(data):
            continue
        (count,) = head.unpack_from(data, place)
        for at in range(place + head.size, len(data) - entry.size + 1, entry.size)[:count]:
            tag, kind, number, value = entry.unpack_from(data, at)
            tags += 1
            if kind in SIZES and kind not in (1, 2, 7) and number * SIZES[kind] <= len(data):
                values += number
            if tag in DIRECTORIES and len(waiting) <= len(DIRECTORIES):
                waiting.append(struct.unpack_from(word, value)[0])
            if tags > MOST_TAGS or values > MOST_VALUES:
                return f"more than {MOST_TAGS:,} tags or {MOST_VALUES:,} values of tags"
    return ""


class Budget:
    """Memory that threads share: each waits until there is room for what it takes."""

    def __init__(self, most: int) -> None:
        self.most, self.used, self.changed = most, 0, threading.Condition()
        self.one_large: AbstractContextManager[Any] = nullcontext()
        """Held for a large picture: a lock of several processes, in processes that share a work."""

    @contextmanager
    def take(self, amount: int) -> Iterator[None]:
        amount = min(amount, self.most)
        with self.one_large if amount > LARGE_MEMORY else nullcontext():
            with self.changed:
                self.changed.wait_for(lambda: self.used + amount <= self.most)
                self.used += amount
            try:
                yield
            finally:
                with self.changed:
                    self.used -= amount
                    self.changed.notify_all()


budget = Budget(MOST_MEMORY)
