"""Features cached by image content, in segments written atomically: a kill loses seconds of work.

A segment is a safetensors file with `digests` (n, 32), the SHA-256 of each image file, `features` (n, D), and
`fingerprints` (n, S), gray levels by which near copies are found; and `thumbnails` of large images, one JPEG
after the other, with the bytes between which each of them lies: `ends` (n + 1,).
"""

import hashlib
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from semishot.data.thumbnails import FINGERPRINT
from semishot.errors import InputError
from semishot.system.files import sweep, write_whole

Row = NDArray[np.float32]
MOST_ROWS, MOST_SECONDS = 256, 2.0
"""A segment is written when it has this many rows, or after this many seconds."""
PIXELS = FINGERPRINT**2
DAMAGED = (SafetensorError, OSError, ValueError, IndexError)


class ImageLook(NamedTuple):
    """What an image looks like."""

    fingerprint: bytes
    thumbnail: bytes = b""
    """A small JPEG of a large image."""


EncodedImage = tuple[Row, ImageLook]


class EmbeddingCache:
    """One encoder's features on disk; rows are read when asked for."""

    def __init__(self, folder: Path, identity: str, features: int) -> None:
        self.folder, self.features = folder / identity[:32], features
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise InputError(f"cannot keep features in {folder} ({error.strerror})") from error
        sweep(self.folder)
        self.stored: dict[bytes, tuple[Any, int]] = {}
        """The open segment and the row, by digest."""
        self.new: dict[bytes, EncodedImage] = {}
        self.written = time.monotonic()
        for path in sorted(self.folder.glob("*.safetensors")):
            self._index(path)

    def _index(self, path: Path) -> None:
        """Open a segment; a damaged one is ignored, and its images are embedded again."""
        if not path.is_file():
            return
        try:
            segment = safe_open(path, "np")
            digests = segment.get_tensor("digests")
            count = len(digests)
            names = ("features", "fingerprints", "ends")
            found = [segment.get_slice(name).get_shape() for name in names]
        except DAMAGED:
            return
        shapes = [[count, self.features], [count, PIXELS], [count + 1]]
        if found == shapes and digests.shape == (count, 32):
            self.stored |= {digests[row].tobytes(): (segment, row) for row in range(count)}

    def __contains__(self, digest: object) -> bool:
        return digest in self.stored or digest in self.new

    def __getitem__(self, digest: bytes) -> Row:
        if digest in self.new:
            return self.new[digest][0]
        segment, row = self.stored[digest]
        features: Row = segment.get_slice("features")[row]
        return features

    def fingerprint(self, digest: bytes) -> bytes:
        if digest in self.new:
            return self.new[digest][1].fingerprint
        segment, row = self.stored[digest]
        levels: bytes = segment.get_slice("fingerprints")[row].tobytes()
        return levels

    def thumbnail(self, digest: bytes) -> bytes | None:
        """A small JPEG of a large image, if it was made when the image was encoded."""
        if digest not in self.stored:
            return None
        segment, row = self.stored[digest]
        first, last = segment.get_slice("ends")[row : row + 2].tolist()
        return segment.get_slice("thumbnails")[first:last].tobytes() if first < last else None

    def add(self, digest: bytes, row: Row, look: ImageLook) -> None:
        self.new[digest] = row, look
        if len(self.new) >= MOST_ROWS or time.monotonic() - self.written > MOST_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the new features as a segment, named by its content."""
        if not self.new:
            return
        rows, looks = zip(*self.new.values(), strict=True)
        digests, thumbnails = b"".join(self.new), [look.thumbnail for look in looks]
        fingerprints = b"".join(look.fingerprint for look in looks)
        tensors: dict[str, NDArray[Any]] = {
            "digests": np.frombuffer(digests, np.uint8).reshape(-1, 32),
            "features": np.stack(rows).astype(np.float32),
            "fingerprints": np.frombuffer(fingerprints, np.uint8).reshape(-1, PIXELS),
            "thumbnails": np.frombuffer(b"".join(thumbnails), np.uint8),
            "ends": np.cumsum([0, *map(len, thumbnails)]),
        }
        path = self.folder / f"{hashlib.sha256(digests).hexdigest()[:32]}.safetensors"
        write_whole(path, save(tensors))
        self.new.clear()
        self._index(path)
        self.written = time.monotonic()
