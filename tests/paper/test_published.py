"""The paper as data: its tables hold what the paper prints, its presets what it did."""

import itertools
import re
from pathlib import Path

import pytest

from semishot.errors import InputError
from semishot.paper import presets, published
from support.records import baseline

SOURCE = Path(__file__).parents[3] / "shared" / "paper.tex"
NUMBER = re.compile(r"(\d+\.\d+) \$\\pm\$ (\d+\.\d+)")


def printed_table(mark: str) -> dict[str, list[tuple[float, float]]]:
    """Row name -> (mean, error) per column, of the first table with this mark."""
    if not SOURCE.exists():
        pytest.skip(f"the paper's source is not at {SOURCE}")
    tables = re.findall(r"\\begin\{table\}.*?\\end\{table\}", SOURCE.read_text(), re.DOTALL)
    table = next(t for t in tables if mark in t)
    rows = {}
    for line in table.splitlines():
        if numbers := NUMBER.findall(line):
            name = line.split("&")[0].strip().replace("$", "").replace("+", " + ")
            rows[name] = [(float(mean), float(error)) for mean, error in numbers]
    return rows


PRINTED = {
    "table1": ("tab:omniglot", [(1, 0), (1, 5)]),
    "table2": ("tab:miniImageNet", [(1, 0), (5, 0), (1, 5), (5, 5)]),
    "table3": ("tab:tieredImageNet", [(1, 0), (5, 0), (1, 5), (5, 5)]),
}


@pytest.mark.parametrize("name", PRINTED)
def test_tables_are_what_the_paper_prints(name):
    label, columns = PRINTED[name]
    printed = printed_table(f"\\label{{{label}}}")
    assert list(printed) == list(published.MODELS.values())
    for model, row in published.MODELS.items():
        for (shot, h), numbers in zip(columns, printed[row], strict=True):
            cell = published.CELLS[published.TABLES[name].dataset, model, shot, h]
            assert (cell.mean, cell.error) == numbers


def test_table_5_is_what_the_paper_prints():
    columns = [
        ("omniglot", 1),
        *((f"{name}-imagenet", k) for name in ("mini", "tiered") for k in (1, 5)),
    ]
    names = {
        "1-NN": ["nearest_neighbor"],
        "LR": ["logistic_regression", "adam_logistic_regression"],
    }
    kinds = {
        "Pixel": ["pixels"],
        "CNN rnd": ["random", "authors_random"],
        "CNN pre": ["pretrained"],
    }
    for row, numbers in printed_table("CNN pre").items():
        classifier, _, kind = row.partition(" ")
        for column, printed in zip(columns, numbers, strict=True):
            for name, features in itertools.product(
                names.get(classifier, ()), kinds.get(kind.strip(), ())
            ):
                dataset, shot = column
                own = {"dataset": dataset, "model": name, "features": features, "shot": shot}
                cell = published.cell_of(baseline(**own))
                assert (cell.mean, cell.error) == printed


@pytest.mark.parametrize("name", ["ren2018", "ren2018-text"])
def test_r26_training_episodes_are_5_way_1_shot_with_5_unlabeled(name):
    preset = presets.preset(name)
    shape = preset.train
    assert (shape.way, shape.shot, shape.query, shape.unlabeled) == (5, 1, 1, 5)
    assert shape.shot + shape.query == 20 // 10  # the two labeled drawings of a character
    assert shape.distractors == 0
    assert preset.episode(shot=1, distractors=5).distractors == shape.way


@pytest.mark.parametrize("unlabeled", [5, 10])
def test_a18_test_episodes_use_all_twenty_drawings_of_a_class(unlabeled):
    shape = published.TABLES["table1"].tests[unlabeled]
    assert (shape.way, shape.shot, shape.unlabeled) == (5, 1, unlabeled)
    assert shape.shot + shape.query + shape.unlabeled == 20


@pytest.mark.parametrize("name", ["ren2018", "ren2018-text"])
def test_presets_of_the_paper_are_its_protocol(name):
    """Appendix D: Adam at 1e-3 for 20K updates, 64 filters of std 0.01, L2 5e-5, 10 % labels."""
    recipe = presets.preset(name).recipe
    assert recipe.learning_rate == 1e-3
    assert recipe.updates == 20_000
    assert (recipe.filters, recipe.init_std) == (64, 0.01)
    assert recipe.weight_decay == 5e-5
    assert recipe.labeled_fraction == 0.1
    assert recipe.steps == 1
    assert not recipe.cosine
    assert recipe.augment == 0


@pytest.mark.parametrize(
    ("dataset", "fraction"), [("mini-imagenet", 0.4), ("tiered-imagenet", 0.1)]
)
def test_r24_r29_photographs_have_their_own_protocol(dataset, fraction):
    """200K updates, halved from 50K every 25K as in the code; 5 queries in training, 20 at test."""
    preset = presets.preset("ren2018", dataset)
    assert preset.recipe.updates == 200_000
    assert preset.recipe.halvings == (50_000, 75_000, 100_000, 125_000, 150_000, 175_000)
    assert presets.preset("ren2018-text", dataset).recipe.halvings[:2] == (25_000, 50_000)
    assert preset.recipe.labeled_fraction == fraction
    assert preset.train.sizes == (5, 25, 25)
    assert presets.preset("two-stage", dataset).recipe.labeled_fraction == fraction
    (test,) = (
        t
        for table in published.TABLES.values()
        for t in table.tests.values()
        if table.dataset == dataset
    )
    assert (test.query, test.unlabeled) == (20, 20)


@pytest.mark.parametrize("dataset", ["omniglot", "mini-imagenet"])
def test_figure_4_keeps_the_queries_whatever_m(dataset):
    table = published.table("figure-unlabeled", dataset)
    assert list(table.tests) == [
        m for m in (0, 1, 2, 5, 10, 15, 20, 25) if dataset != "omniglot" or m <= 10
    ]
    assert len({test.query for test in table.tests.values()}) == 1
    assert all(test.unlabeled == m for m, test in table.tests.items())


@pytest.mark.parametrize("dataset", ["mini-imagenet", "tiered-imagenet"])
def test_a_preset_for_drawings_is_refused_for_photographs(dataset):
    assert presets.exists("semishot", "omniglot")
    assert not presets.exists("semishot", dataset)
    with pytest.raises(InputError, match=f"{dataset} has no preset 'semishot'.*, two-stage, demo$"):
        presets.preset("semishot", dataset)


def test_an_unknown_preset_lists_the_choices():
    with pytest.raises(InputError, match="unknown preset 'ren2017': choose from ren2018, ren2018-"):
        presets.preset("ren2017")
