"""OUT/labels.sqlite, where `label` keeps everything: its tables, and transactions that are on disk."""

import secrets
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from semishot.errors import InputError
from semishot.system.databases import connect

DATABASE = "labels.sqlite"
FORMAT = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    key TEXT UNIQUE,
    body TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS images (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS files (
    path BLOB PRIMARY KEY,
    image INTEGER NOT NULL,
    size INTEGER NOT NULL,
    changed INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS imported (image INTEGER, label TEXT, PRIMARY KEY (image, label)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS browsers (secret TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID;
"""


class LostDatabaseError(InputError):
    """The file of answers is no longer where it was opened."""


class Database:
    """One SQLite connection, used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock, self.name = path, threading.RLock(), ""
        self.connection = connect(path)
        self.file = _file_at(path)
        self.connection.execute("PRAGMA synchronous=FULL")  # a commit is on disk, not on its way

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with self.lock:
            if _file_at(self.path) != self.file:  # what is written now would be in no folder
                raise LostDatabaseError(f"{self.path} was moved or deleted: nothing can be kept")
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:  # a full disk may have ended it already
                    self.connection.execute("ROLLBACK")
                raise

    def rows(self, query: str, *values: Any) -> list[Any]:
        with self.lock:
            return self.connection.execute(query, values).fetchall()

    def about(self, key: str) -> str | None:
        """What was remembered under this key."""
        found = self.rows("SELECT value FROM about WHERE key = ?", key)
        return str(found[0][0]) if found else None

    def remember(self, key: str, value: str) -> None:
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (key, value))

    def close(self) -> None:
        with self.lock:
            self.connection.close()


def _file_at(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one at the same place."""
    try:
        about = path.lstat()
    except FileNotFoundError:
        return None
    return about.st_dev, about.st_ino


def open_database(out: Path) -> Database:
    """OUT/labels.sqlite, made if needed; a file of another kind or version is refused."""
    path = out / DATABASE
    try:
        database = Database(path)
        with database.transaction() as connection:
            for statement in SCHEMA.split(";"):
                connection.execute(statement)
            about = [("format", str(FORMAT)), ("name", secrets.token_hex(8))]
            connection.executemany("INSERT OR IGNORE INTO about VALUES (?, ?)", about)
        found = database.about("format")
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"cannot read {path} ({error}): it is damaged, or not semishot's; move it away, or choose "
            "another --out"
        ) from error
    if found != str(FORMAT):
        raise InputError(f"{path} is of another version: format must be {FORMAT}")
    database.name = str(database.about("name"))
    return database
