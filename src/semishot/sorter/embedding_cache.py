"""Features cached by image content, in segments written atomically: a kill loses seconds of work.

A segment is a safetensors file with `digests` (n, 32), the SHA-256 of each file, and `features` (n, D); its
metadata say what has encoded them. Features by other runtimes differ by rounding, and are used all the same.
It may also hold `thumbnails`, one JPEG after the other, with the byte where each of them ends: `ends` (n, 4).
"""

import hashlib
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from semishot.errors import InputError, printable
from semishot.system.files import sweep, write_whole
from semishot.system.tensor_files import OpenTensors

Row = NDArray[np.float32]
MOST_ROWS, MOST_SECONDS = 256, 2.0
"""A segment is written when it has this many rows, or after this many seconds."""
MOST_BYTES = 2**30
"""The largest segment: a larger file was not written by semishot."""
JPEG, MOST_THUMBNAIL = b"\xff\xd8", 2**16
BYTES = np.array([1, 2**8, 2**16, 2**24], np.uint32)
RUNTIME, LONGEST_RUNTIME, NOT_SAID = "runtime", 40, "an earlier version"


class EmbeddingCache:
    """One encoder's features on disk; rows are read when asked for."""

    def __init__(self, folder: Path, identity: str, features: int) -> None:
        self.folder, self.features = folder / identity[:32], features
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise InputError(f"cannot keep features in {folder} ({error.strerror})") from error
        if self.folder.is_symlink():
            raise InputError(f"{self.folder} is a link: remove it, or choose another --cache")
        sweep(self.folder)
        self.places: dict[bytes, tuple[Path, int]] = {}
        self.new: dict[bytes, Row] = {}
        self.runtime = ""
        """What encodes the features that are added."""
        self.runtimes: dict[Path, str] = {}
        """Of segments; those of version 0.1 do not say it."""
        self.written = time.monotonic()
        self.segment: OpenTensors | None = None
        self.thumbnails: dict[bytes, bytes] = {}
        """Of images whose features are new, or not yet encoded."""
        for path in sorted(self.folder.glob("*.safetensors")):
            self._index(path)

    def _index(self, path: Path) -> None:
        """Read what a segment holds; a damaged one is ignored, and its images are embedded again."""
        try:
            with OpenTensors(path, MOST_BYTES) as file:
                digests, features = file["digests"], file.stored["features"]
                runtime = file.metadata.get(RUNTIME, "")
        except (OSError, InputError, KeyError):
            return
        if (
            features.kind == np.float32
            and digests.dtype == np.uint8
            and features.shape
            and digests.shape == (features.shape[0], 32)
            and features.shape[1:] == (self.features,)
        ):
            self.runtimes[path] = printable(runtime)[:LONGEST_RUNTIME]
            self.places.update(
                (digest.tobytes(), (path, row)) for row, digest in enumerate(digests)
            )

    def __contains__(self, digest: bytes) -> bool:
        return digest in self.places or digest in self.new

    def __getitem__(self, digest: bytes) -> Row:
        if (found := self.new.get(digest)) is not None:
            return found
        path, row = self.places[digest]
        return self._opened(path).row("features", row)

    def _opened(self, path: Path) -> OpenTensors:
        if self.segment is None or self.segment.path != path:
            if self.segment is not None:
                self.segment.close()
            self.segment = OpenTensors(path, MOST_BYTES)
        return self.segment

    def thumbnail(self, digest: bytes) -> bytes | None:
        """A small JPEG of a large image, if it was made when the image was encoded."""
        if (found := self.thumbnails.get(digest)) is not None:
            return found
        if digest not in self.places:
            return None
        path, row = self.places[digest]
        try:
            segment = self._opened(path)
            bounds = segment.part("ends", max(0, row - 1), row + 1).astype(np.uint32) @ BYTES
            first, last = map(int, bounds if row else (0, *bounds))
            jpeg = segment.part("thumbnails", first, min(last, first + MOST_THUMBNAIL)).tobytes()
        except (OSError, InputError, KeyError, ValueError):  # of an earlier version, or damaged
            return None
        return jpeg if jpeg.startswith(JPEG) else None

    def runtime_of(self, digest: bytes) -> str:
        """What has encoded these features."""
        held = self.places.get(digest)
        return (self.runtimes[held[0]] if held else self.runtime) or NOT_SAID

    def add(self, rows: dict[bytes, Row]) -> None:
        self.new.update(rows)
        if len(self.new) >= MOST_ROWS or time.monotonic() - self.written > MOST_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the new features as a segment, named by its content."""
        if not self.new:
            return
        name = hashlib.sha256(b"".join(self.new)).hexdigest()[:32]
        path = self.folder / f"{name}.safetensors"
        tensors: dict[str, NDArray[Any]] = {
            "digests": np.frombuffer(b"".join(self.new), np.uint8).reshape(-1, 32),
            "features": np.stack(list(self.new.values())).astype(np.float32),
        }
        small = [self.thumbnails.pop(digest, b"") for digest in self.new]
        if any(small):
            ends = np.cumsum([len(jpeg) for jpeg in small], dtype="<u4")
            tensors["ends"] = ends.view(np.uint8).reshape(-1, 4)
            tensors["thumbnails"] = np.frombuffer(b"".join(small), np.uint8)
        content = save(tensors, {RUNTIME: self.runtime})  # save_file would replace the locked file
        write_whole(path, content)
        self.runtimes[path] = self.runtime
        self.places.update((digest, (path, row)) for row, digest in enumerate(self.new))
        self.new.clear()
        self.written = time.monotonic()
