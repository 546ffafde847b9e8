"""Tables from records: means, the standard error over splits, the paper's layout, sentences."""

import json
import re
from typing import Any

import pytest

from semishot.paper import published as paper
from semishot.report import tables
from semishot.report.curves import curves_grid, curves_section, unlabeled_charts
from semishot.report.rendering import as_text, shown
from support.records import record

SPLITS = 3
TABLE1 = paper.TABLES["table1"]


def run(model: str, h: int, m: int, seed: int, accuracy: float) -> dict[str, Any]:
    return record(
        model=model,
        distractors=h,
        unlabeled=m,
        split_seed=seed,
        accuracy=accuracy,
        accuracy_ci95=0.01 * (seed + 1),
    )


def accuracy(model: str, h: int, m: int, seed: int) -> float:
    """Another number for every place; Masked is the best with distractors, Cluster without."""
    row = list(paper.MODELS).index(model)
    best = {("masked_soft_kmeans", 5): 0.2, ("distractor_cluster", 0): 0.2}.get((model, h), 0.0)
    return 0.5 + best + 0.03 * row - 0.004 * h + 0.002 * m + 0.0007 * seed**2


def all_records() -> list[dict[str, Any]]:
    return [
        run(model, h, m, seed, accuracy(model, h, m, seed))
        for model in paper.MODELS
        for h in (0, 5)
        for m in (5, 10)
        for seed in range(SPLITS)
        if model != "supervised" or h == 0  # it is measured once
    ]


def table_text(records: list[dict[str, Any]]) -> str:
    return as_text(tables.table_section("table1", TABLE1, records))


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """R27: the mean, and the population deviation over the square root of the number."""
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    return mean, variance**0.5 / len(values) ** 0.5


def test_a20_standard_error_is_population_deviation_over_sqrt_of_splits():
    values = [0.91, 0.95, 0.96, 0.99]
    cell = tables.cell([run("soft_kmeans", 0, 5, s, v) for s, v in enumerate(values)])
    mean, error = mean_and_error(values)
    assert cell.mean == pytest.approx(100 * mean)
    assert cell.error == pytest.approx(100 * error)
    assert cell.interval == pytest.approx(100 * (0.01 + 0.02 + 0.03 + 0.04) / 4)
    assert cell.splits == 4


def test_one_split_has_no_spread_and_none_has_no_cell():
    assert tables.cell([run("soft_kmeans", 0, 5, 0, 0.9)]).error == 0
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
    glyphs = [r | {"dataset": "glyphs"} for r in all_records()]
    grid = tables.table_grid(TABLE1, glyphs, 1, 5)
    assert grid.header == ["model", "no distractors", "w/ distractors"]
    assert [row[0] for row in grid.rows] == list(paper.MODELS.values())
    for model, row in zip(paper.MODELS, grid.rows, strict=True):
        for h, cell in zip((0, 5), row[1:], strict=True):
            column = 0 if model == "supervised" else h
            mean, error = mean_and_error([accuracy(model, column, 5, s) for s in range(SPLITS)])
            assert cell.value == pytest.approx(100 * mean)
            assert shown(cell) == f"{100 * mean:.2f} ± {100 * error:.2f}"


def test_beside_the_paper_stand_its_number_and_the_difference():
    grid = tables.table_grid(TABLE1, all_records(), 1, 10)
    assert grid.header[2:4] == grid.header[5:7] == ["paper", "difference"]
    for model, row in zip(paper.MODELS, grid.rows, strict=True):
        for h, (ours, theirs, difference) in zip((0, 5), (row[1:4], row[4:7]), strict=True):
            published = TABLE1.cells[model, 1, h]
            assert (theirs.value, theirs.error) == (published.mean, published.error)
            assert difference.value == pytest.approx(ours.value - published.mean)
            assert difference.form == "difference"


def test_missing_cells_are_dashes():
    only = [r for r in all_records() if r["model"] == "soft_kmeans" and r["distractors"] == 5]
    grid = tables.table_grid(TABLE1, only, 1, 5)
    by_model = dict(zip(paper.MODELS, grid.rows, strict=True))
    assert by_model["supervised"][1::3] == [None, None]
    assert by_model["supervised"][3::3] == [None, None]
    assert by_model["soft_kmeans"][1] is None
    assert by_model["soft_kmeans"][4] is not None


def test_a_cell_with_fewer_splits_says_how_many():
    some = [r for r in all_records() if r["model"] != "soft_kmeans" or r["split_seed"] < 2]
    text = table_text(some)
    rows = [line for line in text.splitlines() if line.startswith("Soft k-Means   ")]
    assert [row.count("(2)") for row in rows] == [2, 2]
    assert "over 3 splits of 600 episodes; 20,000 updates, 64 filters. (n): over n splits" in text
    assert "(n)" not in table_text(all_records())


def test_findings_are_left_out_where_nothing_was_measured():
    some = [r for r in all_records() if r["model"] == "masked_soft_kmeans"]
    assert tables.findings(some, 1, 5) == []
    assert table_text(some).count("\n\n") == 3  # two titles, two tables


