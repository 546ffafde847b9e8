"""Training: the update, its log, its checkpoints, and that a killed run ends where it would have."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from semishot.data.episodes import EpisodeShape, Stream, sample_episodes
from semishot.data.pool import ImagePool
from semishot.data.splits import labeled_split
from semishot.errors import InputError
from semishot.network.protonet import ProtoNet
from semishot.system.locks import Lock
from semishot.training import fleet_training, loop
from semishot.training.config import FleetConfig, Member, Recipe, learning_rate
from semishot.training.examples import images_on
from semishot.training.fleet_table import Row, row_of
from semishot.training.fleet_training import TrainingRequest, train, training
from semishot.training.fleets import build_fleet, load_model
from semishot.training.loop import CHUNK, Event, build_optimizer
from semishot.training.run_folder import LOCK_FILE, cut_log
from support.fleets import CPU, fleet_config, interrupt, train_fleet, watch

RECIPE = Recipe(updates=50, halvings=(24, 46), filters=6, init_std=0.1)
LONG = RECIPE.with_updates(2 * CHUNK + CHUNK // 2)
FEW = 20
"""A chunk in most of these tests, so that a short run has several."""
SHAPE = EpisodeShape(way=3, shot=1, query=1, unlabeled=4, distractors=2)
MEMBERS = (Member("masked_soft_kmeans", 5), Member("soft_kmeans", 2))


fleet = partial(fleet_config, recipe=RECIPE, shape=SHAPE, members=MEMBERS)


def request(config: FleetConfig, pool: ImagePool, folder: Path) -> TrainingRequest:
    """With a checkpoint at every line of the log."""
    return TrainingRequest(config, pool, folder, CPU, checkpoint_seconds=0)


def left(folder: Path) -> dict[str, bytes]:
    """What a finished training leaves, apart from litter of killed processes."""
    return {name: (folder / name).read_bytes() for name in ("model.safetensors", "log.jsonl")}


def log(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def long(tiny_pool, tmp_path_factory) -> Path:
    """The folder of an undisturbed training of two chunks and a half."""
    folder = tmp_path_factory.mktemp("run") / "long"
    train_fleet(fleet(tiny_pool, recipe=LONG), tiny_pool, folder)
    return folder


@pytest.fixture(scope="module")
def whole(tiny_pool, tmp_path_factory) -> Path:
    """The folder of a shorter one, also undisturbed, in chunks of FEW."""
    folder = tmp_path_factory.mktemp("run") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "CHUNK", FEW)
        train_fleet(fleet(tiny_pool), tiny_pool, folder)
    return folder


@pytest.fixture
def short_chunks(monkeypatch):
    monkeypatch.setattr(loop, "CHUNK", FEW)


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_a_run_folder_holds_config_log_and_model(whole, tiny_pool):
    assert sorted(p.name for p in whole.iterdir()) == [
        "config.json",
        "log.jsonl",
        "model.safetensors",
        "training.json",
    ]
    config = fleet(tiny_pool)
    assert FleetConfig.from_json((whole / "config.json").read_text()) == config
    assert load_model(whole, CPU)[0] == config


def test_the_log_has_a_line_per_chunk_with_rate_and_loss_of_each_run(long):
    lines = log(long)
    assert [line["step"] for line in lines] == [CHUNK, 2 * CHUNK, LONG.updates]
    for line in lines:
        assert line["learning_rate"] == learning_rate(LONG, line["step"] - 1)
        assert len(line["loss"]) == len(MEMBERS)


def test_weight_decay_falls_on_convolution_weights_alone(tiny_pool):
    """With no gradient, Adam's first step is rate * g / (|g| + 1e-8) for the L2 term g = decay * w."""
    config = fleet(tiny_pool, members=(Member("masked_soft_kmeans", 0),))
    model = build_fleet(config.members, RECIPE, channels=1)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    build_optimizer(RECIPE, model).step()
    for name, p in model.named_parameters():
        if name.startswith("encoder.weights"):
            g = RECIPE.weight_decay * before[name]
            expected = before[name] - RECIPE.learning_rate * g / (g.abs() + 1e-8)
            assert torch.allclose(p, expected, atol=1e-7)
            assert not torch.equal(p, before[name])
        else:
            assert torch.equal(p, before[name])


