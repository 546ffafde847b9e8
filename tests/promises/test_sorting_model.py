"""A short run of the model of sorting; `make chaos` makes the long one."""

import os

import pytest
from hypothesis.stateful import run_state_machine_as_test

from semishot.sorter.moving import move_files
from support.sorting_model import Sorter, counts, options


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    """No progress, and no waiting for a disk: this is about kills, not about power cuts."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(move_files, "track", lambda items, *_: items)


def test_nothing_is_lost_whatever_happens_in_any_order():
    before = counts.total()
    run_state_machine_as_test(Sorter, settings=options(12, 30, derandomize=True))
    assert counts.total() - before > 200


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_long_run():
    """`make chaos` makes it longer."""
    examples = int(os.environ.get("STEPS", "2000")) // 50
    run_state_machine_as_test(Sorter, settings=options(examples, 50))
