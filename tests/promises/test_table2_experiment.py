"""experiments/table2/on_gpu.sh: each arm that trains also tests, and ends in a table."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from semishot.data.pool import ImageClass, save_pool

SCRIPT = Path(__file__).parents[2] / "experiments" / "table2" / "on_gpu.sh"


@pytest.fixture
def run(tmp_path):
    """Runs an arm on tiny images; returns the folder of what it leaves."""
    images = np.random.default_rng(0).integers(0, 256, (36 * 60, 3, 16, 16)).astype(np.uint8)
    splits = ["train"] * 12 + ["val"] * 12 + ["test"] * 12
    classes = [ImageClass(f"c{i}", "all", s, 60 * i, 60) for i, s in enumerate(splits)]
    save_pool(tmp_path / "data" / "mini-imagenet", "mini-imagenet", images, classes, {})
    folders = {"SEMISHOT_DATA": "data", "RUNS": "runs", "OUT": "out"}
    env = {**os.environ, **{key: str(tmp_path / folder) for key, folder in folders.items()}}
    env |= {"PYTHON": sys.executable, "DEVICE": "cpu", "SMALL": "1"}

    def run_arm(*arguments: str) -> Path:
        subprocess.run([SCRIPT, *arguments], env=env, check=True, timeout=600)
        return tmp_path / "out"

    return run_arm


@pytest.mark.slow
def test_an_arm_trains_tests_and_writes_its_table(run):
    out = run("authors-code")
    records = json.loads((out / "cluster.json").read_text(encoding="utf-8"))
    assert len(records) == 5
    assert all(record["shot"] == 5 for record in records)
    assert "5-shot" in (out / "cluster.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_arms_train_side_by_side_and_their_copies_are_tested(run):
    cells = json.loads((run("arms") / "arms.json").read_text(encoding="utf-8"))
    arms = {name.partition("/")[0] for name in cells}
    assert len(arms) == 6
    assert {*cells} == {f"{arm}/{step}" for arm in arms for step in ("end", 2)}
    classes = {cell["split"] for cell in cells["weights/end"]}
    rows = {(cell["model"], cell["distractors"]) for cell in cells["weights/end"]}
    assert classes == {"val", "test"}
    assert len(rows) == 3
    assert all(0 <= cell["accuracy"] <= 100 for own in cells.values() for cell in own)
