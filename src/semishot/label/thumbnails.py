"""Small and large pictures of images for the page: small ones are made once and kept in OUT."""

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
SCHEMA = "CREATE TABLE small (image INTEGER PRIMARY KEY, data BLOB)"


def picture(path: Path | None, digest: bytes, side: int, quality: int) -> bytes:
    """A JPEG of at most `side` pixels, without metadata such as place and time."""
    if path is None:
        raise InputError("its file is gone")
    from semishot.sorter.embedding import read_image

    data = read_image(path)
    if hashlib.sha256(data).digest() != digest:
        raise InputError("its file has changed")
    with quiet(), opened(data, "it") as image:
        return thumbnail(image, side, quality, optimize=False)


def large_picture(path: Path | None, digest: bytes) -> bytes:
    return picture(path, digest, LARGE_SIDE, LARGE_QUALITY)


class Thumbnails:
    """A cache that only its user can read. Losing it costs time only, so it may lag behind a crash."""

    def __init__(self, out: Path) -> None:
        self.lock = threading.Lock()
        path = out / DATABASE
        try:
            self.connection = self._open(path)
        except (sqlite3.DatabaseError, InputError):  # damaged, or of another version: only a cache
            path.unlink()
            self.connection = self._open(path)

    def _open(self, path: Path) -> sqlite3.Connection:
        connection = connect(path, (SCHEMA,))
        connection.execute("PRAGMA synchronous=OFF")
        return connection

    def small(self, image: int, path: Path | None, digest: bytes) -> bytes:
        """The thumbnail of an image; `path` is read if there is none yet, and must have this content."""
        with self.lock, contextlib.suppress(sqlite3.Error):
            query = "SELECT data FROM small WHERE image = ?"
            if row := self.connection.execute(query, (image,)).fetchone():
                return bytes(row[0])
        data = picture(path, digest, SIDE, QUALITY)
        with self.lock, contextlib.suppress(sqlite3.Error):  # a full disk: it is made again
            self.connection.execute("INSERT OR REPLACE INTO small VALUES (?, ?)", (image, data))
        return data

    def close(self) -> None:
        with self.lock:
            self.connection.close()
