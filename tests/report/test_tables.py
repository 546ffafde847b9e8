"""Tables from records: means, the standard error over splits, the paper's layout, two sentences."""

import json
import re
from typing import Any

import pytest

from semishot.paper import published as paper
from semishot.report import tables

SPLITS = 3
TABLE1 = paper.TABLES["table1"]


def record(model: str, h: int, m: int, seed: int, accuracy: float, **more: Any) -> dict[str, Any]:
    return {
        "dataset": "omniglot",
        "model": model,
        "shot": 1,
        "distractors": h,
        "unlabeled": m,
        "split_seed": seed,
        "accuracy": accuracy,
        "accuracy_ci95": 0.01 * (seed + 1),
        "episodes": 600,
        "updates": 20_000,
        "recipe": {},
        **more,
    }


def accuracy(model: str, h: int, m: int, seed: int) -> float:
    """Another number for every place; Masked is the best with distractors, Cluster without."""
    row = list(paper.MODELS).index(model)
    best = {("masked_soft_kmeans", 5): 0.2, ("distractor_cluster", 0): 0.2}.get((model, h), 0.0)
    return 0.5 + best + 0.03 * row - 0.004 * h + 0.002 * m + 0.0007 * seed**2


def all_records() -> list[dict[str, Any]]:
    return [
        record(model, h, m, seed, accuracy(model, h, m, seed))
        for model in paper.MODELS
        for h in (0, 5)
        for m in (5, 10)
        for seed in range(SPLITS)
        if model != "supervised" or h == 0  # it is measured once
    ]


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """R27: the mean, and the population deviation over the square root of the number."""
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    return mean, variance**0.5 / len(values) ** 0.5


def test_a20_standard_error_is_population_deviation_over_sqrt_of_splits():
    values = [0.91, 0.95, 0.96, 0.99]
    cell = tables.cell([record("soft_kmeans", 0, 5, s, v) for s, v in enumerate(values)])
    mean, error = mean_and_error(values)
    assert cell.mean == pytest.approx(100 * mean)
    assert cell.error == pytest.approx(100 * error)
    assert cell.interval == pytest.approx(100 * (0.01 + 0.02 + 0.03 + 0.04) / 4)
    assert cell.splits == 4


def test_one_split_has_no_spread_and_none_has_no_cell():
    assert tables.cell([record("soft_kmeans", 0, 5, 0, 0.9)]).error == 0
    assert tables.cell([]) is None


@pytest.mark.parametrize("m", [5, 10])
def test_each_cell_is_the_mean_of_its_own_records(m):
    cells = tables.cells(all_records(), 1, m)
    assert set(cells) == {(model, h) for model, _, h in TABLE1.cells}
    for (model, h), cell in cells.items():
        column = 0 if model == "supervised" else h
        mean, error = mean_and_error([accuracy(model, column, m, s) for s in range(SPLITS)])
        assert cell.mean == pytest.approx(100 * mean)
        assert cell.error == pytest.approx(100 * error)
        assert cell.splits == SPLITS


def test_r19_the_supervised_row_is_shared_by_both_columns():
    cells = tables.cells(all_records(), 1, 5)
    assert cells["supervised", 0] == cells["supervised", 5]


def test_rows_and_columns_are_the_papers():
    header, rows = tables.table_rows(TABLE1, all_records(), 1, 5, beside_paper=False)
    assert header == ["model", "no distractors", "w/ distractors"]
    assert [row[0] for row in rows] == list(paper.MODELS.values())
    for model, row in zip(paper.MODELS, rows, strict=True):
        for h, text in zip((0, 5), row[1:], strict=True):
            column = 0 if model == "supervised" else h
            mean, error = mean_and_error([accuracy(model, column, 5, s) for s in range(SPLITS)])
            assert text == f"{100 * mean:.2f} ± {100 * error:.2f}"


def test_beside_the_paper_stand_its_number_and_the_difference():
    header, rows = tables.table_rows(TABLE1, all_records(), 1, 10, beside_paper=True)
    assert header[2:4] == header[5:7] == ["paper", "difference"]
    for model, row in zip(paper.MODELS, rows, strict=True):
        for h, (ours, theirs, difference) in zip((0, 5), (row[1:4], row[4:7]), strict=True):
            published = TABLE1.cells[model, 1, h]
            assert theirs == f"{published.mean:.2f} ± {published.error:.2f}"
            gap = float(ours.split()[0]) - published.mean
            assert float(difference) == pytest.approx(gap, abs=0.0101)
            assert difference[0] in "+-"


def test_missing_cells_are_dashes():
    only = [r for r in all_records() if r["model"] == "soft_kmeans" and r["distractors"] == 5]
    _, rows = tables.table_rows(TABLE1, only, 1, 5, beside_paper=True)
    by_model = dict(zip(paper.MODELS, rows, strict=True))
    assert by_model["supervised"][1::3] == ["-", "-"]
    assert by_model["supervised"][3::3] == ["-", "-"]
    assert by_model["soft_kmeans"][1] == "-"
    assert by_model["soft_kmeans"][4] != "-"


def test_a_cell_with_fewer_splits_says_how_many():
    some = [r for r in all_records() if r["model"] != "soft_kmeans" or r["split_seed"] < 2]
    text = tables.table_as_text(TABLE1, some)
    rows = [line for line in text.splitlines() if line.startswith("Soft k-Means   ")]
    assert [row.count("(2)") for row in rows] == [2, 2]
    assert "over 3 splits of 600 episodes; 20,000 updates, 64 filters. (n): over n splits" in text
    assert "(n)" not in tables.table_as_text(TABLE1, all_records())


