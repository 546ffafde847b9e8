"""experiments/strangers: the rule's equations recomputed with loops, what it promises, and the comparison."""

import io
import json
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "experiments"), str(ROOT / "benchmarks")]
graph, rule, scores, tasks, compare, features = (
    import_module(f"strangers.{name}")
    for name in ("graph", "rule", "scores", "tasks", "compare", "features")
)


def blobs(seed: int = 0, classes: int = 3, strangers: int = 15) -> tuple[NDArray, NDArray, NDArray]:
    """Features (M, D), labels with -1, truth with -1: two labels and 12 members a class, one strange kind."""
    rng = np.random.default_rng(seed)
    centers = 4 * rng.normal(size=(classes + 1, 20))
    truth = np.array([*np.repeat(np.arange(classes), 14), *[-1] * strangers])
    features = np.abs(centers[truth] + rng.normal(size=(len(truth), 20)))
    labels = np.full(len(truth), -1)
    for c in range(classes):
        labels[np.flatnonzero(truth == c)[:2]] = c
    return features, labels, truth


def test_propagation_solves_the_linear_system() -> None:
    features, labels, _ = blobs()
    g = graph.neighbour_graph(graph.directions(features, features.mean(0)))
    y = (labels[:, None] == np.arange(3)).astype(float)
    weights, n = g.weights.toarray(), len(labels)
    s = np.array(
        [
            [weights[i, j] / np.sqrt(weights[i].sum() * weights[j].sum()) for j in range(n)]
            for i in range(n)
        ]
    )
    exact = np.linalg.solve(np.eye(n) - graph.SPREAD * s, y)
    assert np.allclose(graph.propagate(g, y), exact, atol=graph.SPREAD**graph.ROUNDS * 10)


def test_cosines_leave_each_row_out_of_its_own_prototypes() -> None:
    rng = np.random.default_rng(1)
    rows, weights = graph.unit(rng.normal(size=(7, 4))), rng.random((7, 3))
    found = graph.cosines_without_itself(rows, weights)
    for i in range(7):
        for c in range(3):
            p = sum(weights[j, c] * rows[j] for j in range(7) if j != i)
            assert found[i, c] == pytest.approx(rows[i] @ p / np.linalg.norm(p))


def test_a_new_row_has_the_cosines_of_its_direction() -> None:
    features, labels, _ = blobs()
    model = rule.learn(features, labels)
    (_, found), *_ = rule.cosines_with(model.rows, features[:5] * 3, model.center)
    assert np.allclose(found, graph.directions(features[:5], model.center) @ model.rows.T)


@pytest.mark.parametrize("change", ["order", "scale", "rotation"])
def test_answers_do_not_depend_on(change: str) -> None:
    features, labels, _ = blobs()
    rng, places = np.random.default_rng(2), np.arange(len(labels))
    turned = features
    if change == "order":
        places = rng.permutation(len(labels))
    elif change == "scale":
        turned = features * 1e-4
    else:
        turned = features @ np.linalg.qr(rng.normal(size=(20, 20)))[0]
    model, answer = rule.learn_and_read(features, labels)
    other, again = rule.learn_and_read(turned[places], labels[places])
    assert np.allclose(again.scores, answer.scores[places])
    assert np.allclose(again.classes, answer.classes[places])
    assert scores.cutoff(other.members, 0.05) == pytest.approx(scores.cutoff(model.members, 0.05))


def test_strangers_score_below_members_and_named_ones_push_their_kind_down() -> None:
    features, labels, truth = blobs()
    _, answer = rule.learn_and_read(features, labels)
    pile = labels == -1
    member = answer.scores[pile & (truth >= 0)]
    assert np.median(answer.scores[truth < 0]) < np.quantile(member, 0.05)
    named = labels.copy()
    named[np.flatnonzero(truth < 0)[:3]] = rule.NAMED_STRANGER
    _, told = rule.learn_and_read(features, named)
    rest = np.flatnonzero(truth < 0)[3:]
    assert told.scores[rest].mean() < answer.scores[rest].mean()


def test_more_held_out_labels_outweigh_the_prior() -> None:
    held = np.random.default_rng(3).normal(8, 1, 2000)
    members = scores.members_by(held, prior=0.0, classes=5)
    assert members.mean == pytest.approx(held.mean(), abs=0.02)
    assert (held < scores.cutoff(members, 0.05)).mean() == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize(
    "labels", [[0], [0, 1], [0, 0, 1], [0, 1, -1], [0, -2, 1, -1, -1], [0, 0, -1]]
)
def test_smallest_tasks_have_finite_answers(labels: list[int]) -> None:
    features = np.random.default_rng(4).random((len(labels), 6))
    model, answer = rule.learn_and_read(features, np.array(labels))
    later = rule.read(model, features + 0.01)
    for found in (*answer, *later):
        assert np.isfinite(found).all()


