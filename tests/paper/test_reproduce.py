"""A table: plan the fleets, run only what is missing, and find everything again."""

import itertools
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from semishot import refine
from semishot.data.pool import ImagePool
from semishot.errors import InputError
from semishot.network.protonet import ProtoNet
from semishot.paper import plan, presets, published, reproduce
from semishot.paper.reproduce import Site
from semishot.paper.requests import TableRequest
from semishot.training import evaluation, fleet_log, fleets, loop
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.training.requests import FleetRequest

CPU = torch.device("cpu")
TINY = Recipe(updates=3, filters=3, halvings=(2,), init_std=0.1)
"""Few updates: each multiplies what fleets of other sizes round differently by fifteen."""
PRESET = presets.Preset("a test's", TINY)
TABLE1 = published.TABLES["table1"]
TWO_SPLITS = TableRequest(preset="tiny", splits=2)


@pytest.fixture(autouse=True)
def tiny_preset(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "tiny", PRESET)


def table(name: str, pool: ImagePool, runs: Path, splits: int, **more) -> list[dict]:
    site = Site(pool, runs, CPU)
    request = TableRequest(preset="tiny", splits=splits, **more)
    return reproduce.measured_fleets(reproduce.requested_fleets(name, request, site), site)


table1 = partial(table, "table1")


