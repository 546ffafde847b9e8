"""Event files: what TensorBoard reads is the log and the model, also after kills and resumes."""

import io
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from semishot.commands.main import main
from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImagePool
from semishot.paper import presets
from semishot.training import loop as train_module
from semishot.training import tensorboard as tensorboard_module
from semishot.training import validation
from semishot.training.config import Member, Recipe
from semishot.training.fleet_training import TrainingRequest
from semishot.training.fleets import load_model
from semishot.training.run_folder import read_log
from semishot.training.validation import fixed_episodes
from support.fleets import CPU, fleet_config, interrupt, watch

SHAPE = EpisodeShape(way=3, shot=1, query=1, unlabeled=4, distractors=2)
RECIPE = Recipe(updates=20, halvings=(8,), filters=4, init_std=0.1)
MEMBERS = (
    Member("masked_soft_kmeans", 5),
    Member("soft_kmeans", 2),
    Member("masked_soft_kmeans", 5, {"mask_power": 2}),
)
RUNS = [
    "masked_soft_kmeans-seed5",
    "soft_kmeans-seed2",
    "masked_soft_kmeans-mask_power2-seed5",
]
STEPS = [4, 8, 12, 16, 20]


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """A line of the log, and a validation, every four updates."""
    monkeypatch.setattr(train_module, "CHUNK", 4)
    monkeypatch.setattr(validation, "SHARE", 100.0)


fleet = partial(fleet_config, recipe=RECIPE, shape=SHAPE, members=MEMBERS)


def request(pool: ImagePool, folder: Path, tensorboard: bool = True) -> TrainingRequest:
    return TrainingRequest(fleet(pool), pool, folder, CPU, 0, tensorboard)


def shown(folder: Path) -> dict[str, dict]:
    """What TensorBoard shows: by kind and tag, each step and its value."""
    everything = {"scalars": 0, "histograms": 0, "images": 0}
    found = EventAccumulator(str(folder / "tensorboard"), everything).Reload()
    scalars, histograms, images = (found.Tags()[kind] for kind in everything)
    return {
        "scalars": {t: [(e.step, e.value) for e in found.Scalars(t)] for t in scalars},
        "histograms": {
            t: [(e.step, tuple(e.histogram_value.bucket)) for e in found.Histograms(t)]
            for t in histograms
        },
        "images": {t: [(e.step, e.encoded_image_string) for e in found.Images(t)] for t in images},
    }


@pytest.fixture(scope="module")
def whole(tiny_pool, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_module, "CHUNK", 4)
        patch.setattr(validation, "SHARE", 100.0)
        watch(request(tiny_pool, folder))
    return folder


def test_the_curves_are_the_numbers_of_the_log(whole):
    scalars, lines = shown(whole)["scalars"], read_log(whole)
    names = [f"{kind}/{run}" for kind in ("loss", "accuracy") for run in ("mean", *RUNS)]
    assert sorted(scalars) == sorted(["learning_rate", *names])
    assert [line["step"] for line in lines] == STEPS
    for kind in ("loss", "accuracy"):
        for place, name in enumerate(RUNS):
            expected = [(line["step"], line[kind][place]) for line in lines]
            assert scalars[f"{kind}/{name}"] == [(s, pytest.approx(v)) for s, v in expected]
        means = [(line["step"], pytest.approx(sum(line[kind]) / 3)) for line in lines]
        assert scalars[f"{kind}/mean"] == means
    rates = [(line["step"], pytest.approx(line["learning_rate"])) for line in lines]
    assert scalars["learning_rate"] == rates


def test_histograms_are_of_masked_runs_by_distractor_or_not(whole, tiny_pool):
    found = shown(whole)["histograms"]
    kinds = {"of_a_class": slice(None, 12), "distractor": slice(12, None)}
    masked = {RUNS[0]: 0, RUNS[2]: 2}
    assert sorted(found) == sorted(f"mask/{name}/{kind}" for name in masked for kind in kinds)
    episodes = fixed_episodes(fleet(tiny_pool), tiny_pool, CPU, 4)
    seen = episodes.look(load_model(whole, CPU)[1])
    histograms = EventAccumulator(str(whole / "tensorboard"), {"histograms": 0}).Reload()
    for name, place in masked.items():
        for kind, part in kinds.items():
            *_, last = histograms.Histograms(f"mask/{name}/{kind}")
            values = seen.masks[place][:, part]
            assert last.step == 20
            assert last.histogram_value.num == values.numel()
            assert last.histogram_value.sum == pytest.approx(values.double().sum().item())


def test_pictures_are_of_the_first_run_of_each_method(whole, tiny_pool):
    found = shown(whole)["images"]
    assert sorted(found) == ["episode/masked_soft_kmeans", "episode/soft_kmeans"]
    episodes = fixed_episodes(fleet(tiny_pool), tiny_pool, CPU, 4)
    predicted = episodes.look(load_model(whole, CPU)[1]).predicted
    images = episodes.pixels[episodes.places[0]].numpy()
    for model, place in (("masked_soft_kmeans", 0), ("soft_kmeans", 1)):
        steps, pictures = zip(*found[f"episode/{model}"], strict=True)
        assert list(steps) == STEPS
        pixels = np.asarray(Image.open(io.BytesIO(pictures[-1]))).transpose(2, 0, 1)
        expected = tensorboard_module.draw(images, episodes.shape, predicted[place].numpy())
        assert np.array_equal(pixels, expected)


