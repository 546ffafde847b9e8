"""Fleets that begin as classifiers: both stages, interrupted in either, and what they share."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImagePool
from semishot.data.splits import labeled_split
from semishot.errors import InputError
from semishot.training import loop
from semishot.training.config import Classification, FleetConfig, Member, Recipe
from semishot.training.fleet_log import row_of
from semishot.training.fleets import build_fleet, center
from semishot.training.loop import TrainingRequest
from semishot.workers.engine import pack, unpack
from support.fleets import CPU, fleet_config, interrupt, train_fleet, watch

FEW = 4
"""Updates in a chunk, and from one checkpoint to the next."""
SHAPE = EpisodeShape(way=3, shot=2, query=1, unlabeled=3, distractors=2)
FIRST = Classification(updates=10, batch=6, learning_rate=0.05)
RECIPE = Recipe(
    updates=10, cosine=True, mirror=True, weight_decay=0.0, filters=4, init_std=0.0,
    labeled_fraction=0.3, turned=0.5, with_distractors=0.5, sphere=10.0, initial_loss=0.5,
    norm_momentum=0.02, both_sides=True, first=FIRST,
)  # fmt: skip
MEMBERS = (Member("cosine_kmeans", 5), Member("cosine_kmeans", 2))


def two_stages(pool: ImagePool, **changes) -> FleetConfig:
    return fleet_config(pool, **{"recipe": RECIPE, "shape": SHAPE, "members": MEMBERS, **changes})


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(loop, "CHUNK", FEW)
    monkeypatch.setattr(loop, "CPU_CHUNK", FEW)


def is_of_sessions(path: Path) -> bool:
    return path.suffix == ".json" and path.name != "config.json"


def left(folder: Path) -> dict[str, bytes]:
    """Without the files of sessions, which hold times."""
    paths = sorted(
        path for path in folder.rglob("*") if path.is_file() and not is_of_sessions(path)
    )
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def whole(tiny_pool, tmp_path_factory) -> Path:
    """What an undisturbed training leaves."""
    folder = tmp_path_factory.mktemp("two stages") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "CHUNK", FEW)
        train_fleet(two_stages(tiny_pool), tiny_pool, folder)
    return folder


def test_the_lines_of_pytorch_in_the_documents_load_it(whole, tmp_path, monkeypatch):
    shutil.copytree(whole, tmp_path / "runs" / "mine")
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    exec(compile(code, "training.md", "exec"), space)
    assert space["features"].shape == (len(MEMBERS), 8, RECIPE.filters)


@pytest.mark.parametrize(
    ("stop", "skipped"),
    [(3, 0), (8, 4), (10, 8), (14, 10), (18, 14), (20, 18)],
    ids=["early", "in stage 1", "its end", "early in stage 2", "in stage 2", "the end"],
)
def test_interrupted_in_either_stage_it_ends_bit_identical(
    whole, tiny_pool, tmp_path, stop, skipped
):
    config = two_stages(tiny_pool)
    request = TrainingRequest(config, tiny_pool, tmp_path, CPU, checkpoint_seconds=0)
    interrupt(request, stop)
    assert not (tmp_path / "model.safetensors").exists()
    row = row_of(config)
    watch(request, row)
    assert row.skipped == skipped
    assert left(tmp_path) == left(whole)


@pytest.mark.parametrize("moments", [4, pytest.param(16, marks=pytest.mark.slow)])
def test_killed_at_any_moment_of_either_stage_it_ends_bit_identical(
    moments, tiny_root, tiny_pool, tmp_path
):
    """SIGKILL at moments spread over all our calls and over those of torch.save; then repeatedly."""
    recipe = replace(RECIPE, updates=7, first=replace(FIRST, updates=7))
    arguments = {
        "pool": str(tiny_root / "glyphs"),
        "work": str(tmp_path),
        "config": two_stages(tiny_pool, recipe=recipe).to_json(),
        "watched": ["ours", "saving"],
        "moments": moments,
    }
    script = Path(__file__).parents[1] / "support" / "killed_training.py"
    command = [sys.executable, str(script), json.dumps(arguments)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(ended.stdout) >= 3
    assert len(list(tmp_path.glob("killed-*"))) >= 2 * moments
    for folder in tmp_path.iterdir():
        assert left(folder) == left(tmp_path / "whole-ours"), folder.name


def test_classifiers_are_shared_and_each_seed_is_trained_once(whole, tiny_pool, tmp_path):
    both = two_stages(tiny_pool, members=(*MEMBERS, Member("oslo", 5), Member("prwn", 2)))
    shared, saved = tmp_path / "classifiers", set()
    for config in (two_stages(tiny_pool), both):
        request = TrainingRequest(config, tiny_pool, tmp_path / config.name, CPU)
        watch(replace(request, classifiers=shared))
        saved.add(tuple(path.stat().st_mtime_ns for path in sorted(shared.rglob("*.safetensors"))))
    assert [len(times) for times in saved] == [2]
    alone = tmp_path / two_stages(tiny_pool).name / "model.safetensors"
    assert alone.read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_worker_sends_its_classifiers_and_what_it_has_done_with_is_deleted(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    checkpoints = there / "pretrained-classifiers" / "2seeds-abc"
    checkpoints.mkdir(parents=True)
    (checkpoints / "state.pt").write_bytes(b"half")
    (checkpoints / ".lock").write_bytes(b"")
    assert list(pack(there)) == ["pretrained-classifiers/2seeds-abc/state.pt"]
    unpack(pack(there), here)
    (checkpoints / "state.pt").unlink()
    (there / "pretrained-classifiers" / "seed2.safetensors").write_bytes(b"whole")
    unpack(pack(there), here)
    assert list(left(here)) == ["pretrained-classifiers/seed2.safetensors"]


def test_the_center_is_the_mean_of_the_first_labeled_images_of_each_class(tiny_pool):
    config = two_stages(tiny_pool)
    fleet = build_fleet(MEMBERS, RECIPE, 1, features=4)
    center(fleet, config, tiny_pool)
    for run, member in enumerate(MEMBERS):
        split = labeled_split(tiny_pool.of_split("train"), 0.3, member.split_seed)
        chosen = [
            split.order[start + i]
            for start, labeled in zip(split.start, split.labeled, strict=True)
            for i in range(min(labeled, 30))
        ]
        assert len(chosen) == 30 * 6
        images = torch.from_numpy(tiny_pool.images[chosen]).expand(2, -1, -1, -1, -1)
        expected = fleet.eval().encode(images)[run].mean(0)
        assert torch.allclose(fleet.sphere.center[run], expected, atol=1e-6)


def test_both_stages_survive_json_and_older_recipes_have_the_fields_they_had(tiny_pool):
    config = two_stages(tiny_pool)
    assert FleetConfig.from_json(config.to_json()) == config
    assert json.loads(config.to_json())["recipe"]["first"]["batch"] == FIRST.batch
    assert not {"first", "sphere"} & Recipe().as_dict().keys()
    wrong = config.to_json().replace('"batch": 6', '"batch": "6"')
    with pytest.raises(InputError, match="recipe.first.batch: expected `int`, got `str`"):
        FleetConfig.from_json(wrong)