@pytest.mark.usefixtures("float64")
def test_updates_are_adam_on_the_episode_loss_written_out(tiny_pool, tmp_path):
    """Two updates across a halving, against Kingma & Ba's algorithm in plain tensors."""
    recipe = replace(RECIPE, updates=2, halvings=(1,), weight_decay=0.05)
    config = fleet(tiny_pool, recipe=recipe)
    trained = train_fleet(config, tiny_pool, tmp_path)

    model = build_fleet(config.members, recipe, channels=1).train()
    m = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    v = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for step, rate in enumerate((1e-3, 5e-4)):
        rows = []
        for member in config.members:
            split = labeled_split(tiny_pool.of_split("train"), 0.1, member.split_seed)
            episode = sample_episodes(split, SHAPE, Stream(member.split_seed, "train"), step, 1)
            rows.append(episode.images[0])
        images = torch.from_numpy(tiny_pool.images[np.stack(rows)])  # (R, B, 1, 28, 28)
        model.zero_grad()
        model(images, SHAPE).sum().backward()
        with torch.no_grad():
            for name, p in model.named_parameters():
                g = torch.zeros_like(p) if p.grad is None else p.grad
                if name.startswith("encoder.weights"):
                    g = g + 0.05 * p
                m[name] = 0.9 * m[name] + 0.1 * g
                v[name] = 0.999 * v[name] + 0.001 * g * g
                m_hat = m[name] / (1 - 0.9 ** (step + 1))
                v_hat = v[name] / (1 - 0.999 ** (step + 1))
                p -= rate * m_hat / (v_hat.sqrt() + 1e-8)
    expected = model.state_dict()
    for name, tensor in trained.state_dict().items():
        assert torch.allclose(tensor, expected[name], atol=1e-9), name


@pytest.mark.usefixtures("float64")
def test_a_run_in_a_fleet_has_the_weights_it_has_alone(tiny_pool, tmp_path):
    recipe = replace(RECIPE, updates=12)
    members = (
        Member("soft_kmeans", 4),
        Member("distractor_cluster", 0),
        Member("masked_soft_kmeans", 4),
        Member("masked_soft_kmeans", 7),
    )
    config = fleet(tiny_pool, recipe=recipe, members=members)
    together = train_fleet(config, tiny_pool, tmp_path / "together").state_dict()
    places = {"soft_kmeans": (0, 0), "distractor_cluster": (1, 1), "masked_soft_kmeans": (2, 2)}
    for r, member in enumerate(members):
        alone = train_fleet(replace(config, members=(member,)), tiny_pool, tmp_path / f"alone{r}")
        group, first = places[member.model]
        for name, tensor in alone.state_dict().items():
            if name.startswith("encoder"):
                mine = together[name][r]
            else:
                within = name.replace("refiner.", f"refiner.refiners.{group}.")
                mine = together[within][r - first]
            assert torch.allclose(mine, tensor[0], atol=1e-8), (member, name)


