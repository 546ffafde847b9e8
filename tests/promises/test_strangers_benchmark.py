"""benchmarks/strangers.py: its tasks, its figures, its tables and what is stored of them."""

import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "strangers"
sys.path.append(str(ROOT / "benchmarks"))
strangers = import_module("strangers")
tasks, figures, tables, features = (
    import_module(f"stranger_tasks.{name}") for name in ("tasks", "figures", "tables", "features")
)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Features of few dimensions in the place of photographs'."""
    rng = np.random.default_rng(6)
    for name, classes in {"birds40": 40, "val": 16, "test": 20, "train": 64}.items():
        centers = 4 * rng.normal(size=(classes, 1, 40))
        rows = np.abs(centers + rng.normal(size=(classes, 25, 40))).astype(np.float32)
        name = name if name == "birds40" else f"mini-imagenet-{name}"
        np.save(tmp_path / f"{name}.npy", rows)
    return tmp_path


def test_the_benchmark_runs_resumes_and_prints_its_tables(small, monkeypatch, capsys) -> None:
    cell = tasks.Cell("mini-imagenet", 5, 3, "few kinds")
    named = tasks.Cell("birds40", 5, 1, "few kinds", named=5)
    monkeypatch.setattr(strangers, "cells", lambda half: [cell])
    monkeypatch.setattr(strangers, "named_cells", lambda half: [named])
    monkeypatch.setattr(strangers.torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(strangers, "threadpool_limits", lambda count: None)
    out = small / "results"
    out.mkdir()
    for name, *more in (["choose"], ["named-choose", "--named"], ["choose"]):
        strangers.main([str(small), "--tasks", "2", "--out", str(out / f"{name}.json"), *more])
    printed = capsys.readouterr().out  # the third run found its cell in the file
    assert printed.count("\n") == len(strangers.CONTENDERS) + 1
    (found,) = json.loads((out / "choose.json").read_text(encoding="utf-8"))["cells"]
    assert found["contenders"].keys() == strangers.CONTENDERS.keys()
    assert found["contenders"]["ours"]["accuracy"] > 0.9
    assert found["tasks"] == 2
    strangers.main(["--markdown", "--out", str(out)])
    shown = capsys.readouterr().out
    assert "| 2 to 7 % of members lost | " in shown
    assert "| strangers that the user has named | 5 |" in shown


def test_halves_share_no_member(small) -> None:
    members = [
        {
            row.tobytes()
            for rows in tasks.sources(small, half)["mini-imagenet", 5].members
            for row in rows
        }
        for half in ("choose", "report", "fresh")
    ]
    assert members[0] & members[1] == members[0] & members[2] == members[1] & members[2] == set()


def test_the_page_shows_the_stored_results() -> None:
    page = (ROOT / "docs" / "strangers.md").read_text(encoding="utf-8")
    assert tables.markdown(RESULTS) in page
