"""Which images and files were seen, in the database of answers: an image keeps its number for good.

An image is known by its content, so copies of a file are one image, and a file that was renamed keeps its
answer. The size and time of a file say whether it must be read again.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from semishot.sorter.labels_database import Database

Status = tuple[int, int]
"""Size of a file, and when it was changed, in nanoseconds."""


class Seen(NamedTuple):
    """A file when it was last read."""

    image: int
    size: int
    changed: int
    """In nanoseconds."""


class Catalog:
    """Images by digest, files by path."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.images: dict[bytes, int] = {
            bytes(digest): number
            for number, digest in database.rows("SELECT id, digest FROM images")
        }
        self.files: dict[str, Seen] = {
            os.fsdecode(path): Seen(*rest)
            for path, *rest in database.rows("SELECT path, image, size, changed FROM files")
        }

    def digests(self) -> dict[int, bytes]:
        return {number: digest for digest, number in self.images.items()}

    def numbers(self, digests: Sequence[bytes]) -> list[int]:
        """The number of each image; new ones are written down first."""
        new = [digest for digest in dict.fromkeys(digests) if digest not in self.images]
        if new:
            with self.database.transaction() as connection:
                for digest in new:
                    row = connection.execute("INSERT INTO images (digest) VALUES (?)", (digest,))
                    self.images[digest] = int(row.lastrowid or 0)
        return [self.images[digest] for digest in digests]

    def remember(self, files: Iterable[tuple[str, Seen]]) -> None:
        fresh = {path: seen for path, seen in files if self.files.get(path) != seen}
        if not fresh:
            return
        rows = [(os.fsencode(path), *seen) for path, seen in fresh.items()]
        with self.database.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", rows)
        self.files.update(fresh)

    def imported(self) -> set[tuple[int, str]]:
        """Labels that came from folders: each is taken over once, so that an undone one stays undone."""
        return {
            (int(n), str(s)) for n, s in self.database.rows("SELECT image, label FROM imported")
        }

    def replace_imported(self, source: str, labels: set[tuple[int, str]]) -> set[tuple[int, str]]:
        """Keep what a source says now, and return what it did not say before."""
        named = {(image, f"{source}:{label}") for image, label in labels}
        before = {one for one in self.imported() if one[1].startswith(f"{source}:")}
        if named != before:
            with self.database.transaction() as connection:
                connection.executemany(
                    "DELETE FROM imported WHERE image = ? AND label = ?", before - named
                )
                connection.executemany("INSERT INTO imported VALUES (?, ?)", named - before)
        length = len(source) + 1
        return {(image, label[length:]) for image, label in named - before}

    def add_imported(self, labels: Iterable[tuple[int, str]]) -> None:
        with self.database.transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO imported VALUES (?, ?)", labels)


def status_of(path: Path) -> Status | None:
    """Size and time of a file; None if it is gone."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns
