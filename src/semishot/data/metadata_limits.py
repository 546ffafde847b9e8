"""What a picture file may hold besides its pixels, such as texts and tags, bounded before it is opened."""

import struct

from semishot.data.jpeg_scans import START_OF_SCAN, segments
from semishot.data.picture_limits import REMEDY
from semishot.errors import InputError

MOST_SEGMENTS, MOST_METADATA, MOST_EXIFS = 10_000, 16 * 2**20, 100
"""Of what precedes the pixels of a JPEG, and of the texts of a PNG: parts, and bytes."""
MOST_ODD = 4 * 2**20
"""Bytes of a JPEG with segments that Pillow does not know."""
MOST_CHUNKS, MOST_BLOCKS = 100_000, 1_000_000
"""Of a PNG, and of a GIF before its first frame."""
MOST_TAGS, MOST_VALUES = 4_096, 600_000
"""Of a TIFF: Python takes about 200 bytes for a number among its tags, and for a strip."""
TEXT_OF_A_CHUNK = 2**20
"""To which Pillow unpacks a compressed text of a PNG."""
DIRECTORIES = {34665, 34853, 40965}
"""Tags that lead to more tags: Exif, GPS, interoperability."""
SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
"""Bytes of a value by its type. The types 1, 2 and 7 are bytes; the others become numbers of Python."""
PILLOW_SKIPS = {*range(0xC0, 0xD0), *range(0xDA, 0xF0), 0xFE} - {0xC8}
"""Segments of a JPEG whose length Pillow uses."""


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
    for count, (place, kind, _) in enumerate(segments(data)):
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