def test_the_size_of_a_chunk_changes_nothing(whole, tiny_pool, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHUNK", 7)
    train_fleet(fleet(tiny_pool), tiny_pool, tmp_path)
    assert left(tmp_path)["model.safetensors"] == left(whole)["model.safetensors"]


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_training_in_two_halves_equals_one_go(whole, tiny_pool, tmp_path, chunks):
    config = fleet(tiny_pool)
    interrupt(request(config, tiny_pool, tmp_path), chunks * FEW)
    assert not (tmp_path / "model.safetensors").exists()
    row = row_of(config)
    train(config, tiny_pool, tmp_path, CPU, row)
    assert left(tmp_path) == left(whole)
    assert not (tmp_path / "state.pt").exists()
    assert row.skipped == (chunks - 1) * FEW


@pytest.mark.usefixtures("short_chunks")
def test_a_torn_log_line_is_dropped_and_done_again(whole, tiny_pool, tmp_path):
    config = fleet(tiny_pool)
    interrupt(request(config, tiny_pool, tmp_path), 2 * FEW)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 50, "learning_ra')
    train_fleet(config, tiny_pool, tmp_path)
    assert left(tmp_path) == left(whole)


@pytest.mark.parametrize(("step", "kept"), [(0, []), (100, [100]), (199, [100]), (300, [100, 200])])
def test_the_log_is_cut_to_the_checkpoint(tmp_path, step, kept):
    lines = [
        json.dumps({"step": s, "learning_rate": 0.1, "loss": [0.5]}) + "\n" for s in (100, 200)
    ]
    (tmp_path / "log.jsonl").write_text("".join(lines) + '{"step": 3')
    cut_log(tmp_path, step)
    assert (tmp_path / "log.jsonl").read_text() == "".join(lines[: len(kept)])


@pytest.mark.parametrize("moments", [5, pytest.param(12, marks=pytest.mark.slow)])
def test_killed_at_any_moment_and_restarted_it_ends_bit_identical(
    moments, tiny_root, tiny_pool, tmp_path
):
    """SIGKILL at moments spread over all our calls and over those of torch.save; then repeatedly."""
    config = fleet(tiny_pool, recipe=replace(RECIPE, updates=10, halvings=(4, 8)))
    arguments = {
        "pool": str(tiny_root / "glyphs"),
        "work": str(tmp_path),
        "config": config.to_json(),
        "watched": ["ours", "saving"],
        "moments": moments,
    }
    script = Path(__file__).parents[1] / "support" / "killed_training.py"
    found = subprocess.run(
        [sys.executable, str(script), json.dumps(arguments)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert int(found.stdout) >= 3
    assert len(list(tmp_path.glob("killed-*"))) >= 2 * moments
    for folder in tmp_path.iterdir():
        assert left(folder) == left(tmp_path / "whole-ours"), folder.name


def test_a_finished_training_is_not_touched(whole, tiny_pool, monkeypatch):
    before = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in whole.iterdir()}
    monkeypatch.setattr(loop, "draw_chunks", lambda *_: pytest.fail("it trained"))
    row = row_of(fleet(tiny_pool))
    train(fleet(tiny_pool), tiny_pool, whole, CPU, row)
    assert {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in whole.iterdir()} == before
    assert row.done == row.skipped == row.updates == RECIPE.updates


@pytest.mark.usefixtures("short_chunks")
def test_another_training_in_the_same_folder_is_refused(tiny_pool, tmp_path):
    config = fleet(tiny_pool)
    interrupt(request(config, tiny_pool, tmp_path), 1 * FEW)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    other = replace(config, recipe=replace(RECIPE, learning_rate=0.1))
    with pytest.raises(InputError, match="another training; choose another --out"):
        train_fleet(other, tiny_pool, tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_training_that_cannot_begin_leaves_no_folder(tiny_pool, tmp_path):
    impossible = fleet(tiny_pool, shape=replace(SHAPE, way=40))
    with pytest.raises(InputError, match="30 classes"):
        train_fleet(impossible, tiny_pool, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def flip(path: Path, index: int) -> None:
    content = bytearray(path.read_bytes())
    content[index] ^= 1
    path.write_bytes(content)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("change", [flip, cut])
def test_after_a_damaged_checkpoint_it_trains_from_the_start(
    whole, tiny_pool, tmp_path, capsys, change
):
    config = fleet(tiny_pool)
    interrupt(request(config, tiny_pool, tmp_path), 3 * FEW)
    path = tmp_path / "state.pt"
    change(path, path.stat().st_size // 2)
    row = row_of(config)
    train(config, tiny_pool, tmp_path, CPU, row)
    message = "state.pt is damaged: its checksum differs; training from the start"
    assert message in capsys.readouterr().err
    assert row.skipped == 0
    assert left(tmp_path) == left(whole)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in whole.iterdir())


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("change", [flip, cut])
def test_a_damaged_model_is_trained_again(whole, tiny_pool, tmp_path, capsys, change):
    for name, content in left(whole).items():
        (tmp_path / name).write_bytes(content)
    change(tmp_path / "model.safetensors", len(left(whole)["model.safetensors"]) // 2)
    train_fleet(fleet(tiny_pool), tiny_pool, tmp_path)
    assert "model.safetensors is damaged; it is trained again" in capsys.readouterr().err
    assert left(tmp_path) == left(whole)


@pytest.mark.usefixtures("short_chunks")
def test_a_checkpoint_of_another_fleet_is_refused(tiny_pool, tmp_path):
    smaller = fleet(tiny_pool, recipe=replace(RECIPE, filters=4))
    for folder, config in ((tmp_path / "a", fleet(tiny_pool)), (tmp_path / "b", smaller)):
        interrupt(request(config, tiny_pool, folder), 2 * FEW)
    (tmp_path / "a" / "state.pt").replace(tmp_path / "b" / "state.pt")
    with pytest.raises(InputError, match="is not of this fleet"):
        train_fleet(smaller, tiny_pool, tmp_path / "b")


@pytest.mark.usefixtures("short_chunks")
def test_a_training_yields_what_happened(tiny_pool, tmp_path):
    """A chunk of 10 updates at a time, a line and a checkpoint every 20, and at the end of 50."""
    config = fleet(tiny_pool)
    working, saved = Event.WORKING, Event.SAVED
    expected = [working, working, saved, working, saved]
    assert watch(request(config, tiny_pool, tmp_path / "alone")) == expected
    waits = request(config, tiny_pool, tmp_path / "waits")
    waiting = training(waits, images_on(tiny_pool, CPU), row_of(config))
    with Lock(tmp_path / "waits" / LOCK_FILE):
        assert [next(waiting), next(waiting)] == [Event.WAITING] * 2
    assert list(waiting) == expected


def without_a_tensor(path: Path) -> None:
    config = load_model(path.parent, CPU)[0]
    tensors = load_file(path)
    del tensors["encoder.scales.2"]
    save_file(tensors, path, {"config": config.to_json()})


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: path.write_bytes(b"not a model at all"),
        without_a_tensor,
        lambda path: save_file({"a": torch.zeros(1)}, path),
    ],
    ids=["empty", "truncated", "garbage", "a tensor less", "another program's"],
)
def test_a_damaged_model_is_refused(whole, tmp_path, change):
    (tmp_path / "model.safetensors").write_bytes((whole / "model.safetensors").read_bytes())
    change(tmp_path / "model.safetensors")
    message = "is damaged or of another version|not a configuration"
    with pytest.raises(InputError, match=message):
        load_model(tmp_path, CPU)


@pytest.mark.parametrize("augment", [0.0, 1.0])
def test_images_brought_chunk_by_chunk_train_the_same(augment, tiny_pool, tmp_path, monkeypatch):
    """A pool that the device cannot hold: the same episodes, the same model, the same log."""
    monkeypatch.setattr("semishot.training.loop.CHUNK", 4)
    shape = EpisodeShape(way=3, shot=1, query=1, unlabeled=4, distractors=2)
    recipe = Recipe(updates=10, filters=3, init_std=0.1, augment=augment, mirror=augment > 0)
    members = (Member("masked_soft_kmeans", 5), Member("soft_kmeans", 2))
    config = FleetConfig(tiny_pool.name, tiny_pool.fingerprint, "tiny", recipe, shape, members)
    held, brought = tmp_path / "held", tmp_path / "brought"
    for folder, room, most in ((held, 2**31, 2**28), (brought, 0, 3 * 2 * 24 * 784)):
        monkeypatch.setattr("semishot.training.examples.HELD_BY_A_CPU", room)
        monkeypatch.setattr("semishot.training.loop.CHUNK_BYTES", most)
        assert (images_on(tiny_pool, CPU) is None) == (folder == brought)
        train(config, tiny_pool, folder, CPU, row_of(config))
    assert (held / "log.jsonl").read_text() == (brought / "log.jsonl").read_text()
    assert (held / "model.safetensors").read_bytes() == (brought / "model.safetensors").read_bytes()


def spoil(row: Row, step: int, change) -> Row:
    """A row that changes something just before the training reaches update `step`."""

    class Spoiling(Row):
        def advance(self, updates: int, loss: float) -> None:
            super().advance(updates, loss)
            if self.done == step:
                change()

    return Spoiling(**vars(row))


@pytest.fixture
def built(monkeypatch) -> list[ProtoNet]:
    """The fleets that a training builds, for a test to reach into."""
    fleets: list[ProtoNet] = []

    def build(*arguments) -> ProtoNet:
        fleets.append(build_fleet(*arguments))
        return fleets[-1]

    monkeypatch.setattr(fleet_training, "build_fleet", build)
    return fleets


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_diverging_training_names_the_run_and_keeps_its_last_good_checkpoint(
    number, whole, tiny_pool, tmp_path, built
):
    """Run 1 is spoiled after update 30, between two lines of the log; the checkpoint is of update 20."""
    config = fleet(tiny_pool)

    def ruin() -> None:
        with torch.no_grad():
            built[0].encoder.weights[0][1] = number

    row = spoil(row_of(config), 30, ruin)
    with pytest.raises(InputError) as caught:
        watch(request(config, tiny_pool, tmp_path), row)
    line = str(caught.value)
    assert "\n" not in line
    assert "training diverged before update 40" in line
    assert "the numbers of soft_kmeans of split seed 2 are no longer finite" in line
    assert str(tmp_path) in line
    assert "lower learning rate than 0.001" in line
    assert not (tmp_path / "model.safetensors").exists()
    assert [entry["step"] for entry in log(tmp_path)] == [FEW]
    row = row_of(config)
    train(config, tiny_pool, tmp_path, CPU, row)
    assert row.skipped == FEW
    assert left(tmp_path) == left(whole)


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("step", [40, 50])
def test_weights_spoiled_by_the_last_update_are_never_saved(
    step, whole, tiny_pool, tmp_path, built
):
    """After the loss of a chunk was taken: no checkpoint, and at the end no model, is made of them."""
    config = fleet(tiny_pool)

    def ruin() -> None:
        with torch.no_grad():
            built[0].encoder.shifts[3][0] = math.nan

    row = spoil(row_of(config), step, ruin)
    with pytest.raises(InputError, match="numbers of masked_soft_kmeans of split seed 5 are no"):
        watch(request(config, tiny_pool, tmp_path), row)
    assert not (tmp_path / "model.safetensors").exists()
    train_fleet(config, tiny_pool, tmp_path)
    assert left(tmp_path) == left(whole)
