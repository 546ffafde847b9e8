"""Accuracy over unlabeled images (Figures 4 and 6), mask values (Figure 7): records -> sections."""

import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np

from semishot.errors import counted
from semishot.paper import published
from semishot.report.charts import LOOKS, Chart, Line, steps
from semishot.report.other_tables import departures
from semishot.report.paper_tables import COLUMNS, cells, rows_of, table_command, updates_of
from semishot.report.provenance import commands_for, prepared_as, provenance, split_seeds
from semishot.report.section import Grid, GridCell, Number, Section
from semishot.report.statistics import standard_error
from semishot.training.records import MaskRecord, Record, Separation

# Accuracy over unlabeled images


def curves_section(records: Sequence[Record]) -> Section:
    first, table = records[0], figure_of(records)
    name = published.FIGURE_UNLABELED
    return Section(
        f"{table.title}: {first['dataset']}, preset `{first['preset']}`, {first['updates']:,} updates",
        [curves_grid(table, records, shot) for shot in shots_of(records)],
        provenance(records),
        commands_for(records, table_command(name, table, records)),
        charts=unlabeled_charts(records),
    )


def figure_of(records: Sequence[Record]) -> published.PaperTable:
    return published.table(published.FIGURE_UNLABELED, records[0]["dataset"])


def shots_of(records: Sequence[Record]) -> list[int]:
    return sorted({r["shot"] for r in records})


def curves_grid(table: published.PaperTable, records: Sequence[Record], shot: int) -> Grid:
    """Accuracy at each M, for each model and column measured."""
    at = {m: cells(records, shot, m) for m in table.tests}
    rows: list[list[GridCell]] = []
    for model in rows_of(records):
        for h in published.DISTRACTORS:
            own = [at[m][model, h] for m in table.tests]
            if any(own):
                numbers = [ours.number() if ours else None for ours in own]
                rows.append([f"{published.title(model)}, {COLUMNS[h]}", *numbers])
    caption = f"{shot}-shot, by M unlabeled images per class at test"
    return Grid(caption, ["model", *(f"M = {m}" for m in table.tests)], rows)


def unlabeled_charts(records: Sequence[Record]) -> list[Chart]:
    """A chart for each shot and column, a line for each model with more than one point."""
    table, charts = figure_of(records), []
    for shot in shots_of(records):
        at = {m: cells(records, shot, m) for m in table.tests}
        for h in published.DISTRACTORS:
            lines = []
            for look, model in enumerate(rows_of(records)):
                own = {m: ours for m in table.tests if (ours := at[m][model, h])}
                points = [(float(m), ours.mean) for m, ours in own.items()]
                errors = [ours.error for ours in own.values()]
                if len(points) > 1:
                    lines.append(Line(published.title(model), look % LOOKS, points, errors))
            title = f"5-way {shot}-shot, {COLUMNS[h]}"
            if lines:
                x_label = "unlabeled images per class at test"
                charts.append(Chart(title, x_label, "accuracy (%)", lines))
    return charts


# Mask values

SCORES = {
    "mask": "mask",
    "cluster": "distractor cluster's probability",
    "distance": "distance to the nearest prototype",
}
"""Scores of an unlabeled image: the largest mask over the classes, a probability, a squared distance."""
MASK_NOTE = (
    "How well a score separates distractors from other unlabeled images; `within episode` compares images of "
    "one episode."
)


def masks_section(records: Sequence[MaskRecord]) -> Section:
    first = records[0]
    other = f", {first['updates']:,} updates" if updates_of(first) else ""
    return Section(
        f"Figure 7 ({first['dataset']}): mask values{other}{prepared_as(records)}",
        [masks_grid(records)],
        provenance(records),
        commands_for(records, masks_command(records)),
        [MASK_NOTE],
        [mask_findings(records)],
        [mask_chart(records)],
    )


def settings_of_runs(records: Sequence[MaskRecord]) -> list[str]:
    """The preset of each record, and if runs differ, its updates and changes."""
    more = [(r["preset"], f"{r['updates']:,} updates", departures(r)) for r in records]
    several = len(set(more)) > 1
    return [", ".join(filter(None, own)) if several else own[0] for own in more]


