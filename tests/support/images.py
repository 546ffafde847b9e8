"""Image files as bytes: written by Pillow, or by hand where Pillow would not write them."""

import io
import struct
import zlib

import numpy as np
from PIL import Image


def encoded(image: Image.Image | np.ndarray, form: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    held = image if isinstance(image, Image.Image) else Image.fromarray(image)
    held.save(file, form, **options)
    return file.getvalue()


def noise(seed: int | list[int], *shape: int) -> np.ndarray:
    """(H, W) or (H, W, C) pixels that differ for every seed."""
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def handmade_png(size: tuple[int, int], depth: int, kind: int, raw: bytes, *chunks: bytes) -> bytes:
    """A PNG of this width and height; each of `raw`'s lines begins with its filter byte."""

    def chunk(name: bytes, content: bytes) -> bytes:
        check = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, depth, kind, 0, 0, 0))
    middle = b"".join(chunk(c[:4], c[4:]) for c in chunks)
    body = chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + head + middle + body
