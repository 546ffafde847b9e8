"""The log of a training: on stderr, validation accuracy, TensorBoard's curves, changing nothing."""

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from semishot.commands.main import main
from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImagePool
from semishot.network.protonet import take_run
from semishot.system.progress import SECONDS_BETWEEN_LINES
from semishot.training import fleet_log, loop
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.training.fleet_log import (
    Row,
    Validation,
    fixed_episodes,
    fleet_table,
    row_of,
)
from semishot.training.fleets import build_fleet
from semishot.training.loop import TrainingRequest
from semishot.training.run_folder import read_log
from support.commands import refusal
from support.fleets import CPU, fleet_config, interrupt, train_fleet, watch

SHAPE = EpisodeShape(way=3, shot=2, query=1, unlabeled=4, distractors=2)
RECIPE = Recipe(updates=20, halvings=(8,), filters=4, init_std=0.2, labeled_fraction=0.3)
MEMBERS = (
    Member("masked_soft_kmeans", 5),
    Member("soft_kmeans", 2),
    Member("masked_soft_kmeans", 5, {"mask_power": 2}),
)
RUNS = ["masked_soft_kmeans-seed5", "soft_kmeans-seed2", "masked_soft_kmeans-mask_power2-seed5"]
fleet = partial(fleet_config, recipe=RECIPE, shape=SHAPE, members=MEMBERS)


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """A line of the log, and a validation, every four updates."""
    monkeypatch.setattr(loop, "CHUNK", 4)
    monkeypatch.setattr(fleet_log, "SHARE", 100.0)


def episodes_of(config: FleetConfig, pool: ImagePool, between_lines: int = 10) -> Validation:
    episodes = fixed_episodes(config, pool, between_lines)
    assert episodes is not None
    return episodes


def stirred(config: FleetConfig) -> torch.nn.Module:
    """An untrained fleet whose parameters and moving averages are nothing special."""
    model, generator = build_fleet(config.members, config.recipe, 1), torch.Generator()
    for tensor in model.state_dict().values():
        tensor += 0.3 * torch.rand(tensor.shape, generator=generator.manual_seed(tensor.numel()))
    return model


# Validation


