"""Ablations: every variant is measured beside the cell it departs from, by fleets that are shared."""

from pathlib import Path

import pytest

from semishot.errors import InputError
from semishot.paper import ablations, reproduce
from semishot.paper import published as paper
from semishot.paper.requests import AblationRequest, TableRequest
from semishot.report.paper_tables import changed_from
from semishot.training.requests import Where
from support.presets import shorten


@pytest.fixture(scope="module", autouse=True)
def short_presets():
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch, "ren2018", "semishot")
        patch.setattr(ablations, "UPDATES", {})
        yield


def table1(root: Path, runs: Path) -> list[dict]:
    return reproduce.table("table1", TableRequest("glyphs", splits=2), Where(runs, root, "cpu"))


def ablated(root: Path, runs: Path, only: str = "") -> list[dict]:
    return ablations.ablations(AblationRequest("glyphs", 2, only), Where(runs, root, "cpu"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def records(tiny_root, runs):
    return ablated(tiny_root, runs)


def test_every_variant_and_the_cells_they_depart_from_are_measured(records):
    found = {(r["preset"], r["model"], r["variant"], r["distractors"]) for r in records}
    for variant in ablations.VARIANTS:
        for column in variant.columns:
            assert (variant.preset, variant.model, variant.name, column) in found
            assert (variant.preset, variant.model, "", column) in found
    keys = [
        (r["preset"], r["model"], r["variant"], r["distractors"], r["split_seed"]) for r in records
    ]
    assert len(keys) == len(set(keys))


def test_a_variant_changes_what_it_says_and_nothing_else(records):
    base = {changed_from(r): r for r in records if not r["variant"]}
    for each in records:
        if each["variant"]:
            own = base[changed_from(each)]
            changed = {k for k in ("options", "recipe", "train") if each[k] != own[k]}
            assert len(changed) == 1, each["variant"]
    by_name = {r["variant"]: r for r in records}
    assert by_name["mask applied twice"]["options"] == {"mask_power": 2}
    assert by_name["float32 (TF32) instead of bf16"]["recipe"]["precision"] == "tf32"
    assert by_name["trained 5-way"]["train"]["way"] == 5
    assert by_name["no augmentation"]["recipe"].get("augment", 0.0) == 0.0


def test_runs_that_others_left_stay_out_of_a_table(records, tiny_root, runs):
    """Ablations and single trainings leave runs of the same settings in the same folder."""
    table = table1(tiny_root, runs)
    keys = [(r["model"], r["distractors"], r["unlabeled"], r["split_seed"]) for r in table]
    assert len(keys) == len(set(keys)) == 2 * 2 * 9  # five rows, two columns, one cell shared
    assert not any(r["options"] for r in table)


def test_some_ablations_alone_by_the_fleets_that_table1_has_left(tiny_root, tmp_path):
    table1(tiny_root, tmp_path)
    before = set(tmp_path.rglob("model.safetensors"))
    some = ablated(tiny_root, tmp_path, only="mask")
    assert {(r["kind"], r["only"]) for r in some} == {("ablation", "mask")}
    assert {r["variant"] for r in some} == {"", "mask applied twice"}
    for path in set(tmp_path.rglob("model.safetensors")) - before:  # no other is trained
        assert "mask_power" in (path.parent / "config.json").read_text()
    with pytest.raises(
        InputError, match="no ablation's name contains 'masks'; there are: schedule"
    ):
        ablated(tiny_root, tmp_path, only="masks")


def test_photographs_have_ablations_under_their_own_protocol():
    cells = ablations.chosen_cells("mini-imagenet", "")
    columns = {h: [c for c in cells if c.tests[0].shape.distractors == h] for h in (0, 5)}
    assert {cell.model for cell in columns[5]} == set(paper.TRAINED)
    assert {cell.model for cell in columns[0]} == {ablations.MASKED}
    assert len({(cell.recipe, cell.train) for cell in cells}) == 2, "a fleet for each column"
    for cell in cells:
        assert cell.recipe.updates == 200_000
        assert bool(cell.options) == bool(cell.variant)
        assert cell.train.sizes == (5, 50 if cell.train.distractors else 25, 25)
