"""OUT/labels.sqlite: synced, and refused where it is of another kind or a link."""

from contextlib import closing

import pytest

from semishot.errors import InputError
from semishot.sorter.labels_database import DATABASE, Database, open_database


def test_a_database_of_another_kind_is_refused(tmp_path):
    path = tmp_path / DATABASE
    path.write_bytes(b"not a database, but long enough to be taken for one" * 50)
    with pytest.raises(InputError, match="damaged, or not semishot's"):
        open_database(tmp_path)
    path.unlink()
    with closing(open_database(tmp_path)) as database, database.transaction() as connection:
        connection.execute("UPDATE about SET value = '7' WHERE key = 'format'")
    with pytest.raises(InputError, match="another version"):
        open_database(tmp_path)


def test_nothing_is_written_through_a_link(tmp_path):
    (tmp_path / "other").write_text("precious")
    (tmp_path / DATABASE).symlink_to(tmp_path / "other")
    with pytest.raises(InputError, match="is a link or not a regular file"):
        open_database(tmp_path)
    assert (tmp_path / "other").read_text() == "precious"


def test_answers_are_synced_before_they_are_acknowledged(tmp_path):
    with closing(Database(tmp_path / "a.sqlite")) as database:
        assert database.rows("PRAGMA synchronous") == [(2,)]  # FULL
        assert database.rows("PRAGMA journal_mode") == [("wal",)]
