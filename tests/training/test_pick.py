"""One run out of a fleet, and the one that is best on the validation classes."""

import json

import pytest
import torch

from semishot.commands.main import main
from semishot.data.episodes import EpisodeShape
from semishot.errors import InputError
from semishot.network.protonet import take_run
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.training.evaluation import evaluate, evaluate_folder, pick_best
from semishot.training.fleets import load_model
from semishot.training.requests import EvaluationRequest, PickRequest, Where
from support.fleets import train_fleet

CPU = torch.device("cpu")
SHAPE = EpisodeShape(way=3, shot=1, query=4, unlabeled=5, distractors=2)
MEMBERS = (
    Member("masked_soft_kmeans", 4),
    Member("soft_kmeans", 0),
    Member("masked_soft_kmeans", 1),
    Member("masked_soft_kmeans", 2),
    Member("distractor_cluster", 3),
)


@pytest.fixture(scope="module")
def folder(tiny_pool, tmp_path_factory):
    recipe = Recipe(updates=30, filters=5, init_std=0.1)
    shape = EpisodeShape(way=3, unlabeled=3)
    config = FleetConfig("glyphs", tiny_pool.fingerprint, "tiny", recipe, shape, MEMBERS)
    where = tmp_path_factory.mktemp("fleet")
    train_fleet(config, tiny_pool, where)
    return where


@pytest.mark.parametrize("run", range(len(MEMBERS)))
def test_one_run_scores_alone_as_it_does_in_its_fleet(folder, tiny_pool, run):
    _, fleet = load_model(folder, CPU)
    seeds = [member.split_seed for member in MEMBERS]
    (together,) = evaluate(fleet, tiny_pool, "test", [SHAPE], seeds, episodes=20)
    single = take_run(fleet, run)
    (alone,) = evaluate(single, tiny_pool, "test", [SHAPE], seeds[run : run + 1], episodes=20)
    assert (together[run] == alone[0]).all()


def test_the_best_on_validation_is_saved_with_its_test_record(
    folder, tiny_pool, tiny_root, tmp_path
):
    _, fleet = load_model(folder, CPU)
    (val,) = evaluate(fleet, tiny_pool, "val", [SHAPE], [m.split_seed for m in MEMBERS])
    masked = {m.split_seed: val[r].mean() for r, m in enumerate(MEMBERS) if "masked" in m.model}
    out = tmp_path / "best.safetensors"
    record = pick_best(
        folder, out, PickRequest(shape=SHAPE), Where(data_root=tiny_root, device="cpu")
    )
    assert record["split_seed"] == max(masked, key=masked.__getitem__)
    (again,) = evaluate_folder(
        EvaluationRequest(str(out), shape=SHAPE), Where(data_root=tiny_root, device="cpu")
    )
    assert again["accuracy"] == record["accuracy"]


def test_a_method_the_fleet_does_not_hold_is_named(folder, tiny_root, tmp_path):
    with pytest.raises(InputError, match="has no run of 'supervised'"):
        pick_best(
            folder,
            tmp_path / "x.safetensors",
            PickRequest("supervised", SHAPE),
            Where(data_root=tiny_root, device="cpu"),
        )


def test_the_command_prints_the_record(folder, tiny_root, tmp_path, capsys):
    out = tmp_path / "best.safetensors"
    shape = ["--way", "3", "--query", "4", "--distractors", "2", "--device", "cpu"]
    main(["pick", str(folder), str(out), *shape, "--data-root", str(tiny_root)])
    assert json.loads(capsys.readouterr().out)["model"] == "masked_soft_kmeans"
    assert out.exists()
