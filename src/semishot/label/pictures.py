"""Small and large pictures of images for the page; browsers keep them."""

import hashlib
from pathlib import Path

from semishot.data.decoding import opened, quiet
from semishot.data.thumbnails import thumbnail
from semishot.errors import InputError

SIZES = {"thumb": (320, 80), "large": (2048, 88)}
"""Pixels of the longer side, and quality of the JPEG."""


def picture(path: Path | None, digest: bytes, size: str) -> bytes:
    """A JPEG without metadata such as place and time; the file must have this content."""
    if path is None:
        raise InputError("its file is gone")
    from semishot.sorter.embedding import read_image

    data = read_image(path)
    if hashlib.sha256(data).digest() != digest:
        raise InputError("its file has changed")
    side, quality = SIZES[size]
    with quiet(), opened(data, "it") as image:
        return thumbnail(image, side, quality, optimize=False)
