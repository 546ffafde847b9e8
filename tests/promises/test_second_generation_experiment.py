"""experiments/second_generation: its scripts run one after the other on a tiny pool, and its log is whole."""

import json
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from semishot.data.pool import ImageClass, open_pool, save_pool
from semishot.paper import presets

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT / "experiments"), str(ROOT / "benchmarks")]
at_test, jobs, log, train, variants, views = (
    import_module(f"second_generation.{name}")
    for name in ("at_test", "jobs", "log", "train", "variants", "views")
)
TRAIN, VAL, IMAGES, SPLITS = 12, 10, 48, 2


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Noise of 16 x 16 pixels, and an experiment that is small enough for it."""
    small = {"TRAIN_CLASSES": TRAIN, "IMAGES": IMAGES, "FILTERS": 4, "DIM": 4}
    small |= {"DEVICE": torch.device("cpu"), "CUDA": False}
    for name, value in small.items():
        monkeypatch.setattr(train, name, value)
    held = ["train"] * TRAIN + ["val"] * VAL
    classes = [ImageClass(f"c{i}", "all", s, IMAGES * i, IMAGES) for i, s in enumerate(held)]
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (IMAGES * len(held), 3, 16, 16), dtype=np.uint8)
    save_pool(tmp_path / "pool", "mini-imagenet", images, classes, {})
    return tmp_path / "pool"


def tiny_jobs() -> list[dict[str, Any]]:
    """Each loss and each kind of job once."""
    first = {"base": {}, "t": {**jobs.TURNED, "color": 0.3, "centered": 1}, "joint": {"joint": 1}}
    student = {"other": 1, "soft_unlabeled": 1, "alpha": 0.5, "soft": "T"}
    episodes = {
        "walk": {"from": "t", "w_walk": 0.5},
        "head": {"from": "u", "w_head": 0.5, "one_shot": 0.5, "turning": 0.5},
    }
    shape = {"way": 3, "distractors": 2, "shot": 2, "query": 2, "unlabeled": 2}
    few = {"episodes": 4}
    return [
        jobs.trained("A", 1, 2, first, SPLITS, labeled=8, **few),
        jobs.taught("T", ["t"], SPLITS),
        jobs.trained("B", 1, 2, {"u": student}, SPLITS, labeled=8, **few),
        jobs.trained("C", 2, 2, episodes, SPLITS, depth=1, ema_too=True, **shape, **few),
    ]


def test_its_scripts_run_one_after_the_other(pool, tmp_path, monkeypatch, capsys):
    todo, out = tmp_path / "jobs", tmp_path / "out"
    todo.mkdir()
    out.mkdir()
    for place, job in enumerate(tiny_jobs()):
        (todo / f"{place:02}.json").write_text(json.dumps(job), encoding="utf-8")
    train.main(pool, todo, out, serve=False)
    assert "FAILED" not in capsys.readouterr().out
    train.main(pool, tmp_path / "nothing", out, serve=False)  # loads the weights it left

    views.main(pool, out / "C.pt", ["walk/0", "walk/1"], tmp_path, crops=True)
    files = [tmp_path / "walk_0.npz", tmp_path / "walk_1.npz"]
    at_test.main(pool, 4, tmp_path / "rules.json", files)
    rules = json.loads((tmp_path / "rules.json").read_text(encoding="utf-8"))["rules"]
    assert {"usual", "OSLO", "usual, corner crops too"} <= {row["rule"] for row in rules}

    pairs = [("turned copies and colors", "A t", "A base"), ("average", "C walk+ema", "C walk")]
    monkeypatch.setattr(log, "PAIRS", pairs)
    log.main(tmp_path / "log.json", [out])
    found = json.loads((tmp_path / "log.json").read_text(encoding="utf-8"))
    assert len(found["variants"]) == 3 + 1 + 2 * 2
    assert [row["change"] for row in found["worth"]] == [what for what, _, _ in pairs]


def test_a_job_that_fails_does_not_stop_the_next(pool, tmp_path, capsys):
    wrong = jobs.trained("C", 2, 1, {"x": {"from": "nowhere"}}, 1)
    (tmp_path / "0.json").write_text(json.dumps(wrong), encoding="utf-8")
    train.main(pool, tmp_path, tmp_path, serve=False)
    assert "FAILED 0.json: KeyError: 'nowhere/0'" in capsys.readouterr().out
    assert (tmp_path / "0.done").exists()


def test_the_log_holds_all_variants_and_its_means_follow_from_them(tmp_path):
    jobs.main(tmp_path)
    wanted = [json.loads(p.read_text(encoding="utf-8")) for p in tmp_path.glob("*/*.json")]
    wanted = [job for job in wanted if job["kind"] != "teach" and job.get("episodes") != 0]
    names = {(job["name"], r["id"].rsplit("/", 1)[0]) for job in wanted for r in job["runs"]}
    path = ROOT / "experiments" / "second_generation" / "log.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    held = {(v["job"], v["variant"]) for v in found["variants"]}
    assert names == {(job, name) for job, name in held if not name.endswith("+ema")}
    of = {f"{v['job']} {v['variant']}": v for v in found["variants"]}
    for v in found["variants"]:
        for column, values in v["accuracy"].items():
            assert v["mean"][column] == pytest.approx(np.mean(values), abs=0.011)
    for row in found["worth"]:
        one, other = of[row["variant"]]["accuracy"], of[row["compared_with"]]["accuracy"]
        for column in one:
            gains = [one[column][s] - other[column][s] for s in row["splits"]]
            assert row["difference"][column] == pytest.approx(np.mean(gains), abs=0.016)
            error = np.std(gains, ddof=1) / len(gains) ** 0.5
            assert row["error"][column] == pytest.approx(error, abs=0.016)


def test_variants_of_the_preset_are_trained_compared_and_found_again(
    pool, tmp_path, monkeypatch, capsys
):
    preset = presets.preset("two-stage", "mini-imagenet")
    recipe = replace(preset.recipe.with_updates(2), filters=3)
    assert recipe.first is not None
    recipe = replace(recipe, first=replace(recipe.first, batch=4))
    shape = replace(preset.train, way=3, distractors=2, shot=1, query=1, unlabeled=2)
    tiny = replace(preset, recipe=recipe, train=shape)
    monkeypatch.setitem(presets.FOR_DATASET, ("two-stage", "mini-imagenet"), tiny)
    monkeypatch.setattr(variants.datasets, "load", lambda *_: open_pool(pool))
    out, names = tmp_path / "out.json", ["the preset", "no rotation loss"]
    command = ["mini-imagenet", str(out), "--splits", "2", "--runs", str(tmp_path / "runs")]
    command += ["--episodes", "3", "--device", "cpu", "--only", *names]
    variants.main(command)
    text = capsys.readouterr().out
    assert "no rotation loss: trained in" in text
    assert "scale 12, threshold 0.25, 3 steps" in text
    found = json.loads(out.read_text(encoding="utf-8"))
    assert list(found["accuracy"]) == names
    columns = ["1-shot M20", "1-shot M20 D", "5-shot M20", "5-shot M20 D"]
    assert list(found["accuracy"]["the preset"]["the preset's"]) == columns
    monkeypatch.setattr(variants, "train_all", lambda *_: None)  # nothing is left to train
    variants.main(command)
    assert json.loads(out.read_text(encoding="utf-8"))["accuracy"] == found["accuracy"]


@pytest.mark.parametrize("dataset", ["mini-imagenet", "omniglot"])
def test_every_variant_differs_from_the_preset_in_what_its_name_says(dataset):
    preset = presets.preset("two-stage", dataset)
    held = variants.variants_of(preset, dataset)
    recipe = replace(preset.recipe, views=1)
    assert next(iter(held.values())) == variants.Variant(recipe, preset.train)
    assert len(set(map(str, held.values()))) == len(held)
    assert [variants.column_name(s) for s in variants.columns_of(dataset)][1].endswith(" D")


@pytest.mark.parametrize("dataset", ["mini-imagenet", "omniglot"])
def test_the_settings_of_the_preset_are_among_those_compared(dataset):
    preset = presets.preset("two-stage", dataset)
    settings = variants.settings_of(preset, dataset)
    for distractors in (0, 5):
        own = preset.at_test["cosine_kmeans", distractors]
        tried = [how[distractors] for how in settings.values() if distractors in how]
        assert settings["the preset's"][distractors] == own
        assert len(tried) > 3
        assert None in tried  # as learned


def test_known_images_belong_to_their_classes_and_distractors_to_none():
    weights = variants.Known(1)(torch.zeros(2, 6, 4), torch.zeros(2, 2, 4))
    assert weights.tolist() == [[[1, 0], [1, 0], [0, 1], [0, 1], [0, 0], [0, 0]]] * 2
