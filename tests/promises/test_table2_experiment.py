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


@pytest.mark.slow
@pytest.mark.parametrize(("arm", "name"), [("authors-code", "cluster"), ("tf32", "tf32")])
def test_an_arm_trains_tests_and_writes_its_table(arm, name, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (36 * 60, 3, 16, 16)).astype(np.uint8)
    splits = ["train"] * 12 + ["val"] * 12 + ["test"] * 12
    classes = [ImageClass(f"c{i}", "all", s, 60 * i, 60) for i, s in enumerate(splits)]
    save_pool(tmp_path / "data" / "mini-imagenet", "mini-imagenet", images, classes, {})
    folders = {"SEMISHOT_DATA": "data", "RUNS": "runs", "OUT": "out"}
    env = {**os.environ, **{key: str(tmp_path / folder) for key, folder in folders.items()}}
    env |= {"PYTHON": sys.executable, "DEVICE": "cpu", "SMALL": "1"}
    subprocess.run([SCRIPT, arm], env=env, check=True, timeout=600)
    records = json.loads((tmp_path / "out" / f"{name}.json").read_text(encoding="utf-8"))
    assert len(records) == 5
    assert all(record["shot"] == 5 for record in records)
    assert "5-shot" in (tmp_path / "out" / f"{name}.html").read_text(encoding="utf-8")
