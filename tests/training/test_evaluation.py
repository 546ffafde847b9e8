"""Evaluation: embedding once changes nothing, and a record says everything a table needs."""

import json
import math
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from semishot.data import pool as image_pool
from semishot.data.episodes import EpisodeShape, Stream, sample_episodes
from semishot.data.pool import ImagePool
from semishot.data.splits import all_labeled
from semishot.errors import InputError
from semishot.network.protonet import ProtoNet, take_run
from semishot.system.devices import pick_device
from semishot.training import evaluation as evaluating
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.training.evaluation import (
    evaluate,
    evaluate_folder,
    lead_of,
    pick_best,
)
from semishot.training.requests import EvaluationRequest, PickRequest, Where
from support.commands import printed
from support.fleets import CPU, train_fleet

N, K, Q, M, H = 3, 2, 4, 5, 6
SHAPE = EpisodeShape(way=N, shot=K, query=Q, unlabeled=M, distractors=H)
SEEDS = (3, 8)
RECIPE = Recipe(updates=40, filters=5, init_std=0.1)


def trained(pool: ImagePool, model: str, folder: Path) -> tuple[FleetConfig, ProtoNet]:
    shape = EpisodeShape(way=3, unlabeled=0 if model == "supervised" else 3)
    members = tuple(Member(model, seed) for seed in SEEDS)
    config = FleetConfig(pool.name, pool.fingerprint, "tiny", RECIPE, shape, members)
    return config, train_fleet(config, pool, folder)


@pytest.fixture(scope="module")
def folders(tiny_pool, tmp_path_factory) -> dict[str, Path]:
    """Trained run folders by method."""
    root = tmp_path_factory.mktemp("trained")
    for model in ("supervised", "soft_kmeans", "masked_soft_kmeans"):
        trained(tiny_pool, model, root / model)
    return {path.name: path for path in root.iterdir()}


def literal_accuracy(embedded: np.ndarray, soft: bool) -> float:
    """One embedded episode (S + U + Q, D), nearest prototype (Eqs. 1, 2, 4) with plain loops."""
    support, unlabeled, query = np.split(embedded, [N * K, N * K + M * (N + H)])
    sums = [support[c * K : (c + 1) * K].sum(0) for c in range(N)]
    prototypes, weights = [s / K for s in sums], [float(K)] * N
    if soft:
        first = list(prototypes)
        for x in unlabeled:
            scores = [np.exp(-((x - p) ** 2).sum()) for p in first]
            for c in range(N):
                share = scores[c] / sum(scores)
                sums[c], weights[c] = sums[c] + share * x, weights[c] + share
        prototypes = [s / w for s, w in zip(sums, weights, strict=True)]
    right = 0
    for q, x in enumerate(query):
        distances = [((x - p) ** 2).sum() for p in prototypes]
        right += distances.index(min(distances)) == q // Q
    return right / (N * Q)


def records_of(folder: Path, refiner: str | None, episodes: int, root: Path) -> list[dict]:
    request = EvaluationRequest(str(folder), refiner, shape=SHAPE, episodes=episodes)
    return evaluate_folder(request, Where(data_root=root, device="cpu"))


@pytest.mark.parametrize(
    ("trained", "refiner", "named"),
    [
        ("supervised", None, "supervised"),
        ("soft_kmeans", None, "soft_kmeans"),
        ("masked_soft_kmeans", "none", "not_refined"),
        ("masked_soft_kmeans", "soft_kmeans", "soft_kmeans"),
    ],
)
def test_embedding_once_equals_embedding_each_episode(
    tiny_pool, tiny_root, folders, trained, refiner, named
):
    """As trained or with another method without parameters; raw images -> network -> loops, per run."""
    model = evaluating.load_model(folders[trained], CPU)[1].double()
    images = all_labeled(tiny_pool.of_split("test"))
    records = records_of(folders[trained], refiner, 25, tiny_root)
    for run, (seed, record) in enumerate(zip(SEEDS, records, strict=True)):
        assert record["model"] == named
        for e, found in enumerate(record["episode_accuracies"]):
            rows = sample_episodes(images, SHAPE, Stream(seed, "test"), e, 1).images[0]
            raw = torch.from_numpy(tiny_pool.images[rows])  # (B, 1, 28, 28)
            with torch.no_grad():
                embedded = model.embed(raw.expand(len(SEEDS), *raw.shape))[run].numpy()
            expected = literal_accuracy(embedded, soft=named == "soft_kmeans")
            assert found == pytest.approx(expected, abs=1e-5)


def test_transductive_refinement_has_the_queries_among_the_unlabeled(tiny_pool, folders):
    model = evaluating.load_model(folders["soft_kmeans"], CPU)[1].double()
    embedded = torch.randn(
        2, 7, SHAPE.images, 20, generator=torch.Generator().manual_seed(0)
    ).double()
    model.transductive = True
    found = take_run(model, 1).score(embedded[1:], SHAPE)
    support, unlabeled, query = embedded[1:].split(list(SHAPE.sizes), -2)
    with_queries = torch.cat([support, unlabeled, query, query], -2)
    more = replace(SHAPE, way=N, unlabeled=1, distractors=unlabeled.shape[-2] + query.shape[-2] - N)
    model.transductive = False
    assert torch.allclose(found, take_run(model, 1).score(with_queries, more))


def test_transductive_records_say_so_and_need_a_method(tiny_pool, folders, monkeypatch):
    monkeypatch.setattr(evaluating.datasets, "load", lambda *_: tiny_pool)
    ask = partial(EvaluationRequest, shape=SHAPE, episodes=9, transductive=True)
    records = evaluate_folder(ask(str(folders["soft_kmeans"])), Where(device="cpu"))
    assert [r["at_test"] for r in records] == [{"transductive": True}] * 2
    with pytest.raises(InputError, match="--transductive: nothing is refined"):
        evaluate_folder(ask(str(folders["supervised"])), Where(device="cpu"))
    evaluate_folder(ask(str(folders["supervised"]), "soft_kmeans"), Where(device="cpu"))


