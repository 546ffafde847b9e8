"""Tables from records: means, the standard error over splits, the paper's layout, sentences."""

import re
from itertools import product
from typing import Any

import pytest

from semishot.paper import published as paper
from semishot.report import paper_tables as tables
from semishot.report.mask_values import masks_charts
from semishot.report.other_tables import records_as_text
from semishot.report.paper_tables import curves_section
from semishot.report.render import as_text, shown
from semishot.report.tables import measured
from support.records import masks, record

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
    return as_text(tables.table_section(TABLE1, records))


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """The mean, and the deviation with ddof = 1 over the square root of the number."""
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, variance**0.5 / len(values) ** 0.5


def test_a20_standard_error_is_deviation_with_ddof_1_over_sqrt_of_splits():
    values = [0.91, 0.95, 0.96, 0.99]
    cell = measured([run("soft_kmeans", 0, 5, s, v) for s, v in enumerate(values)])
    mean, error = mean_and_error(values)
    assert cell.mean == pytest.approx(100 * mean)
    assert cell.error == pytest.approx(100 * error)
    assert cell.interval == pytest.approx(100 * (0.01 + 0.02 + 0.03 + 0.04) / 4)
    assert cell.splits == 4


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


def test_a_cell_with_fewer_splits_says_how_many():
    some = [r for r in all_records() if r["model"] != "soft_kmeans" or r["split_seed"] < 2]
    rows = [line for line in table_text(some).splitlines() if line.startswith("Soft k-Means   ")]
    assert [row.count("(2)") for row in rows] == [2, 2]


def test_the_command_of_a_table_that_lacks_classes_says_so():
    table = paper.TABLES["table3"]
    some = [run("soft_kmeans", 0, 20, 0, 0.5) | {"dataset": "tiered-imagenet"}]
    assert "--partial" not in tables.table_section(table, some).commands[0]
    section = tables.table_section(table, [r | {"preparation": "partial"} for r in some])
    assert section.commands[0].endswith(" --partial")
    assert "cannot be compared with the paper's" in section.finding


def test_a_figure_has_a_row_for_each_model_and_column_and_a_column_for_each_m():
    (grid,) = curves_section(all_records()).grids
    assert grid.header == ["model", "M = 0", "M = 1", "M = 2", "M = 5", "M = 10"]
    assert len(grid.rows) == 2 * len(paper.MODELS)
    keys = [(m, h) for m in paper.MODELS for h in (0, 5)]
    for (model, h), row in zip(keys, grid.rows, strict=True):
        column = 0 if model == "supervised" else h
        assert row[1:4] == [None, None, None]
        for m, cell in zip((5, 10), row[4:], strict=True):
            mean, error = mean_and_error([accuracy(model, column, m, s) for s in range(SPLITS)])
            assert shown(cell) == f"{100 * mean:.2f} ± {100 * error:.2f}"


def test_charts_have_the_means_and_errors_of_the_table_and_one_point_is_no_curve():
    some = [r for r in all_records() if r["model"] != "soft_kmeans" or r["unlabeled"] == 5]
    charts = curves_section(some).charts
    assert [chart.title for chart in charts] == [
        "5-way 1-shot, no distractors",
        "5-way 1-shot, w/ distractors",
    ]
    for chart in charts:
        drawn = [label for label in paper.MODELS.values() if label != "Soft k-Means"]
        assert [line.label for line in chart.lines] == drawn
    line = charts[1].lines[-1]
    means = [
        mean_and_error([accuracy("masked_soft_kmeans", 5, m, s) for s in (0, 1, 2)])
        for m in (5, 10)
    ]
    assert [y for _, y in line.points] == pytest.approx([100 * mean for mean, _ in means])
    assert line.errors == pytest.approx([100 * error for _, error in means])


def test_the_charts_of_masks_have_the_shares_of_each_kind_and_how_well_each_score_separates():
    values, scores = masks_charts([masks(), masks(split_seed=1)])
    others, distractors = values.lines
    assert [y for _, y in others.points] == [25, 25, 0, 0, 0, 0, 75, 75]
    assert [y for _, y in distractors.points] == [75, 75, 0, 0, 0, 0, 25, 25]
    assert [x for x, _ in others.points] == [0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1]
    assert scores.x_names == ("AUROC", "average precision", "within episode")
    assert [y for _, y in scores.lines[0].points] == [0.75, 0.5, 0.25]


