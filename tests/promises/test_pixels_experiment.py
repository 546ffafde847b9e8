"""experiments/pixels: its script runs on tiny data, and its page shows the cells of its log."""

import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from semishot.data.pool import ImageClass, save_pool

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "experiments"), str(ROOT / "benchmarks")]
measure = import_module("pixels.measure")
FOLDER = ROOT / "experiments" / "pixels"
CELLS = json.loads((FOLDER / "log.json").read_text(encoding="utf-8"))["cells"]


def test_every_cell_of_the_page_is_in_the_log_with_its_own_z():
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    for cell in CELLS:
        values = np.array(cell["by_split"])
        error = values.std(ddof=1) / len(values) ** 0.5
        assert cell["accuracy"] == pytest.approx(values.mean(), abs=0.006)
        z = (values.mean() - cell["paper"]) / (error**2 + cell["paper_error"] ** 2) ** 0.5
        assert cell["z"] == pytest.approx(z, abs=0.06)
        shown = f"| {cell['accuracy']:.2f} ± {cell['standard_error']:.2f} | {len(values)} |"
        assert (
            f"{shown} {cell['paper']:.2f} ± {cell['paper_error']:.2f} | {cell['z']:+.1f} |" in page
        )


def test_the_script_measures_what_its_log_lacks(tmp_path, monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (6 * 20, 1, 16, 16)).astype(np.uint8)
    classes = [ImageClass(f"c{i}", "all", "test", 20 * i, 20) for i in range(6)]
    for name in ("usual", "theirs"):
        about = {} if name == "usual" else {"preparation": "cubic-warped"}
        save_pool(tmp_path / name / "omniglot", "omniglot", images, classes, about)
    monkeypatch.setattr(measure, "SPLITS", 2)
    monkeypatch.setattr(measure, "EPISODES", 3)
    log = tmp_path / "log.json"
    measure.main(log, [tmp_path / "usual", tmp_path / "theirs"])
    cells = json.loads(log.read_text())["cells"]
    assert len(cells) == 2 * len(measure.ROWS)
    assert {cell["variant"] for cell in cells} == {"antialiased-exact", "cubic-warped"}
    one, other = (c for c in cells if (c["features"], c["classifier"]) == measure.ROWS[0])
    assert one["by_split"] == other["by_split"]  # the same pixels here
    monkeypatch.setattr(measure, "accuracies", lambda *_: pytest.fail("measured again"))
    measure.main(log, [tmp_path / "usual", tmp_path / "theirs"])