def test_several_shapes_at_once_are_each_shape_alone(tiny_pool, folders):
    model = evaluating.load_model(folders["soft_kmeans"], CPU)[1]
    other = EpisodeShape(way=4, query=7, unlabeled=2)
    one_by_one = [
        evaluate([(model, shape)], tiny_pool, "test", SEEDS, episodes=9)[0]
        for shape in (SHAPE, other)
    ]
    together = evaluate([(model, SHAPE), (model, other)], tiny_pool, "test", SEEDS, episodes=9)
    for one, same in zip(one_by_one, together, strict=True):
        assert np.array_equal(one, same)


def test_a_method_with_parameters_the_run_never_learned_is_refused(tiny_root, folders):
    with pytest.raises(InputError, match="train it with `semishot train --model masked_soft_km"):
        records_of(folders["supervised"], "kmeans-refine-mask", 5, tiny_root)


def test_a_pool_that_is_not_the_one_trained_on_is_refused(tiny_root, tiny_pool, folders, tmp_path):
    shutil.copytree(tiny_root, tmp_path / "other")
    image_pool.save_pool(
        tmp_path / "other" / "glyphs", "glyphs", 255 - tiny_pool.images, tiny_pool.classes, {}
    )
    with pytest.raises(InputError, match="fingerprint"):
        records_of(folders["supervised"], None, 5, tmp_path / "other")


def test_a_device_that_is_not_here_is_refused_with_the_reason():
    reason = "not compiled with CUDA|invalid device ordinal|No CUDA GPUs|no NVIDIA driver"
    with pytest.raises(InputError, match=f"no device 'cuda:99' here .*({reason}).*doctor. lists"):
        pick_device("cuda:99")


# The best run of a fleet

PICKED = EpisodeShape(way=3, shot=1, query=4, unlabeled=5, distractors=2)
MEMBERS = (
    Member("masked_soft_kmeans", 4),
    Member("soft_kmeans", 0),
    Member("masked_soft_kmeans", 1),
    Member("masked_soft_kmeans", 2),
    Member("distractor_cluster", 3),
)


@pytest.fixture(scope="module")
def folder(tiny_pool, tmp_path_factory):
    shape = EpisodeShape(way=3, unlabeled=3)
    config = FleetConfig("glyphs", tiny_pool.fingerprint, "tiny", RECIPE, shape, MEMBERS)
    train_fleet(config, tiny_pool, folder := tmp_path_factory.mktemp("fleet"))
    return folder


def test_the_best_on_validation_is_saved_with_its_test_record(
    folder, tiny_pool, tiny_root, tmp_path
):
    _, fleet = evaluating.load_model(folder, CPU)
    (val,) = evaluate([(fleet, PICKED)], tiny_pool, "val", [m.split_seed for m in MEMBERS])
    where = Where(data_root=tiny_root, device="cpu")
    for model, runs in (("masked_soft_kmeans", [0, 2, 3]), (None, range(len(MEMBERS)))):
        out = tmp_path / f"{model}.safetensors"
        picked = pick_best(folder, out, PickRequest(model, PICKED), where)
        best, *others = sorted(runs, key=lambda run: -val[run].mean())
        assert [each.run for each in picked.candidates] == [best, *others]
        assert picked.record["split_seed"] == MEMBERS[best].split_seed
        for each in picked.candidates:
            assert Member(each.model, each.split_seed) == MEMBERS[each.run]
            assert each.accuracy == val[each.run].mean()
            error = 1.96 * np.std(val[each.run]) / math.sqrt(val.shape[1])
            assert each.accuracy_ci95 == pytest.approx(error)
        assert picked.lead is not None
        assert picked.lead.difference == val[best].mean() - val[others[0]].mean()
        (again,) = evaluate_folder(EvaluationRequest(str(out), shape=PICKED), where)
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
    methods = "masked_soft_kmeans, soft_kmeans, distractor_cluster"
    with pytest.raises(InputError, match=f"has no run of 'supervised': choose from {methods}"):
        request, where = PickRequest("supervised", PICKED), Where(data_root=tiny_root, device="cpu")
        pick_best(folder, tmp_path / "x.safetensors", request, where)


def test_the_command_prints_the_runs_and_how_sure_the_choice_is(
    folder, tiny_root, tmp_path, capsys
):
    shape = ["--way", "3", "--query", "4", "--distractors", "2", "--device", "cpu"]
    command = ["pick", folder, tmp_path / "best.safetensors", *shape, "--data-root", tiny_root]
    found = json.loads(printed(capsys, *command, "--json"))
    assert len(found["candidates"]) == len(MEMBERS)
    header, _, first, *_, saved, lead = printed(capsys, *command).splitlines()
    assert header.split("  ")[0] == "method"
    best, error = 100 * found["val_accuracy"], 100 * found["val_accuracy_ci95"]
    assert f"{best:.2f} ± {error:.2f}" in first
    tested = f"{100 * found['accuracy']:.2f} ± {100 * found['accuracy_ci95']:.2f} %"
    assert f"of split seed {found['split_seed']}. On the test classes: {tested}." in saved
    difference, error = 100 * found["lead"]["difference"], 100 * found["lead"]["ci95"]
    assert f"it is {difference:.2f} ± {error:.2f} points above the next" in lead
    assert lead.endswith("no more than chance." if difference <= error else ": more than chance.")
