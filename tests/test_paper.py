"""The paper as data: its tables hold what the paper prints, its presets what it did."""

import re
from pathlib import Path

import pytest

from semishot import paper, refine
from semishot.errors import InputError

SOURCE = Path(__file__).parents[2] / "shared" / "paper.tex"
NUMBER = re.compile(r"(\d+\.\d+) \$\\pm\$ (\d+\.\d+)")


def printed_table(label: str) -> dict[str, list[tuple[float, float]]]:
    """Row name -> (mean, error) per column, of the table with this LaTeX label."""
    if not SOURCE.exists():
        pytest.skip(f"the paper's source is not at {SOURCE}")
    tables = re.findall(r"\\begin\{table\}.*?\\end\{table\}", SOURCE.read_text(), re.DOTALL)
    (table,) = [t for t in tables if f"\\label{{{label}}}" in t]
    rows = {}
    for line in table.splitlines():
        if numbers := NUMBER.findall(line):
            name = line.split("&")[0].strip().replace("$", "").replace("+", " + ")
            rows[name] = [(float(mean), float(error)) for mean, error in numbers]
    return rows


def test_table1_is_what_the_paper_prints():
    printed = printed_table("tab:omniglot")
    assert list(printed) == list(paper.MODELS.values())
    for model, label in paper.MODELS.items():
        for h, numbers in zip(paper.TABLE1_DISTRACTORS, printed[label], strict=True):
            cell = paper.TABLE1[model, h]
            assert (cell.mean, cell.error) == numbers


def test_table1_has_five_rows_and_two_columns():
    assert len(paper.MODELS) == 5
    assert set(paper.TABLE1) == {(m, h) for m in paper.MODELS for h in (0, 5)}


def test_r19_the_supervised_model_has_one_number():
    assert paper.TABLE1["supervised", 0] == paper.TABLE1["supervised", 5]


def test_every_row_is_a_method_or_one_of_the_two_baselines():
    assert set(paper.TRAINED) <= set(refine.names())
    assert set(paper.MODELS) == {*paper.TRAINED, "supervised", "semi_supervised_inference"}


@pytest.mark.parametrize("name", ["ren2018", "ren2018-text"])
def test_r26_training_episodes_are_5_way_1_shot_with_5_unlabeled(name):
    preset = paper.preset(name)
    shape = preset.train
    assert (shape.way, shape.shot, shape.query, shape.unlabeled) == (5, 1, 1, 5)
    assert shape.shot + shape.query == 20 // 10  # the two labeled drawings of a character
    assert shape.distractors == 0
    assert preset.distractors == shape.way


@pytest.mark.parametrize("unlabeled", [5, 10])
def test_a18_test_episodes_use_all_twenty_drawings_of_a_class(unlabeled):
    shape = paper.TABLE1_TEST[unlabeled]
    assert (shape.way, shape.shot, shape.unlabeled) == (5, 1, unlabeled)
    assert shape.shot + shape.query + shape.unlabeled == 20


@pytest.mark.parametrize("name", ["ren2018", "ren2018-text"])
def test_presets_of_the_paper_are_its_protocol(name):
    """PROTOCOL 2.1, 2.8: Adam at 1e-3 for 20K updates, 64 filters of std 0.01, L2 5e-5, 10 % labels."""
    recipe = paper.preset(name).recipe
    assert recipe.learning_rate == 1e-3
    assert recipe.updates == 20_000
    assert (recipe.filters, recipe.init_std) == (64, 0.01)
    assert recipe.weight_decay == 5e-5
    assert recipe.labeled_fraction == 0.1
    assert recipe.steps == 1
    assert not recipe.cosine
    assert recipe.augment == 0


def test_every_preset_says_what_it_is_for():
    for name, preset in paper.PRESETS.items():
        assert preset.about
        assert paper.preset(name) == preset
        assert all(0 < h < preset.recipe.updates for h in preset.recipe.halvings)


def test_an_unknown_preset_lists_the_choices():
    with pytest.raises(InputError, match="unknown preset 'ren2019': choose from ren2018, ren2018-"):
        paper.preset("ren2019")
