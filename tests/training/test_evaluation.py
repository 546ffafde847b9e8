"""Evaluation: embedding once changes nothing, and a record says everything a table needs."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from semishot.data import pool as image_pool
from semishot.data.episodes import EpisodeShape, Stream, sample_episodes
from semishot.data.pool import ImagePool
from semishot.data.splits import all_labeled
from semishot.errors import InputError
from semishot.network.protonet import ProtoNet
from semishot.system import progress
from semishot.system.devices import pick_device
from semishot.training import evaluation as evaluating
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.training.evaluation import (
    embed_classes,
    evaluate,
    evaluate_folder,
)
from semishot.training.fleet_table import row_of
from semishot.training.fleet_training import train
from semishot.training.requests import EvaluationRequest, Where

CPU = torch.device("cpu")
N, K, Q, M, H = 3, 2, 4, 5, 6
SHAPE = EpisodeShape(way=N, shot=K, query=Q, unlabeled=M, distractors=H)
SEEDS = (3, 8)
RECIPE = Recipe(updates=40, filters=5, init_std=0.1)

FIELDS = {
    *("dataset", "preset", "model", "way", "shot", "query", "unlabeled", "distractors"),
    *("split_seed", "episodes", "accuracy", "accuracy_ci95", "updates", "seconds", "device"),
    "versions",
}
"""DESIGN, "Files": a result has at least these."""


def trained(pool: ImagePool, model: str, folder: Path) -> tuple[FleetConfig, ProtoNet]:
    shape = EpisodeShape(way=3, unlabeled=0 if model == "supervised" else 3)
    members = tuple(Member(model, seed) for seed in SEEDS)
    config = FleetConfig(pool.name, pool.fingerprint, "tiny", RECIPE, shape, members)
    return config, train(config, pool, folder, CPU, row_of(config))


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


@pytest.mark.parametrize("method", ["supervised", "soft_kmeans"])
def test_embedding_once_equals_embedding_each_episode(tiny_pool, folders, method):
    """600-episode machinery against 25 literal ones: raw images -> network -> loops, per run."""
    model = evaluating.load_model(folders[method], CPU)[1].double()
    images = all_labeled(tiny_pool.of_split("test"))
    (found,) = evaluate([(model, SHAPE)], tiny_pool, "test", SEEDS, episodes=25)
    assert found.shape == (len(SEEDS), 25)
    for run, seed in enumerate(SEEDS):
        for e in range(25):
            rows = sample_episodes(images, SHAPE, Stream(seed, "test"), e, 1).images[0]
            raw = torch.from_numpy(tiny_pool.images[rows])  # (B, 1, 28, 28)
            with torch.no_grad():
                embedded = model.embed(raw.expand(len(SEEDS), *raw.shape))[run].numpy()
            expected = literal_accuracy(embedded, soft=method == "soft_kmeans")
            assert found[run, e] == pytest.approx(expected, abs=1e-12)


def test_masked_episodes_scored_together_equal_each_scored_alone(tiny_pool, folders):
    model = evaluating.load_model(folders["masked_soft_kmeans"], CPU)[1].double()
    images = all_labeled(tiny_pool.of_split("test"))
    (found,) = evaluate([(model, SHAPE)], tiny_pool, "test", SEEDS, episodes=12)
    for e in range(12):
        rows = [
            sample_episodes(images, SHAPE, Stream(seed, "test"), e, 1).images[0] for seed in SEEDS
        ]
        with torch.no_grad():
            embedded = model.embed(torch.from_numpy(tiny_pool.images[np.stack(rows)]))
            predicted = model.score(embedded, SHAPE).argmax(-1)  # (R, Q N)
        for run in range(len(SEEDS)):
            right = [int(p) == q // Q for q, p in enumerate(predicted[run])]
            assert found[run, e] == pytest.approx(np.mean(right), abs=1e-12)


def test_batches_of_images_and_episodes_change_nothing(tiny_pool, folders, monkeypatch):
    model = evaluating.load_model(folders["soft_kmeans"], CPU)[1].double()
    reference = evaluate([(model, SHAPE)], tiny_pool, "test", SEEDS, episodes=23)[0]
    monkeypatch.setattr(evaluating, "EMBED_BATCH", 17)
    monkeypatch.setattr(evaluating, "SCORE_BATCH", 5)
    assert np.array_equal(
        evaluate([(model, SHAPE)], tiny_pool, "test", SEEDS, episodes=23)[0], reference
    )


def test_testing_shows_its_progress(tiny_pool, folders, monkeypatch, capsys):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    model = evaluating.load_model(folders["soft_kmeans"], CPU)[1]
    evaluate([(model, SHAPE)], tiny_pool, "test", SEEDS, episodes=9)
    lines = capsys.readouterr().err.splitlines()
    assert "embedding the test classes: 100%" in lines[0]
    assert "testing: 100%" in lines[-1]
    evaluate([(model, SHAPE)], tiny_pool, "test", SEEDS, episodes=9, show=False)
    assert capsys.readouterr().err == ""


def test_several_shapes_share_one_embedding(tiny_pool, folders, monkeypatch):
    model = evaluating.load_model(folders["soft_kmeans"], CPU)[1]
    other = EpisodeShape(way=4, query=7, unlabeled=2)
    one_by_one = [
        evaluate([(model, shape)], tiny_pool, "test", SEEDS, episodes=9)[0]
        for shape in (SHAPE, other)
    ]
    calls = []
    monkeypatch.setattr(
        evaluating, "embed_classes", lambda *args: calls.append(1) or embed_classes(*args)
    )
    together = evaluate([(model, SHAPE), (model, other)], tiny_pool, "test", SEEDS, episodes=9)
    assert len(calls) == 1
    for one, same in zip(one_by_one, together, strict=True):
        assert np.array_equal(one, same)


def test_an_impossible_shape_is_refused_before_any_embedding(tiny_pool, folders, monkeypatch):
    model = evaluating.load_model(folders["supervised"], CPU)[1]
    monkeypatch.setattr(evaluating, "embed_classes", lambda *args: pytest.fail("it embedded"))
    with pytest.raises(InputError, match="8 classes but an episode needs 3 \\+ 6"):
        evaluate([(model, SHAPE)], tiny_pool, "val", SEEDS)


def records_of(folder: Path, refiner: str | None, episodes: int, root: Path) -> list[dict]:
    request = EvaluationRequest(str(folder), refiner, shape=SHAPE, episodes=episodes)
    return evaluate_folder(request, Where(data_root=root, device="cpu"))


def test_a_record_has_the_fields_of_the_design(tiny_root, folders):
    rows = records_of(folders["soft_kmeans"], None, 7, tiny_root)
    assert [row["split_seed"] for row in rows] == list(SEEDS)
    for row in rows:
        assert row.keys() >= FIELDS
        expected = dict(way=N, shot=K, query=Q, unlabeled=M, distractors=H, episodes=7)
        assert {key: row[key] for key in expected} == expected
        assert (row["dataset"], row["preset"], row["updates"]) == ("glyphs", "tiny", 40)
        assert row["model"] == "soft_kmeans"
        assert 0 <= row["accuracy"] <= 1
        assert row["versions"].keys() >= {"semishot", "torch", "numpy", "python"}
        assert len(row["episode_accuracies"]) == 7


def test_a_folder_is_evaluated_as_trained_or_with_another_method(tiny_pool, tiny_root, folders):
    """`none` is Eq. 1 on the run's embedding; soft_kmeans needs no parameters, so any run takes it."""

    def with_refiner(refiner: str | None) -> list[dict]:
        folder = folders["masked_soft_kmeans"]
        return records_of(folder, refiner, 20, tiny_root)

    model = evaluating.load_model(folders["masked_soft_kmeans"], CPU)[1]
    images = all_labeled(tiny_pool.of_split("test"))
    embedded = embed_classes(model, tiny_pool, images)
    for refiner, named in (("none", "not_refined"), ("soft_kmeans", "soft_kmeans")):
        rows = with_refiner(refiner)
        assert {row["model"] for row in rows} == {named}
        for run, (seed, row) in enumerate(zip(SEEDS, rows, strict=True)):
            drawn = (
                sample_episodes(images, SHAPE, Stream(seed, "test"), 0, 20).images - images.order[0]
            )
            each = [
                literal_accuracy(embedded[run, rows].numpy().astype(float), refiner != "none")
                for rows in drawn
            ]
            assert row["episode_accuracies"] == [round(a, 5) for a in each]
    assert {row["model"] for row in with_refiner(None)} == {"masked_soft_kmeans"}


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


@pytest.mark.parametrize("name", ["abacus", ""])
def test_what_is_no_device_is_refused(name):
    with pytest.raises(InputError, match=f"no device '{name}': it is auto, cpu, cuda or cuda:N"):
        pick_device(name)


def test_a_device_that_is_not_here_is_refused_with_the_reason():
    reason = "not compiled with CUDA|invalid device ordinal|No CUDA GPUs|no NVIDIA driver"
    with pytest.raises(InputError, match=f"no device 'cuda:99' here .*({reason}).*doctor. lists"):
        pick_device("cuda:99")
