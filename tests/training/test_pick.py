"""One run out of a fleet, and the one that is best on the validation classes."""

import json
import math

import numpy as np
import pytest
import torch

from semishot.commands.main import main
from semishot.data.episodes import EpisodeShape
from semishot.errors import InputError
from semishot.network.protonet import take_run
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.training.evaluation import evaluate, evaluate_folder
from semishot.training.fleets import load_model
from semishot.training.pick import lead_of, pick_best
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
    (together,) = evaluate([(fleet, SHAPE)], tiny_pool, "test", seeds, episodes=20)
    single = take_run(fleet, run)
    (alone,) = evaluate([(single, SHAPE)], tiny_pool, "test", seeds[run : run + 1], episodes=20)
    assert (together[run] == alone[0]).all()


def test_the_best_on_validation_is_saved_with_its_test_record(
    folder, tiny_pool, tiny_root, tmp_path
):
    _, fleet = load_model(folder, CPU)
    (val,) = evaluate([(fleet, SHAPE)], tiny_pool, "val", [m.split_seed for m in MEMBERS])
    where = Where(data_root=tiny_root, device="cpu")
    for model, runs in (("masked_soft_kmeans", [0, 2, 3]), (None, range(len(MEMBERS)))):
        out = tmp_path / f"{model}.safetensors"
        picked = pick_best(folder, out, PickRequest(model, SHAPE), where)
        best, *others = sorted(runs, key=lambda run: -val[run].mean())
        assert [each.run for each in picked.candidates] == [best, *others]
        assert picked.record["split_seed"] == MEMBERS[best].split_seed
        for each in picked.candidates:
            assert (each.model, each.split_seed) == (
                MEMBERS[each.run].model,
                MEMBERS[each.run].split_seed,
            )
            assert each.accuracy == val[each.run].mean()
            error = 1.96 * np.std(val[each.run]) / math.sqrt(val.shape[1])
            assert each.accuracy_ci95 == pytest.approx(error)
        assert picked.lead is not None
        assert picked.lead.difference == val[best].mean() - val[others[0]].mean()
        (again,) = evaluate_folder(EvaluationRequest(str(out), shape=SHAPE), where)
        assert again["accuracy"] == picked.record["accuracy"]


def test_the_error_of_a_lead_is_that_of_pairs_where_episodes_are_the_same():
    best, other = np.array([0.9, 0.5, 0.8, 0.4]), np.array([0.8, 0.4, 0.7, 0.3])
    paired, apart = lead_of(best, other, True), lead_of(best, other, False)
    assert paired.difference == apart.difference == pytest.approx(0.1)
    assert paired.ci95 == pytest.approx(0, abs=1e-12)
    variance = sum((x - best.mean()) ** 2 for x in best) / 4
    variance += sum((x - other.mean()) ** 2 for x in other) / 4
    assert apart.ci95 == pytest.approx(1.96 * math.sqrt(variance / 4))


def test_a_method_the_fleet_does_not_hold_is_named(folder, tiny_root, tmp_path):
    held = "masked_soft_kmeans, soft_kmeans, distractor_cluster"
    with pytest.raises(InputError, match=f"has no run of 'supervised': choose from {held}"):
        pick_best(
            folder,
            tmp_path / "x.safetensors",
            PickRequest("supervised", SHAPE),
            Where(data_root=tiny_root, device="cpu"),
        )


def test_the_command_prints_the_runs_and_how_sure_the_choice_is(
    folder, tiny_root, tmp_path, capsys
):
    out = tmp_path / "best.safetensors"
    shape = ["--way", "3", "--query", "4", "--distractors", "2", "--device", "cpu"]
    command = ["pick", str(folder), str(out), *shape, "--data-root", str(tiny_root)]
    main([*command, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert out.exists()
    assert len(found["candidates"]) == len(MEMBERS)
    assert found["val_accuracy"] == found["candidates"][0]["accuracy"]
    assert found["val_accuracy_ci95"] == found["candidates"][0]["accuracy_ci95"]
    main(command)
    header, _, first, *rest = capsys.readouterr().out.splitlines()
    assert header.split("  ")[0] == "method"
    best, error = 100 * found["val_accuracy"], 100 * found["val_accuracy_ci95"]
    assert f"{best:.2f} ± {error:.2f}" in first
    saved, lead = rest[-2:]
    tested = f"{100 * found['accuracy']:.2f} ± {100 * found['accuracy_ci95']:.2f} %"
    assert f"of split seed {found['split_seed']}. On the test classes: {tested}." in saved
    difference, error = 100 * found["lead"]["difference"], 100 * found["lead"]["ci95"]
    assert f"it is {difference:.2f} ± {error:.2f} points above the next" in lead
    assert lead.endswith("no more than chance." if difference <= error else ": more than chance.")
