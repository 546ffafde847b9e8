"""Training: the update, its log, its checkpoints, and that a killed run ends where it would have."""

import math
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from semishot.data.episodes import EpisodeShape, Stream, sample_episodes
from semishot.data.pool import ImagePool
from semishot.data.splits import labeled_split
from semishot.errors import InputError
from semishot.network.protonet import ProtoNet
from semishot.system.locks import Lock
from semishot.training import loop
from semishot.training.config import FleetConfig, Member, Recipe, learning_rate
from semishot.training.examples import images_on
from semishot.training.fleet_log import Row, row_of
from semishot.training.fleets import build_fleet, load_model
from semishot.training.loop import Event, TrainingRequest, training
from semishot.training.run_folder import LOCK_FILE, read_log
from support.fleets import CPU, fleet_config, interrupt, train_fleet, watch

RECIPE = Recipe(updates=50, halvings=(24, 46), filters=6, init_std=0.1)
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
    lines = read_log(whole)
    assert [line["step"] for line in lines] == [FEW, 2 * FEW, RECIPE.updates]
    for line in lines:
        assert line["learning_rate"] == learning_rate(RECIPE, line["step"] - 1)
        assert len(line["loss"]) == len(MEMBERS)


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
        Member("oslo", 1),
        Member("label_propagation", 3),
    )
    config = fleet(tiny_pool, recipe=recipe, members=members)
    together = train_fleet(config, tiny_pool, tmp_path / "together").state_dict()
    places = {"soft_kmeans": (0, 0), "distractor_cluster": (1, 1), "masked_soft_kmeans": (2, 2)}
    places |= {"oslo": (3, 4), "label_propagation": (4, 5)}
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


def test_a_finished_training_is_not_touched(whole, tiny_pool, monkeypatch):
    before = {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in whole.iterdir()}
    monkeypatch.setattr(loop, "draw_chunks", lambda *_: pytest.fail("it trained"))
    row = row_of(fleet(tiny_pool))
    train_fleet(fleet(tiny_pool), tiny_pool, whole, row)
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
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("state.pt", "is damaged: its checksum differs; training from the start"),
        ("model.safetensors", "is damaged; it is trained again"),
    ],
)
def test_a_damaged_checkpoint_or_model_is_said_and_trained_again(
    whole, tiny_pool, tmp_path, capsys, change, name, message
):
    config = fleet(tiny_pool)
    if name == "state.pt":
        interrupt(request(config, tiny_pool, tmp_path), 3 * FEW)
    else:
        shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    change(tmp_path / name, (tmp_path / name).stat().st_size // 2)
    row = row_of(config)
    train_fleet(config, tiny_pool, tmp_path, row)
    assert f"{name} {message}" in capsys.readouterr().err
    assert row.skipped == 0
    assert left(tmp_path) == left(whole)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in whole.iterdir())


@pytest.mark.usefixtures("short_chunks")
def test_a_checkpoint_of_another_fleet_is_refused(tiny_pool, tmp_path):
    smaller = fleet(tiny_pool, recipe=replace(RECIPE, filters=4))
    for folder, config in ((tmp_path / "a", fleet(tiny_pool)), (tmp_path / "b", smaller)):
        interrupt(request(config, tiny_pool, folder), 2 * FEW)
    (tmp_path / "a" / "state.pt").replace(tmp_path / "b" / "state.pt")
    with pytest.raises(InputError, match="is not of this fleet"):
        train_fleet(smaller, tiny_pool, tmp_path / "b")


@pytest.mark.usefixtures("short_chunks")
def test_a_training_waits_for_another_in_its_folder(whole, tiny_pool, tmp_path):
    waits = request(fleet(tiny_pool), tiny_pool, tmp_path)
    waiting = training(waits, images_on(tiny_pool, CPU), row_of(waits.config))
    with Lock(tmp_path / LOCK_FILE):
        assert [next(waiting), next(waiting)] == [Event.WAITING] * 2
    assert Event.SAVED in waiting
    assert [*waiting][-1] == Event.SAVED
    assert left(tmp_path) == left(whole)


@pytest.mark.parametrize("augment", [0.0, 1.0])
def test_images_brought_chunk_by_chunk_train_the_same(augment, tiny_pool, tmp_path, monkeypatch):
    """A pool that the device cannot hold: the same episodes, the same model, the same log."""
    monkeypatch.setattr(loop, "CHUNK", 4)
    recipe = Recipe(updates=10, filters=3, init_std=0.1, augment=augment, mirror=augment > 0)
    held, brought = tmp_path / "held", tmp_path / "brought"
    for folder, room, most in ((held, 2**31, 2**28), (brought, 0, 3 * 2 * 24 * 784)):
        monkeypatch.setattr("semishot.training.examples.HELD_BY_A_CPU", room)
        monkeypatch.setattr(loop, "CHUNK_BYTES", most)
        assert (images_on(tiny_pool, CPU) is None) == (folder == brought)
        train_fleet(fleet(tiny_pool, recipe=recipe), tiny_pool, folder)
    assert left(held) == left(brought)


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

    monkeypatch.setattr(loop, "build_fleet", build)
    return fleets


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize(("step", "kept"), [(30, FEW), (40, FEW), (50, 2 * FEW)])
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_diverging_training_names_the_run_and_keeps_its_last_good_checkpoint(
    number, step, kept, whole, tiny_pool, tmp_path, built
):
    """Run 1 is spoiled between two lines of the log, or after the loss of a chunk was taken, the last
    one's too: no checkpoint and no model is made of such weights."""
    config = fleet(tiny_pool)

    def ruin() -> None:
        with torch.no_grad():
            built[0].encoder.weights[0][1] = number

    with pytest.raises(InputError) as caught:
        watch(request(config, tiny_pool, tmp_path), spoil(row_of(config), step, ruin))
    assert str(caught.value) == (
        f"training diverged before update {max(step, 40)}: the numbers of soft_kmeans of split seed 2 are "
        f"no longer finite. The last good checkpoint, if there was one, is kept in {tmp_path}; train "
        "again with a lower learning rate than 0.001, or without these runs"
    )
    assert not (tmp_path / "model.safetensors").exists()
    row = row_of(config)
    train_fleet(config, tiny_pool, tmp_path, row)
    assert row.skipped == kept
    assert left(tmp_path) == left(whole)
