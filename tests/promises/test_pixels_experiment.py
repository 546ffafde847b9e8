"""experiments/pixels: its script runs on tiny data, and its page shows the cells of its log."""

import json
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from semishot.data.pool import ImageClass, ImagePool, save_pool

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "experiments"), str(ROOT / "benchmarks")]
measure = import_module("pixels.measure")
authors_weights = import_module("pixels.authors_weights")
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


def test_the_authors_weights_are_those_that_tensorflow_draws():
    """TensorFlow 2.21, `truncated_normal_initializer(stddev=0.01, seed=0)` in a graph of version 1."""
    drawn = authors_weights.truncated_normal(3 * 3 * 64 * 64)
    first = [-0.00399158, 0.00171072, 0.00546518, 0.00422554, -0.01194501, -0.0026633]
    np.testing.assert_allclose(drawn[:6], first, atol=1e-8)
    np.testing.assert_allclose(drawn[-3:], [0.00350084, -0.00452537, 0.0030343], atol=1e-8)
    assert drawn.sum() == pytest.approx(0.29176748, abs=1e-4)
    np.testing.assert_array_equal(drawn[:1726], authors_weights.truncated_normal(1726))


def test_layers_of_one_shape_are_identical_in_the_authors_network():
    images = np.zeros((20, 3, 16, 16), np.uint8)
    pool = ImagePool("own", images, (ImageClass("c", "all", "test", 0, 20),))
    first, second, third, fourth = authors_weights.authors_encoder(pool).weights
    assert first.shape[2] == 3
    assert second.equal(third)
    assert second.equal(fourth)
    # TensorFlow has (height, width, channels, filters)
    assert second[0, :2, 0, 0, 0].tolist() == first[0, :2, 0, 0, 0].tolist()
    assert second[0, 0, 1, 0, 0].item() == pytest.approx(
        authors_weights.truncated_normal(65)[64], abs=1e-9
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