def test_findings_are_left_out_where_nothing_was_measured():
    some = [r for r in all_records() if r["model"] == "masked_soft_kmeans"]
    assert tables.findings(some, 1, 5) == []
    assert tables.table_as_text(TABLE1, some).count("\n\n") == 3  # two titles, two tables


def test_a_figure_has_a_row_for_each_model_and_column_and_a_column_for_each_m():
    table = paper.table("figure-unlabeled", "omniglot")
    header, rows = tables.curve_rows(table, all_records(), 1)
    assert header == ["1-shot", "M = 0", "M = 1", "M = 2", "M = 5", "M = 10"]
    assert len(rows) == 2 * len(paper.MODELS)
    for (model, h), row in zip(((m, h) for m in paper.MODELS for h in (0, 5)), rows, strict=True):
        column = 0 if model == "supervised" else h
        assert row[1:4] == ["-", "-", "-"]
        for m, text in zip((5, 10), row[4:], strict=True):
            mean, error = mean_and_error([accuracy(model, column, m, s) for s in range(SPLITS)])
            assert text == f"{100 * mean:.2f} ± {100 * error:.2f}"
    assert "Masked Soft k-Means, w/ distractors" in tables.curves_as_text(table, all_records())


def test_text_has_names_to_the_left_and_numbers_to_the_right():
    text = tables.as_text(["model", "a", "long header"], [["x", "12.5", "1"], ["longer", "3", "-"]])
    assert text.splitlines() == [
        "model      a  long header",
        "------  ----  -----------",
        "x       12.5            1",
        "longer     3            -",
    ]


def test_markdown_has_a_rule_that_aligns_numbers_to_the_right():
    text = tables.as_markdown(["model", "a", "b"], [["x", "1", "2"]])
    assert text.splitlines() == ["| model | a | b |", "| --- | ---: | ---: |", "| x | 1 | 2 |"]


def test_table1_as_text_says_what_it_measured_once_for_each_m():
    text = tables.table_as_text(TABLE1, all_records())
    for m in (5, 10):
        assert f"omniglot, 5-way 1-shot, M = {m} unlabeled per class at test" in text
    assert text.count("mean ± standard error over 3 splits of 600 episodes") == 2
    assert text.count("Masked Soft k-Means") >= 2
    assert "difference" in text


def test_the_papers_numbers_stand_beside_omniglot_only():
    others = [r | {"dataset": "glyphs"} for r in all_records()]
    assert "paper" not in tables.table_as_text(TABLE1, others)


def test_findings_say_what_unlabeled_images_bought_and_distractors_cost():
    def mean(model: str, h: int) -> float:
        return 100 * mean_and_error([accuracy(model, h, 5, s) for s in range(SPLITS)])[0]

    bought, cost = tables.findings(all_records(), 1, 5)
    gain = mean("distractor_cluster", 0) - mean("supervised", 0)
    assert bought == (
        f"5 unlabeled images per class bought +{gain:.1f} points: Soft k-Means + Cluster reaches "
        f"{mean('distractor_cluster', 0):.1f} % where the supervised model has "
        f"{mean('supervised', 0):.1f} %."
    )
    fall = mean("soft_kmeans", 0) - mean("soft_kmeans", 5)
    assert cost == (
        f"With as many distractors in the pile, Soft k-Means falls by {fall:.1f} points to "
        f"{mean('soft_kmeans', 5):.1f} %, while Masked Soft k-Means keeps "
        f"{mean('masked_soft_kmeans', 5):.1f} %."
    )


def test_a_loss_is_called_a_loss():
    records = [r | {"accuracy": 0.9 if r["model"] == "supervised" else 0.8} for r in all_records()]
    assert "bought -10.0 points" in tables.findings(records, 1, 5)[0]


def test_json_has_every_cell_beside_the_papers_as_fractions():
    cells = json.loads(tables.table_as_json(TABLE1, all_records()))
    assert len(cells) == 10 * 2
    for cell in cells:
        model, h, m = cell["model"], cell["distractors"], cell["unlabeled"]
        column = 0 if model == "supervised" else h
        mean, error = mean_and_error([accuracy(model, column, m, s) for s in range(SPLITS)])
        assert cell["accuracy"] == pytest.approx(mean)
        assert cell["standard_error_over_splits"] == pytest.approx(error)
        assert cell["mean_ci95_over_episodes"] == pytest.approx(0.02)
        assert cell["splits"] == SPLITS
        assert 100 * cell["paper_accuracy"] == pytest.approx(TABLE1.cells[model, 1, h].mean)
        assert 100 * cell["paper_standard_error"] == pytest.approx(TABLE1.cells[model, 1, h].error)


def test_json_leaves_out_what_was_not_measured():
    some = [r for r in all_records() if r["model"] == "supervised" and r["unlabeled"] == 10]
    cells = json.loads(tables.table_as_json(TABLE1, some))
    assert [(c["distractors"], c["unlabeled"]) for c in cells] == [(0, 10), (5, 10)]


def test_records_as_text_names_both_kinds_of_error():
    rows = [record("soft_kmeans", 0, 5, s, 0.8 + 0.1 * s) for s in range(2)]
    lines = tables.records_as_text(rows).splitlines()
    assert "± 95 % over episodes" in lines[0]
    assert re.split(r"\s{2,}", lines[2]) == ["soft_kmeans", "0", "80.00", "1.00"]
    assert re.split(r"\s{2,}", lines[3]) == ["soft_kmeans", "1", "90.00", "2.00"]
    mean, error = mean_and_error([80.0, 90.0])
    assert lines[4] == f"soft_kmeans: mean {mean:.2f} ± {error:.2f} (standard error over 2 splits)"


def test_one_run_has_no_standard_error_over_splits():
    text = tables.records_as_text([record("soft_kmeans", 0, 5, 0, 0.8)])
    assert "standard error" not in text
