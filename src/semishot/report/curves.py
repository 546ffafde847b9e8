"""Accuracy over unlabeled images (Figures 4 and 6): records -> a section and its charts."""

from collections.abc import Sequence
from dataclasses import replace

from semishot.paper import published
from semishot.report.charts import LOOKS, Chart, Line
from semishot.report.image_preparations import prepare_command_of
from semishot.report.provenance import provenance, split_seeds
from semishot.report.section import Cell, Grid, Section
from semishot.report.tables import COLUMNS, cell_commands, cells, rows_of
from semishot.training.records import Record


def curves_section(records: Sequence[Record]) -> Section:
    first, table = records[0], figure_of(records)
    grids = [curves_grid(table, records, shot) for shot in shots_of(records)]
    heading = (
        f"{first['dataset']}, 5-way, by M unlabeled images per class at test. Accuracy in %,\n"
        f"mean ± standard error (ddof = 1) over {len(split_seeds(records))} splits of "
        f"{first['episodes']} episodes; {first['updates']:,} updates."
    )
    # one point, from a table, is not a curve
    curves = [
        replace(chart, lines=[line for line in chart.lines if len(line.points) > 1])
        for chart in unlabeled_charts(records)
    ]
    return Section(
        f"{table.title}: {first['dataset']}, preset `{first['preset']}`, {first['updates']:,} updates",
        [replace(grids[0], heading=heading), *grids[1:]],
        provenance(records),
        cell_commands(published.FIGURE_UNLABELED, table, records),
        prepare_command_of(records),
        charts=[chart for chart in curves if chart.lines],
        about_charts="Mean and standard error over splits (ddof = 1).",
    )


def figure_of(records: Sequence[Record]) -> published.Table:
    return published.table(published.FIGURE_UNLABELED, records[0]["dataset"])


def shots_of(records: Sequence[Record]) -> list[int]:
    return sorted({r["shot"] for r in records})


def curves_grid(table: published.Table, records: Sequence[Record], shot: int) -> Grid:
    """Accuracy at each M, for each model and column measured."""
    at = {m: cells(records, shot, m) for m in table.tests}
    rows: list[list[Cell]] = []
    for model in rows_of(records):
        for h in published.DISTRACTORS:
            found = [at[m][model, h] for m in table.tests]
            if any(found):
                numbers = [ours.number() if ours else None for ours in found]
                rows.append([f"{published.title(model)}, {COLUMNS[h]}", *numbers])
    return Grid(f"{shot}-shot", [f"{shot}-shot", *(f"M = {m}" for m in table.tests)], rows)


def unlabeled_charts(records: Sequence[Record]) -> list[Chart]:
    """A chart for each shot and column, a line for each model."""
    table, charts = figure_of(records), []
    for shot in shots_of(records):
        at = {m: cells(records, shot, m) for m in table.tests}
        for h in published.DISTRACTORS:
            lines = []
            for look, model in enumerate(rows_of(records)):
                found = {m: ours for m in table.tests if (ours := at[m][model, h])}
                points = [(m, ours.mean) for m, ours in found.items()]
                if points:
                    errors = [ours.error for ours in found.values()]
                    lines.append(Line(published.title(model), look % LOOKS, points, errors))
            charts.append(
                Chart(
                    f"5-way {shot}-shot, {COLUMNS[h]}",
                    "unlabeled images per class at test",
                    "accuracy (%)",
                    lines,
                    x_values=list(table.tests),
                )
            )
    return charts