@pytest.fixture(scope="module")
def finished(tiny_pool, tmp_path_factory) -> tuple[Path, list[dict]]:
    """Table 1 over two splits: its runs folder and its records."""
    runs = tmp_path_factory.mktemp("table1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(presets.PRESETS, "tiny", PRESET)
        return runs, table1(tiny_pool, runs, splits=2)


def key(record: dict) -> tuple:
    return (record["model"], record["distractors"], record["unlabeled"], record["split_seed"])


def snapshot(runs: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in runs.rglob("*") if path.is_file()}


def forbid_training(monkeypatch) -> None:
    monkeypatch.setattr(loop, "chunk_runner", lambda *_: pytest.fail("it trained"))


def members_begun(runs: Path) -> list[tuple[Member, ...]]:
    configs = runs.glob("*/*/*/config.json")
    return [FleetConfig.from_json(path.read_text()).members for path in configs]


def test_records_keep_600_episodes_and_how_they_were_trained(finished):
    for record in finished[1]:
        assert record["episodes"] == len(record["episode_accuracies"]) == 600
        assert (record["dataset"], record["preset"]) == ("glyphs", "tiny")
        assert record["updates"] == TINY.updates
        assert record["query"] == 19 - record["unlabeled"]
        if record["model"] in published.TRAINED:  # trained and tested in the same setting
            assert record["train"]["distractors"] == record["distractors"]


def test_r18_inference_uses_the_supervised_embedding(finished, tiny_pool):
    """Semi-Supervised Inference is the supervised run, refined with Soft k-Means at test alone."""
    runs, records = finished
    (folder,) = [
        path.parent
        for path in runs.glob("*/*/*/result.json")
        if any(r["model"] == "supervised" for r in json.loads(path.read_text()))
    ]
    shape = replace(published.TABLES["table1"].tests[5], distractors=5)
    model = fleets.load_model(folder, CPU)[1]
    as_soft = ProtoNet(model.encoder, refine.build("soft_kmeans"), 1)
    (expected,) = evaluation.evaluate([(as_soft, shape)], tiny_pool, "test", [0, 1])
    for seed in (0, 1):
        (found,) = [r for r in records if key(r) == ("semi_supervised_inference", 5, 5, seed)]
        assert found["accuracy"] == pytest.approx(expected[seed].mean())


def test_the_plan_is_one_supervised_fleet_and_one_fleet_per_column(finished):
    begun = sorted(members_begun(finished[0]), key=len)
    three = tuple(Member(model, seed) for model in published.TRAINED for seed in (0, 1))
    assert begun == [(Member("supervised", 0), Member("supervised", 1)), three, three]


def test_running_it_again_trains_and_measures_nothing(finished, tiny_pool, monkeypatch):
    runs, records = finished
    before = snapshot(runs)
    forbid_training(monkeypatch)
    monkeypatch.setattr(reproduce, "measured", lambda *_: pytest.fail("it evaluated"))
    assert table1(tiny_pool, runs, splits=2) == records
    assert snapshot(runs) == before


def test_more_splits_train_only_the_missing(tiny_pool, tmp_path):
    first = table1(tiny_pool, tmp_path, splits=1)
    before = snapshot(tmp_path)
    both = table1(tiny_pool, tmp_path, splits=2)
    after = snapshot(tmp_path)
    assert {path: after[path] for path in before} == before
    new = [m for m in members_begun(tmp_path) if all(member.split_seed == 1 for member in m)]
    assert sorted(map(len, new)) == [1, 3, 3]
    assert len(members_begun(tmp_path)) == 6
    assert [r for r in both if r["split_seed"] == 0] == first


def test_an_interrupted_fleet_is_resumed(finished, tiny_pool, tmp_path, monkeypatch):
    """Stop the last of the three fleets after a checkpoint: the next call trains only its rest."""
    monkeypatch.setattr(loop, "CHUNK", 1)
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
    chunks = itertools.count(1)
    log = fleet_log.append_log

    def stop_in_the_eighth(*args):
        if next(chunks) == 8:  # 3 chunks for each of the first two fleets, then 2
            raise KeyboardInterrupt
        return log(*args)

    with monkeypatch.context() as patch:
        patch.setattr(fleet_log, "append_log", stop_in_the_eighth)
        with pytest.raises(KeyboardInterrupt):
            table1(tiny_pool, tmp_path, splits=2)
    assert len(list(tmp_path.rglob("state.pt"))) == 1
    assert len(list(tmp_path.rglob("model.safetensors"))) == 2

    steps = []
    monkeypatch.setattr(fleet_log, "append_log", lambda folder, step, *more: steps.append(step))
    records = table1(tiny_pool, tmp_path, splits=2)
    assert steps == [2, 3]
    assert [r["episode_accuracies"] for r in records] == [
        r["episode_accuracies"] for r in finished[1]
    ]


def test_fleets_side_by_side_are_the_same_as_one_after_another(finished, tiny_pool, tmp_path):
    fleets = plan.table_fleets(TABLE1, TWO_SPLITS, tiny_pool, tmp_path)
    reproduce.train_planned(fleets, Site(tiny_pool, tmp_path, CPU), side_by_side=3)
    for fleet in fleets:
        one, other = (
            plan.run_folder(runs, fleet.config) / "model.safetensors"
            for runs in (finished[0], tmp_path)
        )
        assert one.read_bytes() == other.read_bytes()


def words(pool: ImagePool, model: str = "soft_kmeans", **more) -> FleetConfig:
    request = FleetRequest(
        model=model, preset="tiny", split_seeds=(4, 2), distractors=3, way=None, **more
    )
    return plan.fleet_config(request, pool)


def test_a_fleet_by_the_words_of_the_command_line(tiny_pool):
    config = words(tiny_pool, updates=12, filters=5, options={"a": "2", "b": "0.5", "c": "False"})
    assert config.recipe == replace(TINY, updates=12, halvings=(8,), filters=5)
    options = {"a": 2, "b": 0.5, "c": False}
    assert config.members == tuple(Member("soft_kmeans", seed, options) for seed in (4, 2))
    assert (config.dataset, config.data_fingerprint) == ("glyphs", tiny_pool.fingerprint)
    assert config.shape == replace(PRESET.train, distractors=3)
    with pytest.raises(InputError, match="option mask_power: 'twice' is neither a number nor"):
        words(tiny_pool, options={"mask_power": "twice"})


def test_the_authors_names_are_taken(tiny_pool):
    names = zip(
        ("kmeans-refine", "kmeans-refine-radius", "kmeans-refine-mask"),
        published.TRAINED,
        strict=True,
    )
    for authors, ours in [*names, ("basic", "supervised")]:
        assert words(tiny_pool, authors) == words(tiny_pool, ours)
        assert plan.chosen_rows([authors], {}) == [ours]


def test_a_table_can_be_filled_a_row_at_a_time(finished, tiny_pool, tmp_path, monkeypatch):
    """Rows trained one after the other are the rows of one go, and what is there can be shown."""
    whole = {key(r): r["accuracy"] for r in finished[1]}
    arguments = (tiny_pool, tmp_path, 2)
    with pytest.raises(InputError, match="nothing of table1 is finished below .*; drop --finished"):
        table1(*arguments, finished=True)
    masked = table1(*arguments, models=("masked_soft_kmeans",))
    assert {r["model"] for r in masked} == {"masked_soft_kmeans"}
    inference = table1(*arguments, models=("semi_supervised_inference",))
    assert {r["model"] for r in inference} == {"semi_supervised_inference"}
    with monkeypatch.context() as patch:
        forbid_training(patch)
        shown = table1(*arguments, finished=True)
    assert {r["model"] for r in shown} == {*list(published.MODELS)[:2], "masked_soft_kmeans"}
    rest = table1(*arguments)
    found = {key(r): r["accuracy"] for r in rest}
    assert found.keys() == whole.keys()
    assert found == pytest.approx(whole, abs=0.003)  # fleets of other sizes round differently


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"shots": (5,)}, "--shots 5 is not in this table: choose from 1"),
        ({"models": ("x",)}, "--models x is not a method: choose from supervised, semi_.*, oslo"),
    ],
)
def test_shots_that_a_table_has_not_and_unknown_models_are_refused(
    choice, message, tiny_pool, tmp_path
):
    with pytest.raises(InputError, match=message):
        table1(tiny_pool, tmp_path, 1, **choice)


def test_figure_4_is_measured_on_the_fleets_of_the_table(finished, tiny_pool, monkeypatch):
    forbid_training(monkeypatch)
    runs, records = finished
    found = table("figure-unlabeled", tiny_pool, runs, 2)
    assert {r["unlabeled"] for r in found} == {0, 1, 2, 5, 10}
    assert {r["query"] for r in found} == {9}
    at_10 = {key(r): r["accuracy"] for r in found if r["unlabeled"] == 10}
    assert at_10 == {key(r): r["accuracy"] for r in records if r["unlabeled"] == 10}
    nothing = [
        r for r in found if r["unlabeled"] == 0 and r["model"] == "semi_supervised_inference"
    ]
    supervised = {r["split_seed"]: r["accuracy"] for r in found if r["model"] == "supervised"}
    for record in nothing:  # no unlabeled image: the supervised model
        assert record["accuracy"] == supervised[record["split_seed"]]
