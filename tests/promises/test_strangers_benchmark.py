"""benchmarks/strangers.py: its tasks, its figures, its tables and what is stored of them."""

import io
import json
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from semishot.errors import InputError

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


def test_without_results_there_are_no_tables(tmp_path) -> None:
    with pytest.raises(InputError, match="no results in .*; run benchmarks/strangers.py"):
        strangers.main(["--markdown", "--out", str(tmp_path)])


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


def test_standard_errors_are_over_tasks() -> None:
    found = figures.mean_and_error("lost", [0.01, 0.05, 0.06])
    assert found["lost"] == pytest.approx(0.04)
    assert found["lost_error"] == pytest.approx(np.sqrt((0.03**2 + 0.01**2 + 0.02**2) / 2 / 3))


def test_a_target_is_short_by_the_difference() -> None:
    mine = {"accuracy": 0.8, "accuracy_error": 0.01, "lost": 0.09, "lost_error": 0.02}
    short = {name: by for name, by, _ in tables.shortfalls({"contenders": {"ours": mine}})}
    assert short == {"2 to 7 % of members lost": pytest.approx(0.02)}


class MeanColors:
    """In the place of the encoder for photographs."""

    def prepare(self, image: Image.Image) -> NDArray[np.uint8]:
        return np.asarray(image).transpose(2, 0, 1)

    def encode(self, images: list[NDArray[np.uint8]]) -> NDArray[np.float64]:
        return np.mean(images, (2, 3))


def test_features_are_made_from_zip_files(tmp_path, monkeypatch) -> None:
    written = io.BytesIO()
    Image.new("RGB", (4, 4), (10, 20, 30)).save(written, "png")
    (tmp_path / "birds").mkdir()
    (tmp_path / "mini-imagenet").mkdir()
    with zipfile.ZipFile(tmp_path / "birds" / "birds40.zip", "w") as archive:
        for name in ("a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg", "notes.txt"):
            archive.writestr(name, written.getvalue())
    for split in ("train", "val", "test"):
        with zipfile.ZipFile(tmp_path / "mini-imagenet" / f"images-{split}.zip", "w") as archive:
            archive.writestr(f"{split}/x.jpg", written.getvalue())
        rows = "filename,label\nx.jpg,n01\n"
        (tmp_path / "mini-imagenet" / f"{split}.csv").write_text(rows, encoding="utf-8")
    monkeypatch.setattr(features, "open_encoder", lambda name: MeanColors())
    monkeypatch.setattr(sys, "argv", ["features", str(tmp_path), str(tmp_path / "out")])
    for _ in range(2):  # the second time all files are there
        features.main()
    birds = np.load(tmp_path / "out" / "birds40.npy")
    assert birds.shape == (2, 2, 3)
    assert birds[1, 1].tolist() == [10, 20, 30]
    assert np.load(tmp_path / "out" / "mini-imagenet-val.npy").shape == (1, 1, 3)


@pytest.mark.parametrize("name", ["report", "named-report", "fresh", "named-fresh"])
def test_the_stored_results_hold_all_cells(name: str) -> None:
    path = RESULTS / f"{name}.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    half = found["half"]
    wanted = tasks.named_cells(half) if name.startswith("named") else tasks.cells(half)
    held = {tuple(cell[key] for key in strangers.CELL) for cell in found["cells"]}
    assert held == {tuple(vars(cell).values()) for cell in wanted}
    assert path.stat().st_size < 300_000


def test_the_page_shows_the_stored_results() -> None:
    page = (ROOT / "docs" / "strangers.md").read_text(encoding="utf-8")
    assert tables.markdown(RESULTS) in page
