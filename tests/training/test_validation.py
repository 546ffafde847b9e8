"""Validation while training: the accuracy it should be, on fixed episodes, changing nothing."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImagePool
from semishot.network.protonet import take_run
from semishot.training import fleet_training, validation
from semishot.training import loop as train_module
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.training.fleet_table import row_of
from semishot.training.fleet_training import train
from semishot.training.fleets import build_fleet
from semishot.training.validation import Validation, fixed_episodes
from support.fleets import CPU, fleet_config, train_fleet

SHAPE = EpisodeShape(way=3, shot=2, query=1, unlabeled=4, distractors=2)
RECIPE = Recipe(updates=30, filters=4, init_std=0.2, labeled_fraction=0.3)
MIXED = (
    Member("soft_kmeans", 1),
    Member("masked_soft_kmeans", 1),
    Member("masked_soft_kmeans", 6),
)


fleet = partial(fleet_config, recipe=RECIPE, shape=SHAPE, members=MIXED)


def episodes_of(config: FleetConfig, pool: ImagePool, between_lines: int = 10) -> Validation:
    found = fixed_episodes(config, pool, CPU, between_lines)
    assert found is not None
    return found


def stirred(config: FleetConfig) -> torch.nn.Module:
    """An untrained fleet whose parameters and moving averages are nothing special."""
    model, generator = build_fleet(config.members, config.recipe, 1), torch.Generator()
    for tensor in model.state_dict().values():
        tensor += 0.3 * torch.rand(tensor.shape, generator=generator.manual_seed(tensor.numel()))
    return model


def test_supervised_accuracy_is_that_of_the_nearest_prototype_in_plain_loops(tiny_pool):
    members = (Member("supervised", 1), Member("supervised", 4))
    config = fleet(tiny_pool, shape=replace(SHAPE, unlabeled=0, distractors=0), members=members)
    episodes, model = episodes_of(config, tiny_pool), stirred(config)
    n, k, q = 3, 2, validation.QUERY
    assert episodes.places.shape == (validation.EPISODES, n * k + n * q)
    seen = episodes.look(model)
    for run in range(2):
        alone, right = take_run(model, run), []
        with torch.no_grad():
            embedded = [alone.embed(image[None, None])[0, 0] for image in episodes.pixels]
        for e, places in enumerate(episodes.places):
            points = [embedded[place] for place in places]
            for c in range(n * q):
                prototypes = [(points[2 * j] + points[2 * j + 1]) / k for j in range(n)]
                distances = [float((points[n * k + c] - p).square().sum()) for p in prototypes]
                right.append(int(np.argmin(distances)) == c // q)
                if e == 0:
                    assert seen.predicted[run, c] == np.argmin(distances)
        assert seen.accuracy[run] == pytest.approx(np.mean(right))
    assert seen.masks == {}


def test_masks_are_those_of_eq_9_for_masked_runs_alone(tiny_pool):
    config = fleet(tiny_pool)
    episodes, model = episodes_of(config, tiny_pool), stirred(config)
    seen = episodes.look(model)
    assert set(seen.masks) == {1, 2}
    for run, masks in seen.masks.items():
        assert masks.shape == (validation.TOGETHER, (3 + 2) * 4)
        alone, e = take_run(model, run), 3
        with torch.no_grad():
            points = alone.embed(episodes.pixels[episodes.places[e]][None])[0].double()
        parameters = {name: p[0].double() for name, p in alone.refiner.named_parameters()}
        expected = torch.zeros(20, dtype=torch.float64)
        for c in range(3):
            prototype = (points[2 * c] + points[2 * c + 1]) / 2
            d = torch.stack([(points[6 + u] - prototype).square().sum() for u in range(20)])
            d = d / d.mean()  # Eq. 7
            z = (d - d.mean()) / d.var(correction=0).sqrt()
            stats = [d.min(), d.max(), d.var(correction=0), (z**3).mean(), (z**4).mean() - 3]
            hidden = torch.stack(stats) @ parameters["hidden_weight"] + parameters["hidden_bias"][0]
            out = hidden.tanh() @ parameters["output_weight"] + parameters["output_bias"][0]
            beta, gamma = out.exp()  # Eq. 8
            expected = expected.maximum(1 / (1 + (gamma * (d - beta)).exp()))  # Eq. 9
        assert torch.allclose(masks[e].double(), expected, atol=1e-4)


@pytest.mark.parametrize("training", [True, False])
def test_looking_leaves_the_model_and_random_numbers_as_they_were(tiny_pool, training):
    config = fleet(tiny_pool)
    model = stirred(config).train(training)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    numbers = torch.get_rng_state()
    episodes = episodes_of(config, tiny_pool)
    first = episodes.look(model)
    assert model.training == model.encoder.training == training
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(numbers, torch.get_rng_state())
    assert episodes.look(model).accuracy == first.accuracy


def test_episodes_are_few_images_of_validation_classes_the_same_for_every_fleet(tiny_pool):
    one = episodes_of(fleet(tiny_pool), tiny_pool)
    other = episodes_of(fleet(tiny_pool, members=MIXED[:1], recipe=Recipe()), tiny_pool)
    assert torch.equal(one.pixels, other.pixels)
    assert torch.equal(one.places, other.places)
    assert len(one.pixels) <= 8 * validation.IMAGES
    held = [c for c in tiny_pool.classes if c.split == "val"]
    known = np.concatenate([tiny_pool.images[c.start : c.start + c.count] for c in held])
    known = {image.tobytes() for image in known}
    assert all(image.numpy().tobytes() in known for image in one.pixels)


def test_validations_are_at_most_ten_and_a_small_share_of_the_images(tiny_pool):
    long = fleet(tiny_pool, recipe=replace(RECIPE, updates=20_000))
    assert episodes_of(long, tiny_pool, 100).every == 2000
    short = fleet(tiny_pool, recipe=replace(RECIPE, updates=400))
    episodes = episodes_of(short, tiny_pool, 10)
    assert episodes.every % 10 == 0
    embedded, trained = len(episodes.pixels), episodes.every * SHAPE.images
    assert embedded <= validation.SHARE * trained
    assert embedded > validation.SHARE * (trained - 10 * SHAPE.images)


def test_the_log_has_the_accuracy_every_so_often_and_at_the_end(tiny_pool, tmp_path, monkeypatch):
    monkeypatch.setattr(train_module, "CHUNK", 4)
    monkeypatch.setattr(validation, "SHARE", 100.0)
    monkeypatch.setattr(validation, "TIMES", 3)
    config, row = fleet(tiny_pool), row_of(fleet(tiny_pool))
    model = train(config, tiny_pool, tmp_path, CPU, row)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [4, 8, 12, 16, 20, 24, 28, 30]
    assert [line["step"] for line in lines if "accuracy" in line] == [12, 24, 30]
    at_last = episodes_of(config, tiny_pool).look(model).accuracy
    assert lines[-1]["accuracy"] == pytest.approx(at_last, abs=1e-5)
    assert row.accuracy == pytest.approx(np.mean(at_last))


def test_training_is_bit_identical_with_and_without_validation(tiny_pool, tmp_path, monkeypatch):
    monkeypatch.setattr(train_module, "CHUNK", 4)
    monkeypatch.setattr(validation, "SHARE", 100.0)
    train_fleet(fleet(tiny_pool), tiny_pool, tmp_path / "with")
    monkeypatch.setattr(fleet_training, "fixed_episodes", lambda *_: None)
    train_fleet(fleet(tiny_pool), tiny_pool, tmp_path / "without")
    with_it, without = (
        [json.loads(line) for line in (tmp_path / name / "log.jsonl").read_text().splitlines()]
        for name in ("with", "without")
    )
    assert sum("accuracy" in line for line in with_it) > 3
    assert [{k: v for k, v in line.items() if k != "accuracy"} for line in with_it] == without
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("with", "without")]
    assert models[0] == models[1]


def only(pool: ImagePool, keep) -> ImagePool:
    return replace(pool, classes=tuple(c for c in pool.classes if keep(c)))


@pytest.mark.parametrize(("names", "way", "distractors"), [(4, 2, 2), (3, 2, 1), (2, 2, 0)])
def test_with_few_validation_classes_episodes_have_fewer(tiny_pool, names, way, distractors):
    """A wide training, as of 16 + 16 classes beside miniImageNet's 16 for validation, is watched too."""
    pool = only(tiny_pool, lambda c: c.split != "val" or c.name < f"val{names:02d}")
    shape = episodes_of(fleet(pool), pool).shape
    assert shape == replace(SHAPE, query=5, way=way, distractors=distractors)


@pytest.mark.parametrize(
    ("keep", "reason"),
    [
        (lambda c: c.split != "val", "pool 'glyphs' has no 'val' classes; it holds train, test"),
        (
            lambda c: c.split != "val" or c.name < "val01",
            "the split has 1 classes but an episode needs 3 + 2 distractor classes; the training is not "
            "affected",
        ),
    ],
    ids=["none", "too few"],
)
def test_without_validation_classes_it_is_skipped_and_said(
    tiny_pool, keep, reason, tmp_path: Path, capsys
):
    pool = only(tiny_pool, keep)
    config = fleet(pool, recipe=replace(RECIPE, updates=2))
    train_fleet(config, pool, tmp_path)
    assert capsys.readouterr().err == (
        f"no accuracy on validation episodes while training: {reason}\n"
    )
    assert "accuracy" not in (tmp_path / "log.jsonl").read_text()
