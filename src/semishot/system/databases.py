"""SQLite files: a database is opened only if it is a regular file with one name, and so are its logs."""

import sqlite3
import stat
from pathlib import Path

from semishot.errors import InputError

LOGS = ("-journal", "-wal", "-shm")
"""SQLite opens these beside a database, and would wait for a pipe or write through a link."""


def connect(path: Path) -> sqlite3.Connection:
    """A connection for one thread at a time, without transactions of its own; the file is made if needed."""
    for name in (path, *(path.with_name(path.name + ending) for ending in LOGS)):
        _check(name)
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA journal_mode=WAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _check(path: Path) -> None:
    try:
        about = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
        raise InputError(
            f"{path} is a link or not a regular file, and would be written to: remove it, or choose "
            "another --out"
        )
