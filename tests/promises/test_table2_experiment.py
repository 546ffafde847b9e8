"""experiments/table2: its script runs on tiny fleets, and its page shows the numbers of its log."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from tests.support.presets import shorten

from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImageClass, save_pool
from semishot.paper import reproduce
from semishot.paper.published import MODELS, TABLES
from semishot.paper.requests import TableRequest
from semishot.report.statistics import unbiased
from semishot.training.requests import Where
from semishot.training.result_files import read_records

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "experiments"), str(ROOT / "benchmarks")]
look = import_module("table2.look")
FOLDER = ROOT / "experiments" / "table2"
LOG = json.loads((FOLDER / "log.json").read_text(encoding="utf-8"))
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_the_page_shows_the_cells_of_the_log():
    lines = look.text_of(LOG).splitlines()
    cells = [line for line in lines if line.startswith("ren2018")]
    assert len(cells) == 18 + 3
    for line in cells:
        value, z = re.fullmatch(r".*: (.*), paper .* \(z (.*)\)", line).groups()
        assert f"{value} | {z} |" in PAGE


def test_the_page_shows_the_cells_on_the_test_classes_and_what_the_text_s_rates_gain():
    code, text = (
        read_records(ROOT / "results" / "mini-imagenet" / f"table2-{preset}.json")
        for preset in look.PRESETS
    )
    for model, h in [
        ("supervised", 0),
        ("semi_supervised_inference", 0),
        ("semi_supervised_inference", 5),
    ]:
        paper = TABLES["table2"].cells[model, 5, h]
        each = [
            [
                100 * r["accuracy"]
                for r in rows
                if (r["model"], r["shot"], r["distractors"]) == (model, 5, h)
            ]
            for rows in (code, text)
        ]
        shown = ""
        for values in each:
            mean, error = np.mean(values), look.error(values)
            z = (mean - paper.mean) / np.hypot(error, unbiased(paper.error))
            shown += f"| {mean:.2f} ± {error:.2f} | {z:+.1f} "
        gain = np.subtract(*reversed(each))
        assert f"{shown}| {gain.mean():+.2f} (t {gain.mean() / look.error(gain):+.1f}) |" in PAGE


def test_the_page_shows_how_accuracy_fell():
    for name, seen in LOG["over_time"].items():
        lost = f"{seen['lost_since']:.2f} ± {seen['error']:.2f}"
        assert lost in PAGE or not seen["lost_since"], name
        if "5shot" in name:
            looks = (seen["by_update"][str(k * 1000)] for k in (20, 60, 100, 140, 200))
            assert " | ".join(f"{look:.2f}" for look in looks) + f" | {lost} |" in PAGE


@pytest.fixture
def runs(monkeypatch, tiny_root, tmp_path):
    """What Table 1 leaves, one split of every row."""
    shorten(monkeypatch, "ren2018")
    request = TableRequest("glyphs", splits=1)
    reproduce.table("table1", request, Where(tmp_path / "runs", tiny_root, "cpu"))
    return tmp_path / "runs"


def test_the_script_measures_every_cell_once(runs, tiny_root, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(look, "TEST", EpisodeShape(way=3, shot=1, query=2, unlabeled=2))
    monkeypatch.setattr(look, "EPISODES", 3)
    for model in runs.rglob("model.safetensors"):
        seen = {1: [0.5, 0.4], 2: [0.7, 0.6], 3: [0.6, 0.4]}
        lines = [{"step": k, "loss": [k, k], "accuracy": accuracy} for k, accuracy in seen.items()]
        (model.parent / "log.jsonl").write_text("".join(f"{json.dumps(n)}\n" for n in lines))
    words = [str(tmp_path / "log.json"), "--dataset", "glyphs", "--runs", str(runs)]
    words += ["--data-root", str(tiny_root), "--device", "cpu"]
    look.main(words)
    held = json.loads((tmp_path / "log.json").read_text())
    for seen in held["over_time"].values():
        assert seen["by_update"] == {"1": 45.0, "2": 65.0, "3": 50.0}
        assert (seen["highest_at"], seen["lost_since"], seen["error"]) == (2, 15.0, 5.0)
    cells = [(row, h) for run in held["runs"] for row, h, _ in run["cells"]]
    assert sorted(cells) == sorted(
        {(row, h) for row in MODELS for h in (0, 5)} - {("supervised", 5)}
    )
    assert all(0 <= run["of_classes"] <= 1 for run in held["runs"] if "radius" in run)
    assert capsys.readouterr().out.count("paper") == len(cells)
    monkeypatch.setattr(look, "embed_classes", lambda *_: pytest.fail("measured again"))
    look.main(words)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["authors-code", "tf32"])
def test_the_parts_for_a_gpu_that_train_run_on_tiny_data(part, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (24 * 60, 3, 16, 16)).astype(np.uint8)
    splits = ["train"] * 12 + ["val"] * 12
    classes = [ImageClass(f"c{i}", "all", s, 60 * i, 60) for i, s in enumerate(splits)]
    save_pool(tmp_path / "data" / "mini-imagenet", "mini-imagenet", images, classes, {})
    places = {"SEMISHOT_DATA": "data", "RUNS": "runs", "OUT": "out"}
    env = {**os.environ, **{name: str(tmp_path / place) for name, place in places.items()}}
    env |= {"PYTHON": sys.executable, "DEVICE": "cpu", "SMALL": "1"}
    subprocess.run([FOLDER / "on_gpu.sh", part], env=env, check=True, timeout=600)
    (model,) = (tmp_path / "runs").rglob("model.safetensors")
    assert model.stat().st_size > 0
