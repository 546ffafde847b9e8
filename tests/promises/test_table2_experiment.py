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
def test_arms_train_side_by_side_and_end_in_a_table(run):
    out = run("arms")
    cells = json.loads((out / "arms.json").read_text(encoding="utf-8"))
    assert len({cell["arm"] for cell in cells}) == 6
    rows = {(cell["model"], cell["distractors"]) for cell in cells if cell["arm"] == "weights"}
    assert len(rows) == 3
    assert {cell["classes"] for cell in cells} == {"val", "test"}
    assert all(0 <= share <= 100 for cell in cells for share in cell["accuracy"])
    lines = (out / "arms.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2 + len(cells)  # a line for each, beside the paper's cell
    assert all("±" in line.split("|")[6] for line in lines[2:])
