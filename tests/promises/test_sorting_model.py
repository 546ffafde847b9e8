"""A short run of the model of sorting; `make chaos` makes the long one."""

import os

import pytest
from hypothesis.stateful import run_state_machine_as_test

from semishot.sorter.moving import move_files
from semishot.sorter.moving.journal import read_journal, write_journal
from support.sorting_model import Sorter, counts, digest_of, killed_at, options, regular


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    """No progress, and no waiting for a disk: this is about kills, not about power cuts."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(move_files, "track", lambda items, *_: items)


def test_nothing_is_lost_whatever_happens_in_any_order():
    before = counts.total()
    run_state_machine_as_test(Sorter, settings=options(12, 30, derandomize=True))
    assert counts.total() - before > 200


@pytest.mark.parametrize("moment", range(1, 16))
@pytest.mark.parametrize("after", [False, True])
def test_a_file_has_one_name_after_a_kill_at_any_call_and_the_same_command(moment, after, tmp_path):
    path, out = tmp_path / "pile/a.jpg", tmp_path / "out"
    path.parent.mkdir()
    path.write_text("a")
    out.mkdir()
    wanted = [move_files.Wanted(path, "cat", digest_of(path))]
    sorting, _ = move_files.plan(out, "move", wanted, path.parent)
    write_journal(sorting)
    killed_at(moment, after, lambda: move_files.complete(sorting))
    move_files.complete(read_journal(out))
    assert set(regular(tmp_path)) == {out / "sorted/cat/a.jpg", out / "undo.json"}
    move_files.undo(out)
    assert set(regular(tmp_path)) == {path}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_long_run():
    """`make chaos` makes it longer."""
    examples = int(os.environ.get("STEPS", "2000")) // 50
    run_state_machine_as_test(Sorter, settings=options(examples, 50))