def test_a_picture_has_a_row_per_class_and_colors_that_tell():
    shape = EpisodeShape(way=2, shot=1, query=3, unlabeled=2, distractors=1)
    count, f = shape.images, tensorboard_module.FRAME
    images = (np.arange(count, dtype=np.uint8)[:, None, None, None] + 10).repeat(4, 2).repeat(6, 3)
    picture = tensorboard_module.draw(images, shape, np.array([0, 0, 1, 1, 0, 1]))
    height, width = 4 + 2 * f, 6 + 2 * f
    assert picture.shape == (3, 3 * height, 6 * width + 2 * tensorboard_module.GAP)
    gray, green, red = tensorboard_module.GRAY, tensorboard_module.GREEN, tensorboard_module.RED
    support = [(0, r, gray) for r in range(2)]
    pile = width + tensorboard_module.GAP
    unlabeled = [(pile + c * width, r, (green, green, red)[r]) for r in range(3) for c in range(2)]
    query = pile + 2 * width + tensorboard_module.GAP
    colors = [green, green, red, green, red, green]
    queries = [(query + (i % 3) * width, i // 3, color) for i, color in enumerate(colors)]
    for place, (x, row, color) in enumerate([*support, *unlabeled, *queries]):
        y = row * height
        assert tuple(picture[:, y, x]) == tuple(picture[:, y + height - 1, x + width - 1]) == color
        inside = picture[:, y + f : y + height - f, x + f : x + width - f]
        assert (inside == 255 - (10 + place)).all()  # ink on paper
    assert (picture[:, 2 * height :, query:] == 255).all()  # distractors have no query


def test_training_is_bit_identical_with_and_without_an_event_file(whole, tiny_pool, tmp_path):
    watch(request(tiny_pool, tmp_path, tensorboard=False))
    assert not (tmp_path / "tensorboard").exists()
    for name in ("model.safetensors", "log.jsonl"):
        assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize("stop", [4, 12, 20])
def test_a_resumed_training_shows_what_an_undisturbed_one_does(whole, tiny_pool, tmp_path, stop):
    """Stopped before a line of the log, the checkpoint at the line before; then again, then let go."""
    interrupt(request(tiny_pool, tmp_path), stop)
    interrupt(request(tiny_pool, tmp_path), stop)
    watch(request(tiny_pool, tmp_path))
    assert shown(tmp_path) == shown(whole)


def test_points_after_the_checkpoint_are_forgotten(whole, tiny_pool, tmp_path, monkeypatch):
    """Killed between a line and its checkpoint: the event file is ahead, by numbers made up here."""
    interrupt(request(tiny_pool, tmp_path), 12)
    ahead = {"step": 12, "learning_rate": 7.0, "loss": [7.0] * 3, "accuracy": [7.0] * 3}
    events = tensorboard_module.EventFile(tmp_path, fleet(tiny_pool), 8)
    events.add_line(ahead)
    events.close()
    assert shown(tmp_path)["scalars"]["learning_rate"][-1] == (12, 7.0)
    watch(request(tiny_pool, tmp_path))
    assert shown(tmp_path) == shown(whole)


@pytest.mark.parametrize("stop", [12, 0], ids=["halfway", "when it was finished"])
def test_asked_for_later_it_has_the_curves_from_the_beginning(whole, tiny_pool, tmp_path, stop):
    if stop:
        interrupt(request(tiny_pool, tmp_path, tensorboard=False), stop)
    else:
        watch(request(tiny_pool, tmp_path, tensorboard=False))
    watch(request(tiny_pool, tmp_path))
    found = shown(tmp_path)
    assert found["scalars"] == shown(whole)["scalars"]
    steps = {step for points in found["images"].values() for step, _ in points}
    assert sorted(steps) == ([12, 16, 20] if stop else [])


COMMANDS = {
    "train": ["train", "--device", "cpu", "--way", "3"],
    "demo": ["demo", "--splits", "1"],
    "reproduce": ["reproduce", "table1", "--dataset", "glyphs", "--splits", "1", "--device", "cpu"],
}


@pytest.fixture
def surroundings(tiny_root, tmp_path, monkeypatch):
    small = presets.Preset("a test's", Recipe(updates=3, filters=3, init_std=0.1))
    for name in ("demo", "ren2018"):
        monkeypatch.setitem(presets.PRESETS, name, small)
    monkeypatch.setenv("SEMISHOT_DATA", str(tiny_root))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("surroundings")
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_without_the_package_it_is_one_line_before_the_work(command, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(SystemExit) as caught:
        main([*command, "--tensorboard"])
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    *_, line = err.splitlines()
    assert line == "semishot: --tensorboard needs TensorBoard: pip install 'semishot[tensorboard]'"
    assert not Path("runs").exists()


@pytest.mark.usefixtures("surroundings")
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_commands_leave_an_event_file_in_every_run_folder(command, capsys):
    main([*command, "--tensorboard"])
    assert "to follow it: tensorboard --logdir runs" in capsys.readouterr().err
    folders = [path.parent for path in Path("runs").rglob("model.safetensors")]
    assert len(folders) == (1 if command[0] == "train" else 3)
    for folder in folders:
        assert "loss/mean" in shown(folder)["scalars"]
