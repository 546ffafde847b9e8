"""Contents that files must not hold: garbage, bombs, and too much of what is valid."""

import io
import json
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path


def picture(side: int = 40) -> bytes:
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (side, side), "white")
    ImageDraw.Draw(image).line((3, 5, side - 5, side - 9), "black", 3)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def content_for(place: Path) -> bytes:
    """Something valid to stand at a place that was empty."""
    if place.suffix in (".png", ".jpg"):
        return picture()
    return b"{}\n" if place.suffix == ".json" else b"a\n"


def garbage(content: bytes, place: Path) -> bytes:
    return random.Random(len(place.name)).randbytes(5000)


def bomb(content: bytes, place: Path) -> bytes:
    """Little to read that asks for much: by the ending of the name."""
    return BOMBS.get(place.suffix, deep_json)()


def deep_json() -> bytes:
    return b'{"a":' * 200_000


def wide_csv() -> bytes:
    return b"path,label\n" + b"x," * 5_000_000


def endless_npy() -> bytes:
    header = b"{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000,), }"
    header += b" " * (117 - len(header)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def long_header() -> bytes:
    return struct.pack("<Q", 2**62) + b"{" * 100_000


def zip_bomb() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("archive/data.pkl", bytes(2**26))
    return file.getvalue()


def one_wide_picture() -> bytes:
    """50,000 x 1: a square of its side would take gigabytes."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("L", (50_000, 1), 90).save(file, "PNG")
    return file.getvalue()


def large_deep_picture(content: bytes = b"", place: Path | None = None) -> bytes:
    """64 million pixels of 16 bits in some 124 kB."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("I;16", (8000, 8000), 700).save(file, "PNG")
    return file.getvalue()


def many_lines(content: bytes, place: Path) -> bytes:
    """Much of what stood there, in lines."""
    line = json.dumps({"step": 1, "loss": 0.5}).encode() + b"\n"
    return (content + line) * max(1, 4_000_000 // len(content + line))


BOMBS: dict[str, Callable[[], bytes]] = {
    ".csv": wide_csv,
    ".npy": endless_npy,
    ".safetensors": long_header,
    ".pt": zip_bomb,
    ".png": one_wide_picture,
    ".jpg": one_wide_picture,
}
