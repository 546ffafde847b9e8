"""An encoder of the user's own: ResNet-12, narrow, trained, resumed, saved, picked and tested like ours."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from semishot import refine
from semishot.data.episodes import EpisodeShape
from semishot.errors import InputError
from semishot.network.own_encoder import OwnEncoder
from semishot.network.protonet import take_run
from semishot.paper.plan import fleet_config
from semishot.training import evaluation, loop
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.training.evaluation import evaluate_folder, pick_best
from semishot.training.fleets import build_fleet, load_model
from semishot.training.loop import TrainingRequest, check_fleet
from semishot.training.requests import EvaluationRequest, FleetRequest, PickRequest, Where
from support.fleets import CPU, interrupt, train_fleet
from support.own_methods import own_module

SOURCE = Path(__file__).parents[2] / "examples" / "resnet12.py"
MORE = '''

class Narrow(ResNet12):
    def __init__(self, channels: int) -> None:
        super().__init__(channels, (4, 5, 6, 7))


class Flat(nn.Module):
    """Not features of each image."""

    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(F.normalize(nn.Linear(channels, 3).weight.detach()))

    def forward(self, pixels):
        return pixels.mean()


class NoWeights(nn.Flatten):
    def __init__(self, channels):
        super().__init__()


class Lazy(nn.Sequential):
    def __init__(self, channels):
        super().__init__(nn.Flatten(), nn.LazyLinear(3))


class Frozen(Narrow):
    """Its first block, say from elsewhere, is not to be trained."""

    def __init__(self, channels):
        super().__init__(channels)
        self.blocks[0].requires_grad_(False)
'''
SHAPE = EpisodeShape(way=3, shot=1, query=1, unlabeled=3, distractors=2)
SEEDS = 3, 8


@pytest.fixture
def module(tmp_path):
    with own_module(
        tmp_path, "narrow_of_a_test", SOURCE.read_text(encoding="utf-8") + MORE
    ) as name:
        yield name


def config_of(module, pool, updates=120) -> FleetConfig:
    recipe = Recipe(updates=updates, encoder=refine.add(f"{module}:Narrow"))
    members = tuple(Member("masked_soft_kmeans", seed) for seed in SEEDS)
    return FleetConfig(pool.name, pool.fingerprint, "tiny", recipe, SHAPE, members)


def test_copies_side_by_side_are_the_network_alone(module):
    name = refine.add(f"{module}:Narrow")
    encoder = OwnEncoder(name, channels=1, runs=2).double()
    for run in range(2):
        encoder.reset_run(run, torch.Generator().manual_seed(run))
    images = torch.randint(
        0, 256, (2, 6, 1, 28, 28), generator=torch.Generator().manual_seed(9)
    ).byte()
    for _ in range(2):  # batch norm in training, then its moving averages
        found = encoder(images)
        for run in range(2):
            alone = refine.class_of(name)(1).double().train()
            own = {k: t[run] for k, t in encoder.network.state_dict().items()}
            fresh = {k: t for k, t in own.items() if "running" not in k and "tracked" not in k}
            alone.load_state_dict(own if not encoder.training else fresh, strict=False)
            alone.train(encoder.training)
            assert torch.allclose(found[run], alone(images[run].double() / 255))
            if encoder.training:
                moved = {k: t for k, t in alone.state_dict().items() if "running" in k}
                assert all(torch.allclose(t, own[k]) for k, t in moved.items())
        encoder.eval()
    assert found.shape == (2, 6, 7)
    assert not encoder.weights[0][0].equal(encoder.weights[0][1])


def test_it_learns_and_what_is_saved_is_read_again(module, tiny_pool, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation.datasets, "load", lambda *_: tiny_pool)
    config, folder = config_of(module, tiny_pool), tmp_path / "run"
    fleet = train_fleet(config, tiny_pool, folder)
    ask = EvaluationRequest(str(folder), shape=SHAPE, episodes=60)
    records = evaluate_folder(ask, Where(device="cpu"))
    assert all(record["accuracy"] > 0.4 for record in records)  # chance is a third
    assert records[0]["recipe"]["encoder"] == f"{module}:Narrow"
    images = torch.randint(0, 256, (1, 4, 1, 28, 28)).byte()
    single = take_run(fleet, 1)
    expected = fleet.embed(images.expand(2, -1, -1, -1, -1))[1]
    assert torch.allclose(single.embed(images)[0], expected, atol=1e-4)
    assert torch.allclose(fleet.encoder.of_run(1)(images[0] / 255), expected, atol=1e-4)
    pick_best(folder, tmp_path / "best.safetensors", PickRequest(shape=SHAPE), Where(device="cpu"))
    _, best = load_model(tmp_path / "best.safetensors", CPU)
    assert best.encoder.runs == 1
    monkeypatch.setattr(refine, "_ADDED", {})
    with pytest.raises(InputError, match="allow it by `--allow"):
        load_model(folder, CPU)


def test_frozen_weights_stay_as_they_are(module, tiny_pool, tmp_path):
    config = config_of(module, tiny_pool, updates=2)
    recipe = replace(config.recipe, encoder=refine.add(f"{module}:Frozen"))
    before = build_fleet(config.members, recipe, 1).encoder.weights
    after = train_fleet(replace(config, recipe=recipe), tiny_pool, tmp_path).encoder.weights
    same = [torch.equal(a, b) for a, b in zip(after, before, strict=True)]
    assert same == 4 * [True] + 12 * [False]  # three convolutions and a shortcut in each block


def test_a_resumed_training_ends_with_the_same_bits(module, tiny_pool, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHUNK", 10)
    config = config_of(module, tiny_pool, updates=30)
    train_fleet(config, tiny_pool, tmp_path / "whole")
    interrupt(
        TrainingRequest(config, tiny_pool, tmp_path / "halves", CPU, checkpoint_seconds=0), 20
    )
    train_fleet(config, tiny_pool, tmp_path / "halves")
    whole, halves = ((tmp_path / n / "model.safetensors").read_bytes() for n in ("whole", "halves"))
    assert whole == halves


def test_what_does_not_fit_the_contract_is_one_line_before_the_work(module, tiny_pool, tmp_path):
    def refusal(name: str, **settings) -> str:
        with pytest.raises(InputError) as caught:
            asked = FleetRequest(
                "glyphs", "soft_kmeans", way=3, encoder=f"{module}:{name}", **settings
            )
            check_fleet(fleet_config(asked, tiny_pool), tiny_pool, tmp_path / "run")
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "not (2, D)" in refusal("Flat")
    assert "has no weights to train" in refusal("NoWeights")
    assert "lazy layers: their sizes must be given" in refusal("Lazy")
    assert "cannot be built as CLASS(channels=1)" in refusal("Block")
    assert "two stages trains its own encoder" in refusal("Narrow", preset="two-stage")
