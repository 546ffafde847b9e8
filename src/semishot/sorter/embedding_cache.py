"""Features cached by image content, in segments written atomically: a kill loses seconds of work.

A segment is a safetensors file with `digests` (n, 32), the SHA-256 of each image file, `features` (n, D), and
`fingerprints` (n, S), gray levels by which near copies are found.
It may hold `thumbnails`, one JPEG after the other, with the byte where each of them ends: `ends` (n,).
"""

import hashlib
import time
from pathlib import Path
from typing import Any

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
        self.new: dict[bytes, Row] = {}
        self.fingerprints: dict[bytes, bytes] = {}
        self.thumbnails: dict[bytes, bytes] = {}
        """Of large images whose features are new."""
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
            found = [segment.get_slice(name).get_shape() for name in ("features", "fingerprints")]
        except DAMAGED:
            return
        if found == [[count, self.features], [count, PIXELS]] and digests.shape == (count, 32):
            self.stored |= {digests[row].tobytes(): (segment, row) for row in range(count)}

    def __contains__(self, digest: object) -> bool:
        return digest in self.stored or digest in self.new

    def __getitem__(self, digest: bytes) -> Row:
        if (row := self.new.get(digest)) is not None:
            return row
        segment, number = self.stored[digest]
        features: Row = segment.get_slice("features")[number]
        return features

    def fingerprint(self, digest: bytes) -> bytes:
        if (look := self.fingerprints.get(digest)) is not None:
            return look
        segment, number = self.stored[digest]
        levels: NDArray[np.uint8] = segment.get_slice("fingerprints")[number]
        return levels.tobytes()

    def thumbnail(self, digest: bytes) -> bytes | None:
        """A small JPEG of a large image, if it was made when the image was encoded."""
        if digest in self.thumbnails or digest not in self.stored:
            return self.thumbnails.get(digest)
        segment, row = self.stored[digest]
        try:
            first, last = segment.get_slice("ends")[row : row + 2].tolist()
            jpeg: bytes = segment.get_slice("thumbnails")[first:last].tobytes()
        except DAMAGED:  # it has none
            return None
        return jpeg or None

    def add(self, digest: bytes, row: Row, fingerprint: bytes, thumbnail: bytes = b"") -> None:
        self.new[digest], self.fingerprints[digest] = row, fingerprint
        if thumbnail:
            self.thumbnails[digest] = thumbnail
        if len(self.new) >= MOST_ROWS or time.monotonic() - self.written > MOST_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the new features as a segment, named by its content."""
        if not self.new:
            return
        digests = b"".join(self.new)
        path = self.folder / f"{hashlib.sha256(digests).hexdigest()[:32]}.safetensors"
        tensors: dict[str, NDArray[Any]] = {
            "digests": np.frombuffer(digests, np.uint8).reshape(-1, 32),
            "features": np.stack(list(self.new.values())).astype(np.float32),
        }
        looks = b"".join(self.fingerprints.pop(digest) for digest in self.new)
        tensors["fingerprints"] = np.frombuffer(looks, np.uint8).reshape(-1, PIXELS)
        small = [self.thumbnails.pop(digest, b"") for digest in self.new]
        if any(small):
            tensors["ends"] = np.cumsum([0, *map(len, small)])
            tensors["thumbnails"] = np.frombuffer(b"".join(small), np.uint8)
        write_whole(path, save(tensors))
        self.new.clear()
        self._index(path)
        self.written = time.monotonic()
