"""SQLite files: exactly our tables, for their owner alone."""

import sqlite3
import stat

import pytest

from semishot.errors import InputError
from semishot.system.databases import connect

SCHEMA = ("CREATE TABLE answers (id INTEGER PRIMARY KEY, label TEXT)",)


def test_a_new_database_is_readable_by_its_owner_only(tmp_path):
    path = tmp_path / "labels.sqlite"
    connection = connect(path, SCHEMA)
    connection.execute("INSERT INTO answers VALUES (1, 'cat')")
    connection.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    connection = connect(path, SCHEMA)
    assert connection.execute("SELECT label FROM answers").fetchall() == [("cat",)]
    connection.close()


@pytest.mark.parametrize(
    "statement",
    ["CREATE TRIGGER t AFTER INSERT ON answers BEGIN SELECT 1; END", "CREATE TABLE more (id)"],
)
def test_views_triggers_and_other_tables_are_refused(tmp_path, statement):
    path = tmp_path / "labels.sqlite"
    connect(path, SCHEMA).close()
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(InputError, match="has other tables, views or triggers than semishot makes"):
        connect(path, SCHEMA)


def test_no_folder_is_made_and_no_link_is_followed(tmp_path):
    with pytest.raises(FileNotFoundError):
        connect(tmp_path / "deleted" / "labels.sqlite", SCHEMA)
    (tmp_path / "labels.sqlite").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link or not a regular file"):
        connect(tmp_path / "labels.sqlite", SCHEMA)
    assert [p.name for p in tmp_path.iterdir()] == ["labels.sqlite"]