def masks_grid(records: Sequence[MaskRecord]) -> Grid:
    """Each score of each model over its splits, the masks first. Other settings are another row."""
    groups: dict[tuple[str, str, str], list[Separation]] = {}
    for score, (record, preset) in product(
        SCORES, zip(records, settings_of_runs(records), strict=True)
    ):
        if score in record["tells_distractors"]:
            key = preset, record["model"], score
            groups.setdefault(key, []).append(record["tells_distractors"][score])
    rows: list[list[GridCell]] = []
    for (preset, model, score), runs in groups.items():
        auroc, within = ([r[m] for r in runs] for m in ("auroc", "auroc_within_episode"))
        precision = [r["average_precision"] for r in runs]
        numbers = [over_splits(values) for values in (auroc, precision, within)]
        rows.append([preset, published.title(model), SCORES[score], len(runs), *numbers])
    caption = f"Mean ± standard error over splits of {records[0]['episodes']} episodes"
    header = ["preset", "model", "score", "splits", "AUROC", "average precision", "within episode"]
    return Grid(caption, header, rows)


def over_splits(values: Sequence[float]) -> Number:
    """The mean and its standard error, as fractions."""
    error = standard_error(values) if len(values) > 1 else None
    return Number(float(np.mean(values)), error, decimals=4)


def mask_counts(records: Sequence[MaskRecord]) -> dict[str, list[int]]:
    """Images of all runs together by mask value: of the episode's classes (`others`), and distractors."""
    histograms = [r["mask_histogram"] for r in records if "mask_histogram" in r]
    return {
        "others": np.sum([histogram["others"] for histogram in histograms], 0).tolist(),
        "distractors": np.sum([histogram["distractors"] for histogram in histograms], 0).tolist(),
    }


def counted_together(records: Sequence[MaskRecord]) -> str:
    """The runs whose images `mask_counts` counts: `10 runs of ren2018`."""
    settings = zip(records, settings_of_runs(records), strict=True)
    kinds = Counter(setting for record, setting in settings if "mask_histogram" in record)
    return " and ".join(f"{counted(runs, 'run')} of {setting}" for setting, runs in kinds.items())


def mask_findings(records: Sequence[MaskRecord]) -> str:
    """Whether the masks are bi-modal, as the paper says of its Figure 7, in one sentence."""
    counts = mask_counts(records)
    tenth = len(counts["others"]) // 10
    low = sum(counts["distractors"][:tenth]) / sum(counts["distractors"])
    high = sum(counts["others"][-tenth:]) / sum(counts["others"])
    coefficient = np.mean([r["bimodality"] for r in records if "bimodality" in r])
    return (
        f"Over {counted_together(records)}, {low:.1%} of the distractors have a mask below 0.1 and "
        f"{high:.1%} of the other images one above 0.9; Sarle's bimodality coefficient is {coefficient:.2f} "
        "(normal 0.33, uniform 0.56, two points 1)."
    )


def mask_chart(records: Sequence[MaskRecord]) -> Chart:
    """The mask values of distractors and of other images."""
    lines = []
    for name, label, look in (
        ("others", "of the episode's classes", 1),
        ("distractors", "distractors", 4),
    ):
        counts = mask_counts(records)[name]
        points = steps([100 * count / sum(counts) for count in counts])
        lines.append(Line(label, look, points, marked=False))
    return Chart(
        f"Mask values, {counted_together(records)}",
        "mask of an unlabeled image (largest over the classes)",
        "% of the images of its kind",
        lines,
        from_zero=True,
        filled=True,
    )


def masks_command(records: Sequence[MaskRecord]) -> str:
    first = records[0]
    which = ["--dataset", first["dataset"], "--preset", first["preset"]]
    which += ["--splits", str(len(split_seeds(records))), *updates_of(first)]
    which = ["--model", first["source"]] if "source" in first else which
    return f"semishot reproduce figure-masks {shlex.join(which)}"