def test_supervised_accuracy_is_that_of_the_nearest_prototype_in_plain_loops(tiny_pool):
    members = (Member("supervised", 1), Member("supervised", 4))
    config = fleet(tiny_pool, shape=replace(SHAPE, unlabeled=0, distractors=0), members=members)
    episodes, model = episodes_of(config, tiny_pool), stirred(config)
    n, k, q = 3, 2, fleet_log.QUERY
    drawn = episodes.streams.draw(0, fleet_log.EPISODES)
    assert drawn.shape == (2, fleet_log.EPISODES, n * k + n * q)
    accuracies = episodes.accuracies(model)
    for run in range(2):
        alone, right = take_run(model, run), []
        for images in drawn[run]:
            with torch.no_grad():
                points = alone.embed(torch.from_numpy(tiny_pool.images[images])[None])[0]
            prototypes = [(points[2 * j] + points[2 * j + 1]) / k for j in range(n)]
            for c in range(n * q):
                distances = [float((points[n * k + c] - p).square().sum()) for p in prototypes]
                right.append(int(np.argmin(distances)) == c // q)
        assert accuracies[run] == pytest.approx(np.mean(right))


@pytest.mark.parametrize("training", [True, False])
def test_validation_leaves_the_model_and_random_numbers_as_they_were(tiny_pool, training):
    config = fleet(tiny_pool)
    model = stirred(config).train(training)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    numbers = torch.get_rng_state()
    episodes = episodes_of(config, tiny_pool)
    first = episodes.accuracies(model)
    assert model.training == model.encoder.training == training
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    assert torch.equal(numbers, torch.get_rng_state())
    assert episodes.accuracies(model) == first


def test_the_log_has_the_accuracy_every_so_often_and_at_the_end(tiny_pool, tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_log, "TIMES", 3)
    config, row = fleet(tiny_pool), row_of(fleet(tiny_pool))
    model = train_fleet(config, tiny_pool, tmp_path, row)
    lines = read_log(tmp_path)
    assert [line["step"] for line in lines] == [4, 8, 12, 16, 20]
    assert [line["step"] for line in lines if "accuracy" in line] == [8, 16, 20]
    at_last = episodes_of(config, tiny_pool).accuracies(model)
    assert lines[-1]["accuracy"] == pytest.approx(at_last, abs=1e-5)
    assert row.accuracy == pytest.approx(np.mean(at_last))


@pytest.mark.parametrize(("names", "way", "distractors"), [(4, 2, 2), (3, 2, 1), (2, 2, 0)])
def test_with_few_validation_classes_episodes_have_fewer(tiny_pool, names, way, distractors):
    """A wide training, as of 16 + 16 classes beside miniImageNet's 16 for validation, is watched too."""
    kept = [c for c in tiny_pool.classes if c.split != "val" or c.name < f"val{names:02d}"]
    pool = replace(tiny_pool, classes=tuple(kept))
    shape = episodes_of(fleet(pool), pool).streams.shape
    assert shape == replace(SHAPE, query=5, way=way, distractors=distractors)


@pytest.mark.parametrize(
    ("classes", "reason"),
    [
        (0, "pool 'glyphs' has no 'val' classes; it holds train, test"),
        (1, "the split has 1 classes but an episode needs 3 + 2 distractor classes; the training"),
    ],
)
def test_without_validation_classes_it_is_skipped_and_reported(
    tiny_pool, classes, reason, tmp_path, capsys
):
    kept = [c for c in tiny_pool.classes if c.split != "val" or c.name < f"val{classes:02d}"]
    pool = replace(tiny_pool, classes=tuple(kept))
    train_fleet(fleet(pool, recipe=replace(RECIPE, updates=2)), pool, tmp_path)
    message = f"no accuracy on validation episodes while training: {reason}"
    assert capsys.readouterr().err.startswith(message)
    assert "accuracy" not in (tmp_path / "log.jsonl").read_text()


# TensorBoard


def request(pool: ImagePool, folder: Path, tensorboard: bool = True) -> TrainingRequest:
    return TrainingRequest(fleet(pool), pool, folder, CPU, 0, tensorboard)


def shown(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows: by tag, each step and its value."""
    events = EventAccumulator(str(folder / "tensorboard"), {"scalars": 0}).Reload()
    tags = events.Tags()["scalars"]
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags}


@pytest.fixture(scope="module")
def whole(tiny_pool, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "CHUNK", 4)
        patch.setattr(fleet_log, "SHARE", 100.0)
        watch(request(tiny_pool, folder))
    return folder


def test_the_curves_are_the_numbers_of_the_log(whole):
    scalars, lines = shown(whole), read_log(whole)
    expected = {"learning_rate": [line["learning_rate"] for line in lines]}
    for kind in ("loss", "accuracy"):
        expected[f"{kind}/mean"] = [sum(line[kind]) / 3 for line in lines]
        for run, name in enumerate(RUNS):
            expected[f"{kind}/{name}"] = [line[kind][run] for line in lines]
    assert sorted(scalars) == sorted(expected)
    for tag, values in expected.items():
        points = zip([4, 8, 12, 16, 20], values, strict=True)
        assert scalars[tag] == [(step, pytest.approx(value)) for step, value in points]


def test_training_is_bit_identical_without_validation_and_event_file(
    whole, tiny_pool, tmp_path, monkeypatch
):
    monkeypatch.setattr(loop, "fixed_episodes", lambda *_: None)
    watch(request(tiny_pool, tmp_path, tensorboard=False))
    assert not (tmp_path / "tensorboard").exists()
    model = "model.safetensors"
    assert (tmp_path / model).read_bytes() == (whole / model).read_bytes()
    plain = [{k: v for k, v in line.items() if k != "accuracy"} for line in read_log(whole)]
    assert [json.loads(x) for x in (tmp_path / "log.jsonl").read_text().splitlines()] == plain


@pytest.mark.parametrize("first", [True, False], ids=["from the start", "requested later"])
@pytest.mark.parametrize("stop", [4, 12, 20])
def test_a_resumed_training_shows_what_an_undisturbed_one_does(
    whole, tiny_pool, tmp_path, stop, first
):
    """Stopped before a line of the log, with numbers made up here after the checkpoint; then let go."""
    interrupt(request(tiny_pool, tmp_path, tensorboard=first), stop)
    if first:
        ahead = {"step": stop, "learning_rate": 7.0, "loss": [7.0] * 3, "accuracy": [7.0] * 3}
        events = fleet_log.EventFile(tmp_path, fleet(tiny_pool))
        events.add_line(ahead)
        events.close()
    watch(request(tiny_pool, tmp_path))
    assert shown(tmp_path) == shown(whole)
    watch(request(tiny_pool, tmp_path))  # it is finished
    assert shown(tmp_path) == shown(whole)


def test_the_command_leaves_an_event_file_or_one_line_without_the_package(
    tiny_root, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words = ["train", "--preset", "demo", "--updates", "3", "--filters", "3", "--way", "3"]
    words += ["--device", "cpu", "--data-root", str(tiny_root), "--tensorboard"]
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "tensorboard", None)
        patch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
        missing = "--tensorboard needs TensorBoard: pip install 'semishot[tensorboard]'"
        assert missing in refusal(capsys, *words)
    assert not Path("runs").exists()
    main(words)
    assert "to follow it: tensorboard --logdir runs" in capsys.readouterr().err
    (folder,) = (path.parent for path in Path("runs").rglob("model.safetensors"))
    assert "loss/mean" in shown(folder)


# On stderr


@pytest.fixture
def now(monkeypatch):
    """A clock that only moves when told to."""
    held = [1000.0]
    monkeypatch.setattr(fleet_log.time, "monotonic", lambda: held[0])
    return held


def test_lines_tell_the_whole_and_each_fleet_at_work_now_and_then(now, capsys):
    """The whole is counted in images: an update of the second fleet weighs three of the first."""
    rows = [Row("small", 100, 10), Row("large", 100, 30), Row("later", 100, 10)]
    with fleet_table(rows) as table:
        for row in rows[:2]:
            row.begin(0)
        table.tell()
        now[0] += SECONDS_BETWEEN_LINES
        rows[0].advance(100, 0.5)
        rows[1].advance(20, 0.75)
        rows[1].accuracy = 0.5
        table.tell()
        table.tell()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "training: 32%, 160 images/s, 0:21 left",
        "  large: 20 / 100 updates, loss 0.750, validation 50.0 %, 2.0 updates/s, 0:40 left",
    ]
