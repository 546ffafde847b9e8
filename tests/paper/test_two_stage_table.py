"""Preset two-stage: one training for all columns, refined at test with settings of its own, and reported."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from semishot import refine
from semishot.data.episodes import EpisodeShape
from semishot.paper import presets, published, reproduce
from semishot.paper.reproduce import Site
from semishot.paper.requests import TableRequest
from semishot.report import other_tables, paper_tables, render
from semishot.report.sections import tables_and_figures
from semishot.training import classification
from semishot.training.evaluation import evaluate
from semishot.training.fleets import load_model

CPU = torch.device("cpu")
REAL = presets.PRESETS["two-stage"]
SMALL = replace(REAL.recipe.with_updates(4), filters=3, labeled_fraction=0.2)
TINY = replace(
    REAL,
    recipe=replace(SMALL, first=replace(SMALL.first, updates=3, batch=4)),
    train=EpisodeShape(way=3, shot=1, query=1, unlabeled=3, distractors=2),
)
EPISODES = 30


@pytest.fixture(autouse=True)
def tiny_preset(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "tiny", TINY)
    monkeypatch.setattr(reproduce, "EPISODES", EPISODES)
    few = partial(reproduce.measured, episodes=EPISODES)
    monkeypatch.setattr(reproduce, "measured", few)


def table1(pool, runs, **changes):
    site, request = Site(pool, runs, CPU), TableRequest(None, "tiny", 2, **changes)
    return reproduce.measured_fleets(reproduce.requested_fleets("table1", request, site), site)


@pytest.fixture
def records(tiny_pool, tmp_path):
    return table1(tiny_pool, tmp_path / "runs")


def folders(runs: Path) -> list[Path]:
    return sorted(path.parent for path in runs.rglob("config.json"))


def test_all_columns_come_from_one_training_beside_the_supervised_one(records, tmp_path, tiny_pool):
    supervised, refined = folders(tmp_path / "runs")
    assert "3way-1shot-M0-H0" in supervised.name
    assert "3way-1shot-M3-H2" in refined.name
    classifiers = tmp_path / "runs" / tiny_pool.name / classification.CLASSIFIERS
    assert len(list(classifiers.glob("*.safetensors"))) == 2  # one for each split, for both fleets
    cells = {(r["model"], r["distractors"], r["unlabeled"]) for r in records}
    expected = {("supervised", 0, m) for m in (5, 10)} | {
        (model, h, m)
        for model in ("semi_supervised_inference", "cosine_kmeans")
        for h in (0, 5)
        for m in (5, 10)
    }
    assert cells == expected


def test_a_record_says_how_its_prototypes_were_refined_at_test(records, tmp_path, tiny_pool):
    of = {0: {"steps": 10, "scale": 8.0, "cluster": False}}
    of[5] = {"steps": 3, "scale": 10.0, "threshold": 0.72}
    model = load_model(folders(tmp_path / "runs")[1], CPU)[1]
    for record in records:
        if record["model"] != "cosine_kmeans":
            assert "at_test" not in record
            continue
        assert record["at_test"] == of[record["distractors"]]
        options = {k: v for k, v in record["at_test"].items() if k != "steps"}
        refiner = refine.build("cosine_kmeans", runs=2, **options)
        refined = model.refined_by(refiner, record["at_test"]["steps"])
        shape = EpisodeShape(**{k: record[k] for k in ("way", "shot", "query", "unlabeled")})
        shape = replace(shape, distractors=record["distractors"])
        (found,) = evaluate([(refined, shape)], tiny_pool, "test", [0, 1], episodes=EPISODES)
        assert record["accuracy"] == pytest.approx(found[record["split_seed"]].mean())
        assert record["recipe"]["first"]["batch"] == 4


def test_other_settings_at_test_are_measured_without_training(
    records, tiny_pool, tmp_path, monkeypatch
):
    other = {("cosine_kmeans", h): {"steps": 3, "scale": 12.0} for h in (0, 5)}
    monkeypatch.setitem(presets.PRESETS, "tiny", replace(TINY, at_test=other))
    monkeypatch.setattr(classification, "classifier", lambda *_: pytest.fail("it trained"))
    again = table1(tiny_pool, tmp_path / "runs", models=("cosine_kmeans",))
    assert all(r["at_test"] == {"steps": 3, "scale": 12.0} for r in again)
    _, _, others = tables_and_figures({"a": records})  # no longer by the preset
    assert {r["model"] for _, r in others} == {"cosine_kmeans"}
    section = render.as_text(other_tables.others_section(others))
    assert "at test steps 10, at test scale 8.0" in section


def test_published_numbers_of_later_methods_stand_beside_ours(records):
    table = published.TABLES["table2"]
    of = {"dataset": "mini-imagenet", "query": 20, "unlabeled": 20, "accuracy": 0.5}
    shown = [
        {**r, **of, "model": model}
        for r in records
        if r["model"] == "cosine_kmeans" and r["unlabeled"] == 5
        for model in ("label_propagation", "prwn")
    ]
    section = paper_tables.table_section(table, shown)
    text = render.as_text(section)
    assert "52.78 ± 0.27 (TPN-semi)       -2.78" in text
    assert "50.43 ± 0.84 (TPN-semi)       -0.43" in text
    assert "50.89 (PRWN)" in text
    assert "agree" not in text  # the paper's cells alone


def test_the_preset_for_photographs_is_the_recipe_that_was_chosen():
    """`experiments/evidence/two_stage.json` has it in full."""
    path = Path(__file__).parents[2] / "experiments" / "evidence" / "two_stage.json"
    chosen = json.loads(path.read_text(encoding="utf-8"))["recipe"]
    preset = presets.preset("two-stage", "mini-imagenet")
    recipe, first = preset.recipe, preset.recipe.first
    one, two = chosen["stage 1"], chosen["stage 2"]
    assert first is not None
    ours = (first.updates, first.batch, first.copies, first.learning_rate, first.weight_decay)
    names = ("steps", "labeled_images", "rotations_of_each", "learning_rate", "weight_decay")
    assert ours == tuple(one[name] for name in names)
    assert recipe.of_classification(first).norm_momentum == one["batch_norm_momentum"]
    assert first.crop == one["crops_of_the_area"][0]
    names = {
        "episodes": "updates",
        "learning_rate": "learning_rate",
        "share_of_classes_turned": "turned",
        "share_with_distractors": "with_distractors",
        "batch_norm_momentum": "norm_momentum",
        "refinement_steps": "steps",
        "scales_from": "sphere",
        "mirror": "mirror",
    }
    assert {name: getattr(recipe, own) for name, own in names.items()}.items() <= two.items()
    shape = preset.train.as_dict() | {"distractor_classes": preset.train.distractors}
    assert all(two[name] == shape[name] for name in shape.keys() - {"distractors"})
    for h, name in ((0, "without distractors"), (5, "with distractors")):
        own = preset.at_test["cosine_kmeans", h]
        for setting in ("steps", "scale", "threshold"):
            assert own.get(setting) == chosen["at test"][name][setting]