def test_the_papers_numbers_stand_beside_omniglot_only():
    others = [r | {"dataset": "glyphs"} for r in all_records()]
    assert tables.table_grid(TABLE1, others, 1, 5).header.count("paper") == 0
    section = tables.table_section(TABLE1, others)
    assert section.title.startswith("The five models (glyphs, 5-way)")
    assert section.summary == []
    assert "agree" not in section.grids[0].caption


def scores(m: int) -> dict[tuple[str, int], float]:
    """z of every cell: both errors with ddof = 1, the paper's is over 10 splits with ddof = 0."""
    found = {}
    for model, h in product(paper.MODELS, (0, 5)):
        theirs = paper.CELLS["omniglot", model, 1, h]
        column = 0 if model == "supervised" else h
        mean, error = mean_and_error([accuracy(model, column, m, s) for s in range(SPLITS)])
        both = ((100 * error) ** 2 + theirs.error**2 * 10 / 9) ** 0.5
        found[model, h] = round((100 * mean - theirs.mean) / both, 1)
    return found


def near_the_paper(model: str, h: int, off: float) -> list[dict[str, Any]]:
    """Three splits around a number that is this far from the paper's."""
    mean = paper.CELLS["omniglot", model, 1, h].mean + off
    return [run(model, h, 5, s, (mean + 0.1 * (s - 1)) / 100) for s in range(SPLITS)]


def test_a_table_of_the_paper_says_how_it_compares_and_how_to_run_it_again():
    section = tables.table_section(TABLE1, all_records())
    for m, grid in zip((5, 10), section.grids, strict=True):
        ends = f"(z {min(scores(m).values()):+.1f} to {max(scores(m).values()):+.1f})"
        said = f"3 splits; 0 of 10 cells agree, 0 above, 10 below {ends}"
        assert grid.caption == f"1-shot, M = {m} unlabeled images per class, {said}"
    words = ["Table 1, omniglot", "ren2018", "20,000", "10 (of 10)", "0", "0", "10"]
    assert [shown(cell) for cell in section.summary] == words
    again = "semishot reproduce table1 --dataset omniglot --splits 3"
    assert section.commands == [again]


def test_a_cell_agrees_within_two_errors_and_is_above_or_below_beyond():
    """The errors are 0.058 and 0.105 points, 0.12 together."""
    records = [
        *near_the_paper("supervised", 0, 0.2),
        *near_the_paper("soft_kmeans", 0, 0.4),
        *near_the_paper("soft_kmeans", 5, -0.4),
    ]
    section = tables.table_section(TABLE1, records)
    assert "; 2 of 4 cells agree, 1 above, 1 below" in section.grids[0].caption
    (_, _, _, gap, *_), (*_, up, _, _, down) = section.grids[0].rows
    assert (shown(gap), gap.tone) == ("+0.20 (z +1.8)", "")
    assert (up.tone, down.tone) == ("above", "below")
    alone = tables.table_section(TABLE1, [records[0]])
    assert "agree" not in alone.grids[0].caption
    assert shown(alone.grids[0].rows[0][3]) == "+0.10"


def test_records_as_text_names_both_kinds_of_error():
    rows = [run("soft_kmeans", 0, 5, s, 0.8 + 0.1 * s) for s in range(2)]
    lines = records_as_text(rows).splitlines()
    assert "± 95 % over episodes" in lines[0]
    assert re.split(r"\s{2,}", lines[2]) == ["soft_kmeans", "0", "80.00", "1.00"]
    assert re.split(r"\s{2,}", lines[3]) == ["soft_kmeans", "1", "90.00", "2.00"]
    mean, error = mean_and_error([80.0, 90.0])
    assert lines[4] == f"soft_kmeans: mean {mean:.2f} ± {error:.2f} (standard error over 2 splits)"
