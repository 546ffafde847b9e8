"""Small and large views of images for the page: small ones are made once and kept in OUT."""

import contextlib
import hashlib
import sqlite3
import threading
from pathlib import Path

from semishot.data.decoding import opened, quiet
from semishot.data.thumbnails import thumbnail
from semishot.errors import InputError
from semishot.system.databases import connect

DATABASE = "thumbnails.sqlite"
SIDE, LARGE_SIDE = 320, 2048
"""Pixels of the longer side."""
QUALITY, LARGE_QUALITY = 80, 88
MOST_BYTES = 2 * 2**30
"""Of all thumbnails together; beyond it, those made first are dropped."""
SCHEMA = "CREATE TABLE small (number INTEGER PRIMARY KEY, image INTEGER UNIQUE, data BLOB)"


def view(path: Path | None, digest: bytes, side: int, quality: int) -> bytes:
    """A JPEG of at most `side` pixels, without metadata such as place and time."""
    if path is None:
        raise InputError("its file is gone")
    from semishot.sorter.embedding import read_image

    data = read_image(path)
    if hashlib.sha256(data).digest() != digest:
        raise InputError("its file has changed")
    with quiet(), opened(data, "it") as image:
        return thumbnail(image, side, quality, optimize=False)


class Thumbnails:
    """A cache: losing it costs time only, so it may lag behind a crash."""

    def __init__(self, out: Path) -> None:
        self.lock = threading.Lock()
        path = out / DATABASE
        try:
            self.connection = self._opened(path)
        except sqlite3.DatabaseError:  # damaged: it is only a cache
            path.unlink()
            self.connection = self._opened(path)
        self.bytes = self._held()

    def _held(self) -> int:
        """The bytes of all thumbnails."""
        query = "SELECT coalesce(sum(length(data)), 0) FROM small"
        return int(self.connection.execute(query).fetchone()[0])

    def _opened(self, path: Path) -> sqlite3.Connection:
        connection = connect(path, (SCHEMA,))
        connection.execute("PRAGMA synchronous=OFF")
        return connection

    def small(self, image: int, path: Path | None, digest: bytes) -> bytes:
        """The thumbnail of an image; `path` is read if there is none yet, and must have this content."""
        found = None
        with self.lock, contextlib.suppress(sqlite3.Error):
            found = self.connection.execute(
                "SELECT data FROM small WHERE image = ?", (image,)
            ).fetchone()
        if found is not None:
            return bytes(found[0])
        data = view(path, digest, SIDE, QUALITY)
        with self.lock, contextlib.suppress(sqlite3.Error):  # a full disk: it is made again
            self.connection.execute(
                "INSERT OR REPLACE INTO small (image, data) VALUES (?, ?)", (image, data)
            )
            self.bytes += len(data)
            if self.bytes > MOST_BYTES:
                self._drop()
        return data

    def _drop(self) -> None:
        """Drop the older half."""
        self.connection.execute(
            "DELETE FROM small WHERE number <= (SELECT (min(number) + max(number)) / 2 FROM small)"
        )
        self.bytes = self._held()

    def close(self) -> None:
        with self.lock:
            self.connection.close()
