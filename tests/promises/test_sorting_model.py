"""A short run of the model of sorting; `make chaos` makes the long one."""

import os

import pytest
from hypothesis.stateful import run_state_machine_as_test

from semishot.sorter.moving import move_files
from semishot.sorter.moving import plan as plans
from support.sorting_model import Sorter, counts, options


def test_nothing_is_lost_whatever_happens_in_any_order(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)
    for module in (move_files, plans):
        monkeypatch.setattr(module, "track", lambda items, *_: items)
    before = counts.total()
    run_state_machine_as_test(Sorter, settings=options(12, 30, derandomize=True))
    assert counts.total() - before > 200


@pytest.mark.slow
def test_a_long_run(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)
    for module in (move_files, plans):
        monkeypatch.setattr(module, "track", lambda items, *_: items)
    run_state_machine_as_test(Sorter, settings=options(60, 50))