def test_a_figure_has_a_row_for_each_model_and_column_and_a_column_for_each_m():
    table = paper.table("figure-unlabeled", "omniglot")
    grid = curves_grid(table, all_records(), 1)
    assert grid.header == ["1-shot", "M = 0", "M = 1", "M = 2", "M = 5", "M = 10"]
    assert len(grid.rows) == 2 * len(paper.MODELS)
    keys = [(m, h) for m in paper.MODELS for h in (0, 5)]
    for (model, h), row in zip(keys, grid.rows, strict=True):
        column = 0 if model == "supervised" else h
        assert row[1:4] == [None, None, None]
        for m, cell in zip((5, 10), row[4:], strict=True):
            mean, error = mean_and_error([accuracy(model, column, m, s) for s in range(SPLITS)])
            assert shown(cell) == f"{100 * mean:.2f} ± {100 * error:.2f}"
    text = as_text(curves_section(all_records()))
    assert text.startswith(
        "omniglot, 5-way, by M unlabeled images per class at test. Accuracy in %,\n"
    )
    assert "mean ± standard error over 3 splits of 600 episodes; 20,000 updates.\n\n" in text
    assert "Masked Soft k-Means, w/ distractors" in text


def test_both_renderers_of_a_figure_draw_the_same_lines_and_one_point_is_no_curve():
    """matplotlib draws what `unlabeled_charts` has, a page those of more than one point."""
    some = [r for r in all_records() if r["model"] != "soft_kmeans" or r["unlabeled"] == 5]
    drawn, shown_on_page = unlabeled_charts(some), curves_section(some).charts
    assert [chart.title for chart in drawn] == [chart.title for chart in shown_on_page]
    for chart, on_page in zip(drawn, shown_on_page, strict=True):
        assert chart.x_values == [0, 1, 2, 5, 10]
        assert [line.label for line in chart.lines] == list(paper.MODELS.values())
        assert on_page.lines == [line for line in chart.lines if line.label != "Soft k-Means"]
    line = drawn[1].lines[4]
    means = [
        mean_and_error([accuracy("masked_soft_kmeans", 5, m, s) for s in (0, 1, 2)])
        for m in (5, 10)
    ]
    assert [y for _, y in line.points] == pytest.approx([100 * mean for mean, _ in means])
    assert line.errors == pytest.approx([100 * error for _, error in means])


def test_table1_as_text_says_what_it_measured_once_for_each_m():
    text = table_text(all_records())
    for m in (5, 10):
        assert f"omniglot, 5-way 1-shot, M = {m} unlabeled per class at test" in text
    assert text.count("mean ± standard error over 3 splits of 600 episodes") == 2
    assert text.count("Masked Soft k-Means") >= 2
    assert "difference" in text


def test_the_papers_numbers_stand_beside_omniglot_only():
    others = [r | {"dataset": "glyphs"} for r in all_records()]
    assert "paper" not in table_text(others)
    section = tables.table_section("table1", TABLE1, others)
    assert section.title.startswith("The five models (glyphs, 5-way)")
    assert (section.comparison, section.summary) == ("", [])
    assert section.conclusions == section.findings != []


def test_a_table_of_the_paper_says_how_it_compares_and_what_was_not_run():
    section = tables.table_section("table1", TABLE1, all_records())
    best = {
        key: max(tables.cells(all_records(), 1, m)[key[0], key[2]].mean for m in (5, 10))
        - cell.mean
        for key, cell in TABLE1.cells.items()
    }
    above = sum(gap >= 0 for gap in best.values())
    assert section.comparison == (
        f"At the better M, {above} of the 10 cells measured are at or above the paper's; the lowest "
        f"difference is {min(best.values()):+.2f}."
    )
    assert section.conclusions == [section.comparison]
    words = ["Table 1, omniglot", "ren2018", "20,000", "10 (of 10)", str(above)]
    assert [shown(cell) for cell in section.summary] == [*words, f"{min(best.values()):+.2f}"]
    assert section.is_complete
    some = [r for r in all_records() if r["model"] != "soft_kmeans"]
    assert not tables.table_section("table1", TABLE1, some).is_complete
    assert section.commands[0] == (
        "all of it",
        "semishot reproduce table1 --dataset omniglot --preset ren2018 --splits 3",
    )
    assert len(section.commands) == 1 + len(paper.MODELS)


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
    rows = [run("soft_kmeans", 0, 5, s, 0.8 + 0.1 * s) for s in range(2)]
    lines = tables.records_as_text(rows).splitlines()
    assert "± 95 % over episodes" in lines[0]
    assert re.split(r"\s{2,}", lines[2]) == ["soft_kmeans", "0", "80.00", "1.00"]
    assert re.split(r"\s{2,}", lines[3]) == ["soft_kmeans", "1", "90.00", "2.00"]
    mean, error = mean_and_error([80.0, 90.0])
    assert lines[4] == f"soft_kmeans: mean {mean:.2f} ± {error:.2f} (standard error over 2 splits)"


def test_one_run_has_no_standard_error_over_splits():
    text = tables.records_as_text([run("soft_kmeans", 0, 5, 0, 0.8)])
    assert "standard error" not in text
