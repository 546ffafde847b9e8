"""Records: made with every field, refused by the name of a field, published once."""

import json
from pathlib import Path

import numpy as np
import pytest

from semishot.data.episodes import EpisodeShape
from semishot.errors import InputError
from semishot.training import records as rec
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.training.records import publish, read_records
from support.records import ablation, baseline, masks, record

PUBLISHED = Path(__file__).parents[2] / "results"
SHAPE = EpisodeShape(way=3, shot=2, query=4, unlabeled=5, distractors=1)
RECIPE = Recipe(updates=7, filters=4)
MEASUREMENT = rec.Measurement(SHAPE, "val", 1.23456, "a device")
ONE_OF_EACH = {"accuracy": record, "baseline": baseline, "masks": masks, "ablation": ablation}
each_kind = pytest.mark.parametrize("kind", ONE_OF_EACH)


def checked(content: object) -> dict:
    (row,) = rec.as_records([content], "it")
    return row


# Made


def test_a_record_for_each_run_has_its_mean_and_196_standard_errors_over_episodes():
    members = (Member("soft_kmeans", 3), Member("masked_soft_kmeans", 4, {"mask_power": 2}))
    config = FleetConfig("glyphs", "f", "tiny", RECIPE, EpisodeShape(), members)
    accuracies = np.array([[0.0, 0.5, 1.0, 0.75, 0.25], [1.0, 1.0, 0.9, 1.0, 1.0]])
    rows = rec.accuracy_records(config, None, MEASUREMENT, accuracies)
    for row, member, per_episode in zip(rows, members, accuracies.tolist(), strict=True):
        mean = sum(per_episode) / 5
        deviation = (sum((a - mean) ** 2 for a in per_episode) / 5) ** 0.5
        assert row["accuracy"] == pytest.approx(mean)
        assert row["accuracy_ci95"] == pytest.approx(1.96 * deviation / 5**0.5)
        assert row["episode_accuracies"] == per_episode
        assert row["episodes"] == 5
        assert (row["model"], row["split_seed"]) == (member.model, member.split_seed)
        assert row["options"] == member.options
        assert row["recipe"] == {"updates": 7, "filters": 4}
        assert row["train"] == EpisodeShape().as_dict()
        assert {name: row[name] for name in SHAPE.as_dict()} == SHAPE.as_dict()
        assert (row["split"], row["seconds"], row["device"]) == ("val", 1.235, "a device")
        assert checked(row) == row


# Checked


@each_kind
def test_every_kind_of_record_is_accepted_and_each_field_is_needed(kind):
    whole = ONE_OF_EACH[kind]()
    assert checked(whole) == whole
    optional = {"mask_histogram", "bimodality"}
    for name in whole.keys() - optional - {"kind"}:
        with pytest.raises(InputError, match=f"record 0: object missing required field `{name}`"):
            checked({k: v for k, v in whole.items() if k != name})
    assert checked({k: v for k, v in whole.items() if k not in optional})


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ({}, "kind must be one of accuracy, baseline, masks, ablation, not None"),
        (record(shot="one"), "shot: expected `int`, got `str`"),
        (record(accuracy=93.5), "accuracy: expected `float` <= 1.0"),
        (record(split="all"), "split: invalid enum value 'all'"),
        (record(episode_accuracies=[1, -1]), "episode_accuracies[1]: expected `float` >= 0.0"),
        (masks(tells_distractors=3), "tells_distractors: expected `object`, got `int`"),
        (record(extra=1), "unknown field extra"),
    ],
)
def test_what_is_not_a_record_is_refused_with_the_name_of_the_field(content, line):
    with pytest.raises(InputError) as refused:
        checked(content)
    assert str(refused.value) == f"it is not a result file: record 0: {line}"


# Read


def test_the_published_files_hold_records_of_their_kind():
    kinds = {"figure-masks": "masks", "table5": "baseline", "ablations": "ablation"}
    for path in [*PUBLISHED.glob("omniglot/[aft]*.json"), *PUBLISHED.glob("mini*/[aft]*.json")]:
        expected = next((kinds[name] for name in kinds if path.stem.startswith(name)), "accuracy")
        assert {r["kind"] for r in read_records(path)} == {expected}, path


def test_what_was_not_measured_yet_is_no_record_and_a_damaged_one_is_named(tmp_path):
    path = tmp_path / "result.json"
    assert rec.records_so_far(path) == []
    path.write_text(json.dumps([record()]))
    assert rec.records_so_far(path) == [record()]
    path.write_text("[")
    with pytest.raises(
        InputError, match="cannot read .*result.json .*; delete it to measure again"
    ):
        rec.records_so_far(path)


# Published


def test_a_second_measurement_replaces_the_first(tmp_path):
    path = tmp_path / "some.json"
    publish([record(episode_accuracies=[0.9]), record(split_seed=1)], path)
    again = [record(split_seed=1, accuracy=0.7), record(split_seed=2), masks(split_seed=1)]
    publish(again, path)
    assert read_records(path) == [record(), *again]
    lines = path.read_text(encoding="utf-8").splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("[", "]", 6)


def test_a_damaged_file_is_not_published_to(tmp_path):
    path = tmp_path / "some.json"
    path.write_text('[{"model": 3}]')
    with pytest.raises(InputError, match="record 0: kind must be one of"):
        publish([record()], path)
    assert json.loads(path.read_text()) == [{"model": 3}]
