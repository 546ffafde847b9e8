"""SQLite files with exactly our tables, readable only by their owner."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from semishot.errors import InputError
from semishot.system.files import check_own

COUNTERS = "CREATE TABLE sqlite_sequence(name,seq)"
"""SQLite's own table, made for AUTOINCREMENT."""


def connect(path: Path, schema: Sequence[str]) -> sqlite3.Connection:
    """Open a database with exactly the tables of `schema`, or create it; its folder must exist.

    Views and triggers of a file from elsewhere would run when it is used, so it is refused. The connection
    is for one thread at a time, and begins no transactions by itself.
    """
    check_own(path)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("BEGIN IMMEDIATE")
        query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"
        present = {sql for (sql,) in connection.execute(query)} - {COUNTERS}
        if present and present != set(schema):
            raise InputError(
                f"{path} has other tables, views or triggers than semishot makes: move it away, or choose "
                "another --out"
            )
        for statement in () if present else schema:
            connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection
