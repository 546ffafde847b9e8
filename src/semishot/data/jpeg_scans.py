"""The segments and scans of a JPEG, as libjpeg finds them."""

import re
from collections.abc import Iterator

from PIL import Image

START_OF_SCAN = 0xDA
MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")


def is_jpeg(image: Image.Image) -> bool:
    return image.format in {"JPEG", "MPO"}  # MPO: a JPEG of some phones


def segments(data: bytes) -> Iterator[tuple[int, int, int]]:
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
    for place, kind, _ in segments(data):
        if kind == START_OF_SCAN:
            return data[place + 2] if place + 2 < len(data) else 0
    return 0


def in_one_scan(image: Image.Image, data: bytes) -> bool:
    """Whether libjpeg expects no second scan, and ends after the first."""
    layers: list[tuple[int, ...]] = getattr(image, "layer", [])
    return "progressive" not in image.info and _first_scan(data) == len(layers)


def count_scans(image: Image.Image, data: bytes) -> int:
    """Of a JPEG, as many as libjpeg may decode."""
    if not is_jpeg(image) or in_one_scan(image, data):
        return int(is_jpeg(image))
    most = data.count(b"\xff\xda")  # thumbnails in Exif have their own
    if most <= 2:
        return most
    return sum(kind == START_OF_SCAN for _, kind, _ in segments(data))
