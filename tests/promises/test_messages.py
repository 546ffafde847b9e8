"""Errors that no other test produces: each is one clear line."""

import pytest
import torch

from semishot import refine
from semishot.report import tables
from semishot.training import update
from support.records import record


def test_a_cell_with_a_split_twice_is_refused():
    with pytest.raises(ValueError, match="two records of split seed 0; remove one"):
        tables.measured([record(), record()])


def test_a_run_beyond_the_fleet_is_refused():
    beside = refine.SideBySide([refine.build("soft_kmeans", runs=2)], [2])
    assert beside.of_run(1)[1] == 1
    with pytest.raises(IndexError, match="no run"):
        beside.of_run(2)


def test_a_gpu_without_triton_trains_unfused_and_says_so(monkeypatch, capsys):
    monkeypatch.setattr(update, "find_spec", lambda name: None)
    assert not update.can_fuse(torch.device("cuda"), (28, 27), 48)
    said = capsys.readouterr().err
    assert "training in float32, slower: bf16 needs Triton" in said
    assert "(here 48)" in said
    assert "(here 28 x 27)" in said
    assert not update.can_fuse(torch.device("cpu"), (28, 28), 64)
    assert capsys.readouterr().err == ""