def test_a_large_pile_is_read_off_landmarks() -> None:
    features, labels, truth = blobs(strangers=0)
    many = np.concatenate(
        [
            features,
            np.repeat(features, 60, 0) + 0.01 * np.random.default_rng(5).random((60 * 42, 20)),
        ]
    )
    given = np.concatenate([labels, np.full(60 * 42, -1)])
    model, answer = rule.learn_and_read(many, given)
    assert len(model.rows) == rule.LANDMARKS + 6
    assert (answer.classes.argmax(1)[42:] == np.repeat(truth, 60)).mean() > 0.95


def test_the_comparison_runs_on_small_features_and_resumes(tmp_path, monkeypatch, capsys) -> None:
    rng = np.random.default_rng(6)
    for name, classes in {"birds40": 40, "val": 16, "test": 20, "train": 64}.items():
        centers = 4 * rng.normal(size=(classes, 1, 12))
        rows = np.abs(centers + rng.normal(size=(classes, 25, 12))).astype(np.float32)
        name = name if name == "birds40" else f"mini-imagenet-{name}"
        np.save(tmp_path / f"{name}.npy", rows)
    cell = tasks.Cell("mini-imagenet", 5, 3, "few kinds")
    named = tasks.Cell("birds40", 5, 1, "few kinds", named=5)
    monkeypatch.setattr(compare, "cells", lambda: [cell])
    monkeypatch.setattr(compare, "named_cells", lambda: [named])
    monkeypatch.setattr(compare.torch, "set_num_threads", lambda count: None)
    out = tmp_path / "out.json"
    for more in ([], ["--named"], []):  # the third finds both cells in the file
        given = [str(tmp_path), "--tasks", "2", "--out", str(out), *more]
        monkeypatch.setattr(sys, "argv", ["compare", *given])
        compare.main()
    assert capsys.readouterr().out.count("\n") == len(compare.CONTENDERS) + 1
    found = json.loads(out.read_text(encoding="utf-8"))
    first, second = found["cells"]
    assert first["contenders"].keys() == compare.CONTENDERS.keys()
    assert first["contenders"]["ours"]["accuracy"] > 0.9
    assert second["contenders"].keys() == {"ours"}
    assert found["against_targets"]["members lost"]["cells"] == 1


class MeanColors:
    """In the place of the encoder for photographs."""

    def prepare(self, image: Image.Image) -> NDArray[np.uint8]:
        return np.asarray(image).transpose(2, 0, 1)

    def module(self, pixels: torch.Tensor) -> torch.Tensor:
        return pixels.float().mean((2, 3))


def test_features_are_made_from_zip_files(tmp_path, monkeypatch) -> None:
    written = io.BytesIO()
    Image.new("RGB", (4, 4), (10, 20, 30)).save(written, "png")
    (tmp_path / "birds").mkdir()
    (tmp_path / "mini-imagenet").mkdir()
    with zipfile.ZipFile(tmp_path / "birds" / "birds40.zip", "w") as archive:
        for name in ("a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg", "notes.txt"):
            archive.writestr(name, written.getvalue())
    for split in ("train", "val", "test"):
        with zipfile.ZipFile(tmp_path / "mini-imagenet" / f"images-{split}.zip", "w") as archive:
            archive.writestr(f"{split}/x.jpg", written.getvalue())
        rows = "filename,label\nx.jpg,n01\n"
        (tmp_path / "mini-imagenet" / f"{split}.csv").write_text(rows, encoding="utf-8")
    monkeypatch.setattr(features, "open_encoder", lambda name: MeanColors())
    monkeypatch.setattr(features.torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(sys, "argv", ["features", str(tmp_path), str(tmp_path / "out")])
    for _ in range(2):  # the second time all files are there
        features.main()
    birds = np.load(tmp_path / "out" / "birds40.npy")
    assert birds.shape == (2, 2, 3)
    assert birds[1, 1].tolist() == [10, 20, 30]
    assert np.load(tmp_path / "out" / "mini-imagenet-val.npy").shape == (1, 1, 3)


@pytest.mark.parametrize("half", ["choose", "report", "named-report"])
def test_the_stored_results_hold_all_cells(half: str) -> None:
    path = ROOT / "experiments" / "strangers" / "results" / f"{half}.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    wanted = tasks.named_cells() if half == "named-report" else tasks.cells()
    held = {tuple(cell[name] for name in compare.CELL) for cell in found["cells"]}
    assert held == {tuple(vars(cell).values()) for cell in wanted}
    assert compare.against_targets(compare.as_rows(found["cells"])) == found["against_targets"]
