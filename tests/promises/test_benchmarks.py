"""The benchmarks run, their results hold what docs/speed.md promises, and the page is made from them."""

import json
import math
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from semishot import refine
from semishot.data.episodes import EpisodeShape
from semishot.training.config import Member, Recipe
from semishot.training.fleets import build_fleet
from support.browser import CHROMIUM

ROOT = Path(__file__).parents[2]
NUMBERS = {
    "update": {"us_per_update_and_run", "times_faster_than_eager"},
    "label": {"median_ms", "p95_ms", "start_seconds", "server_mib", "page_mib"},
}


def benchmark(script: str, *arguments: object) -> str:
    """A script of benchmarks/ in a process of its own, not installed, on one thread."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check(path: Path, name: str, printed: str) -> None:
    """The file says what was measured where, and what was printed is an aligned table."""
    result = json.loads(path.read_text(encoding="utf-8"))
    assert (result["benchmark"], result["device_type"], result["quick"]) == (name, "cpu", True)
    assert all(result[field] for field in ("device", "processor", "date", "settings", "rows"))
    assert set(result["versions"]) >= {"semishot", "torch", "numpy", "python"}
    for row in result["rows"]:
        assert all(math.isfinite(row[field]) and row[field] > 0 for field in NUMBERS[name])
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines}) == 1


def test_training_writes_its_numbers_and_fills_the_page(tmp_path):
    path = tmp_path / "update-cpu.json"
    printed = benchmark("update.py", "--quick", "--device", "cpu", "--out", path)
    check(path, "update", printed)
    assert '"easyfsl"' in path.read_text(encoding="utf-8") or "easyfsl is left out" in printed
    page = shutil.copy(ROOT / "docs" / "speed.md", tmp_path / "speed.md")
    old = page.read_text(encoding="utf-8")
    benchmark("summarize.py", "--results", tmp_path, "--page", page)
    once = page.read_text(encoding="utf-8")
    assert once.count("A quick trial, not a measurement.") == 1
    assert "our fleet of 2" in once
    assert once.split("<!-- speed tables -->")[0] == old.split("<!-- speed tables -->")[0]
    assert once.split("<!-- /speed tables -->")[1] == old.split("<!-- /speed tables -->")[1]
    benchmark("summarize.py", "--results", tmp_path, "--page", page)
    assert page.read_text(encoding="utf-8") == once  # filled, not appended to


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="it reads memory from /proc")
def test_answers_in_the_page_write_their_numbers(tmp_path):
    path = tmp_path / "label.json"
    check(path, "label", benchmark("label.py", "--quick", "--device", "cpu", "--out", path))


def test_the_page_is_made_from_committed_results_which_are_measurements(benchmarks):
    summarize = import_module("summarize")
    results = summarize.published(ROOT / "results" / "speed")
    assert {result["benchmark"] for result in results} == set(NUMBERS)
    assert not [result["benchmark"] for result in results if result["quick"]]
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    filled = summarize.fill(page, summarize.page(results))
    assert filled == page, "run python benchmarks/summarize.py"


def test_the_factors_of_why_it_is_fast_are_those_of_the_results():
    """Those of its lines that name a table, so that no line keeps a factor that was measured again."""

    def rows(name: str, **held: object) -> list[dict]:
        path = ROOT / "results" / "speed" / f"{name}.json"
        found = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return [row for row in found if held.items() <= row.items()]

    def between(factors: list[float]) -> str:
        return f"{min(factors):.0f} to {max(factors):.0f}"

    def ratios(field: str, above: list[dict], below: list[dict]) -> list[float]:
        return [a[field] / b[field] for a, b in zip(above, below, strict=True)]

    ones = rows("update-cuda", contender="our fleet", runs=1)
    many = rows("update-cuda", contender="our fleet", runs=70)
    loops = rows("sampler-cuda")
    once = rows("evaluation-cuda", contender="embed once", runs=1)
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    lines = page.split("## Why it is fast")[1].splitlines()
    for idea, factor in {
        "A fleet:": between(ratios("us_per_update_and_run", ones, many)),
        "An update is one": between([row["times_faster_than_eager"] for row in ones]),
        "Episodes are drawn": between([row["times_faster_than_loop"] for row in loops]),
        "A test image": between([row["times_faster_than_loop"] for row in once]),
    }.items():
        (line,) = (line for line in lines if line.startswith(f"| {idea}"))
        assert line.split("|")[2].strip().startswith(factor), (idea, factor)


# What the fleet is compared with does the same work


@pytest.mark.parametrize("distractors", [0, 3])
def test_the_conventional_loop_computes_the_loss_of_a_fleet_of_one(distractors, benchmarks):
    conventional = import_module("conventional")
    shape = EpisodeShape(way=3, shot=2, query=2, unlabeled=4, distractors=distractors)
    fleet = build_fleet([Member("masked_soft_kmeans", 5)], Recipe(init_std=0.1), channels=1)
    fleet = fleet.double().train()
    encoder = conventional.conv4(1).double().train()
    for block in range(4):  # convolution, batch norm, ReLU, pool
        encoder[4 * block].weight.data = fleet.encoder.weights[block][0].detach().clone()
    refiner = refine.build("masked_soft_kmeans").double()
    for ours, theirs in zip(fleet.refiner.parameters(), refiner.parameters(), strict=True):
        theirs.data = ours[0].detach().clone()
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(256, (shape.images, 1, 28, 28), generator=generator).byte()

    loss = fleet(images.unsqueeze(0), shape)
    logits = conventional.episode_logits(encoder, refiner, images.double() / 255, shape)
    labels = torch.arange(3).repeat_interleave(2)
    torch.testing.assert_close(loss[0], F.cross_entropy(logits, labels))
