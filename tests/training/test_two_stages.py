"""Fleets that begin as classifiers: both stages, interrupted in either, and what they share."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImagePool
from semishot.data.splits import labeled_split
from semishot.errors import InputError
from semishot.training import classification, loop
from semishot.training.classification import ClassificationRequest, labeled_batches
from semishot.training.config import Classification, FleetConfig, Member, Recipe
from semishot.training.examples import episode_maps, images_on, training_episodes
from semishot.training.fleet_table import row_of
from semishot.training.fleet_training import TrainingRequest, begin_or_resume, training
from semishot.training.fleets import center
from semishot.training.run_folder import (
    TRAINING_FILE,
    TrainingSession,
    pack,
    read_log,
    read_sessions,
    unpack,
)
from support.fleets import CPU, StoppingRow, fleet_config, train_fleet

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


def test_a_run_folder_holds_its_classifiers_too(whole, tiny_pool):
    names = [Path(name).name for name in left(whole)]
    files = sorted(name for name in names if name.startswith("seed"))
    assert [name.split("-")[0] for name in files] == ["seed2", "seed5"]
    assert sorted(set(names) - set(files)) == ["config.json", "log.jsonl", "model.safetensors"]
    assert FleetConfig.from_json((whole / "config.json").read_text()) == two_stages(tiny_pool)
    assert [line["step"] for line in read_log(whole)] == [4, 8, 10]


def test_the_sessions_of_both_stages_are_written_down(whole):
    first, second = read_sessions(whole / TRAINING_FILE)
    for path in (whole / classification.CLASSIFIERS).glob("*.json"):
        assert read_sessions(path) == [first]
    assert first["date"] <= second["date"]


def of_classifiers(folder: Path) -> TrainingSession:
    """The session in which the classifiers of a run folder were trained."""
    (session,) = read_sessions(next((folder / classification.CLASSIFIERS).glob("*.json")))
    return session


def test_killed_right_after_a_checkpoint_no_session_is_lost(tiny_pool, tmp_path):
    request = TrainingRequest(two_stages(tiny_pool), tiny_pool, tmp_path, CPU, checkpoint_seconds=0)
    save = loop.save_state

    def killed_after(folder, state):
        save(folder, state)
        if folder == tmp_path:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "save_state", killed_after)
        list(training(request, images_on(tiny_pool, CPU), row_of(request.config)))
    list(training(request, images_on(tiny_pool, CPU), row_of(request.config)))
    sessions = read_sessions(tmp_path / TRAINING_FILE)
    assert sessions[0] == of_classifiers(tmp_path)
    assert len(sessions) == 3


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
    with pytest.raises(KeyboardInterrupt):
        for _ in training(request, images_on(tiny_pool, CPU), StoppingRow(config, stop)):
            pass
    assert not (tmp_path / "model.safetensors").exists()
    row = row_of(config)
    for _ in training(request, images_on(tiny_pool, CPU), row):
        pass
    assert row.skipped == skipped
    assert left(tmp_path) == left(whole)


@pytest.mark.slow
def test_killed_at_any_moment_of_either_stage_it_ends_bit_identical(tiny_root, tiny_pool, tmp_path):
    """SIGKILL at moments spread over all our calls; then repeatedly."""
    recipe = replace(RECIPE, updates=7, first=replace(FIRST, updates=7))
    arguments = {
        "pool": str(tiny_root / "glyphs"),
        "work": str(tmp_path),
        "config": two_stages(tiny_pool, recipe=recipe).to_json(),
        "watched": ["classifiers"],
        "moments": 16,
    }
    script = Path(__file__).parents[1] / "support" / "killed_training.py"
    command = [sys.executable, str(script), json.dumps(arguments)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(found.stdout) >= 3
    assert len(list(tmp_path.glob("killed-*"))) >= 16
    for folder in tmp_path.iterdir():
        assert left(folder) == left(tmp_path / "whole-classifiers"), folder.name


def test_classifiers_are_shared_and_each_seed_is_trained_once(
    whole, tiny_pool, tmp_path, monkeypatch
):
    asked = []
    real = classification.classifier

    def counted(request, seeds):
        asked.append(seeds)
        return real(request, seeds)

    monkeypatch.setattr(classification, "classifier", counted)
    both = two_stages(tiny_pool, members=(*MEMBERS, Member("oslo", 5), Member("prwn", 2)))
    shared = tmp_path / "classifiers"
    for config in (two_stages(tiny_pool), both):
        request = TrainingRequest(config, tiny_pool, tmp_path / config.name, CPU)
        request = replace(request, classifiers=shared)
        for _ in training(request, images_on(tiny_pool, CPU), row_of(config)):
            pass
    assert asked == [[5, 2]]
    alone = tmp_path / two_stages(tiny_pool).name / "model.safetensors"
    assert alone.read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_worker_sends_its_classifiers_and_what_it_has_done_with_is_deleted(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    checkpoints = there / "pretrained-classifiers" / "2seeds-abc"
    checkpoints.mkdir(parents=True)
    (checkpoints / "state.pt").write_bytes(b"half")
    (there / "pretrained-classifiers" / ".2seeds-abc.lock").write_bytes(b"")
    assert list(pack(there)) == ["pretrained-classifiers/2seeds-abc/state.pt"]
    unpack(pack(there), here)
    (checkpoints / "state.pt").unlink()
    (there / "pretrained-classifiers" / "seed2.safetensors").write_bytes(b"whole")
    unpack(pack(there), here)
    assert list(left(here)) == ["pretrained-classifiers/seed2.safetensors"]


def test_the_center_is_the_mean_of_the_first_labeled_images_of_each_class(tiny_pool, tmp_path):
    config = two_stages(tiny_pool, recipe=replace(RECIPE, first=None))
    fleet, _, _ = begin_or_resume(config, tiny_pool, tmp_path, CPU)
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


# What is drawn


def request_of(pool: ImagePool, **changes) -> ClassificationRequest:
    first = replace(FIRST, **changes)
    return ClassificationRequest(pool, RECIPE.of_classification(first), CPU, first=first)


def test_a_batch_is_seen_upright_first_then_turned(tiny_pool):
    drawn = labeled_batches(request_of(tiny_pool), [5, 2])(3, 2)
    assert drawn.images.shape == drawn.labels.shape == (2, 2, 24)
    assert drawn.maps.shape == (2, 2, 24, 2, 3)
    images, maps = drawn.images.reshape(2, 2, 4, 6), drawn.maps.numpy().reshape(2, 2, 4, 6, 2, 3)
    for k, turn in enumerate([[[1, 0], [0, 1]], [[0, -1], [1, 0]], [[-1, 0], [0, -1]]]):
        assert np.array_equal(images[:, :, k], images[:, :, 0])
        assert np.allclose(maps[:, :, k, :, :, :2], maps[:, :, 0, :, :, :2] @ np.array(turn))
    upright = maps[:, :, 0]
    assert (np.abs(upright[..., 0, 0]) >= 0.8**0.5 - 1e-6).all()
    assert (np.abs(upright[..., 2]) <= 1 - np.abs(upright[..., 0, 0])[..., None] + 1e-6).all()
    assert len(set(np.sign(upright[..., 0, 0]).ravel())) == 2  # some are mirrored


@pytest.mark.parametrize("chunk", [1, 3, 6])
def test_same_address_same_episode_whatever_the_chunking(tiny_pool, chunk):
    draw = training_episodes(two_stages(tiny_pool), tiny_pool)
    together = draw(2, 6)
    for first in range(0, 6, chunk):
        part, own = draw(2 + first, chunk), slice(first, first + chunk)
        assert np.array_equal(part.images, together.images[own])
        assert torch.equal(part.maps, together.maps[own])
        assert torch.equal(part.distractors, together.distractors[own])


def test_distractors_take_part_in_their_share_of_episodes(tiny_pool):
    draw = training_episodes(two_stages(tiny_pool), tiny_pool)
    present = draw(0, 400).distractors
    assert present.shape == (400, 2)
    assert 0.4 < present.mean() < 0.6
    always = two_stages(tiny_pool, recipe=replace(RECIPE, with_distractors=1.0))
    assert training_episodes(always, tiny_pool)(0, 4).distractors is None


def test_half_of_the_classes_are_turned_all_images_of_a_class_alike():
    recipe = replace(RECIPE, mirror=False)
    maps = episode_maps(recipe, SHAPE, 3, 0, 200)[..., :2]  # (E, B, 2, 2)
    support, unlabeled, query = np.split(maps, np.cumsum(SHAPE.sizes)[:2], axis=1)
    parts = ((support, 3), (unlabeled, 5), (query, 3))
    by_class = np.concatenate([part.reshape(200, n, -1, 2, 2)[:, :3] for part, n in parts], 2)
    assert (by_class == by_class[:, :, :1]).all()
    distracting = unlabeled.reshape(200, 5, 3, 2, 2)
    assert (distracting == distracting[:, :, :1]).all()
    upright = (distracting[:, :, 0] == np.eye(2)).all((-2, -1)).mean()
    assert 0.55 < upright < 0.7  # half are not turned, and a quarter of the others by nothing


# Settings


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"crop": 0.0}, "crop must be above 0 and at most 1, not 0.0"),
        ({"norm_momentum": 1.5}, "norm_momentum must be above 0 and at most 1, not 1.5"),
        ({"views": 101}, "views must be at most 100, not 101"),
        (
            {"views": 5, "augment": 0.0},
            "views of an image are moved as in training, where augment is 0",
        ),
        ({"turned": 1.5}, "turned must be from 0 to 1, not 1.5"),
        ({"with_distractors": -0.5}, "with_distractors must be from 0 to 1, not -0.5"),
        ({"sphere": -1.0}, "sphere must be at least 0, not -1.0"),
    ],
)
def test_a_wrong_setting_is_named(changes, said):
    with pytest.raises(InputError, match=said):
        replace(RECIPE, **changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch": 0}, "batch must be at least 1, not 0"),
        ({"scale": 0.0}, "the scale must be positive, not 0.0"),
        ({"turned_loss": -1.0}, "turned_loss must be at least 0, not -1.0"),
    ],
)
def test_a_wrong_setting_of_the_classification_is_named(changes, said):
    with pytest.raises(InputError, match=said):
        replace(FIRST, **changes)


def test_both_stages_survive_json_and_older_recipes_have_the_fields_they_had(tiny_pool):
    config = two_stages(tiny_pool)
    assert FleetConfig.from_json(config.to_json()) == config
    assert json.loads(config.to_json())["recipe"]["first"]["batch"] == FIRST.batch
    assert "first" not in Recipe().as_dict()
    assert "sphere" not in Recipe().as_dict()
    wrong = config.to_json().replace('"batch": 6', '"batch": "6"')
    with pytest.raises(InputError, match="recipe.first.batch: expected `int`, got `str`"):
        FleetConfig.from_json(wrong)
