"""SQLite files: a database is opened only if it is a regular file with one name, and so are its logs."""

import sqlite3
from pathlib import Path

from semishot.system.files import check_own

LOGS = ("-journal", "-wal", "-shm")
"""SQLite opens these beside a database, and would wait for a pipe or write through a link."""


def connect(path: Path) -> sqlite3.Connection:
    """A connection for one thread at a time, without transactions of its own; the file is made if needed."""
    for name in (path, *(path.with_name(path.name + ending) for ending in LOGS)):
        check_own(name)
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA journal_mode=WAL")
    except BaseException:
        connection.close()
        raise
    return connection
