"""Accuracy over unlabeled images (Figures 4 and 6), mask values (Figure 7): records -> sections."""

from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np

from semishot.errors import counted
from semishot.paper import published
from semishot.report.charts import LOOKS, Chart, Line, steps
from semishot.report.other_tables import departures
from semishot.report.paper_tables import COLUMNS, cells, rows_of, splits_and_updates, table_flags
from semishot.report.provenance import section_of
from semishot.report.tables import Grid, GridCell, Number, Section, standard_error
from semishot.training.records import MaskRecord, Record

# Accuracy over unlabeled images


def curves_section(records: Sequence[Record]) -> Section:
    first, name = records[0], published.FIGURE_UNLABELED
    table = published.table(name, first["dataset"])
    shots = sorted({r["shot"] for r in records})
    return section_of(
        records,
        f"{table.title}: {first['dataset']}, preset `{first['preset']}`, {first['updates']:,} updates",
        [curves_grid(table, records, shot) for shot in shots],
        [name, *table_flags(table, records)],
        charts=[chart for shot in shots for chart in curves_charts(table, records, shot)],
    )


def curves_grid(table: published.PaperTable, records: Sequence[Record], shot: int) -> Grid:
    """Accuracy at each M, for each model and column measured."""
    at = {m: cells(records, shot, m) for m in table.tests}
    rows: list[list[GridCell]] = []
    for model, h in product(rows_of(records), published.DISTRACTORS):
        own = [at[m][model, h] for m in table.tests]
        if any(own):
            numbers = [ours.number() if ours else None for ours in own]
            rows.append([f"{published.title(model)}, {COLUMNS[h]}", *numbers])
    caption = f"{shot}-shot, by M unlabeled images per class"
    return Grid(caption, ["model", *(f"M = {m}" for m in table.tests)], rows)


def curves_charts(table: published.PaperTable, records: Sequence[Record], shot: int) -> list[Chart]:
    """A chart for each column, a line for each model with more than one point."""
    at, charts = {m: cells(records, shot, m) for m in table.tests}, []
    for h in published.DISTRACTORS:
        lines = []
        for look, model in enumerate(rows_of(records)):
            own = {m: ours for m in table.tests if (ours := at[m][model, h])}
            points = [(float(m), ours.mean) for m, ours in own.items()]
            errors = [ours.error for ours in own.values()]
            if len(points) > 1:
                lines.append(Line(published.title(model), look % LOOKS, points, errors))
        title, x_label = f"5-way {shot}-shot, {COLUMNS[h]}", "unlabeled images per class at test"
        charts += [Chart(title, x_label, "accuracy (%)", lines)] if lines else []
    return charts


# Mask values

SCORES = {
    "mask": "mask",
    "cluster": "distractor cluster's probability",
    "distance": "distance to the nearest prototype",
}
"""Scores of an unlabeled image: the largest mask over the classes, a probability, a squared distance."""
SEPARATIONS = {
    "auroc": "AUROC",
    "average_precision": "average precision",
    "auroc_within_episode": "within episode",
}
MASK_NOTE = (
    "How well a score separates distractors from other unlabeled images; `within episode` compares images of "
    "one episode."
)


def masks_section(records: Sequence[MaskRecord]) -> Section:
    first, flags = records[0], splits_and_updates(records)
    other = f", {first['updates']:,} updates" if "--updates" in flags else ""
    which = ["--preset", first["preset"], *flags]
    return section_of(
        records,
        f"Figure 7 ({first['dataset']}): mask values{other}",
        [masks_grid(records)],
        ["figure-masks", *(["--model", first["source"]] if "source" in first else which)],
        MASK_NOTE,
        mask_finding(records),
        masks_charts(records),
    )


def settings_of_runs(records: Sequence[MaskRecord]) -> list[str]:
    """The preset of each record, and if runs differ, its updates and changes."""
    more = [(r["preset"], f"{r['updates']:,} updates", departures(r)) for r in records]
    several = len(set(more)) > 1
    return [", ".join(filter(None, own)) if several else own[0] for own in more]


def masks_grid(records: Sequence[MaskRecord]) -> Grid:
    """Each score of each model over its splits, the masks first. Other settings are another row."""
    groups: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    own = zip(records, settings_of_runs(records), strict=True)
    for score, (record, preset) in product(SCORES, own):
        if score in record["tells_distractors"]:
            key = preset, published.title(record["model"]), SCORES[score]
            groups.setdefault(key, []).append({**record["tells_distractors"][score]})
    rows: list[list[GridCell]] = [
        [*key, len(runs), *(over_splits([run[name] for run in runs]) for name in SEPARATIONS)]
        for key, runs in groups.items()
    ]
    caption = f"Mean ± standard error over splits of {records[0]['episodes']} episodes"
    return Grid(caption, ["preset", "model", "score", "splits", *SEPARATIONS.values()], rows)


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


def mask_finding(records: Sequence[MaskRecord]) -> str:
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


def masks_charts(records: Sequence[MaskRecord]) -> list[Chart]:
    """The mask values of distractors and of other images, and how well each score separates them."""
    counts, labels = mask_counts(records), ("of the episode's classes", "distractors")
    lines = [
        Line(label, look, steps([100 * count / sum(own) for count in own]), marked=False)
        for label, look, own in zip(labels, (1, 4), counts.values(), strict=True)
    ]
    histogram = Chart(
        f"Mask values, {counted_together(records)}",
        "mask of an unlabeled image (largest over the classes)",
        "% of the images of its kind",
        lines,
        from_zero=True,
        filled=True,
    )
    scores = []
    for look, (_, model, score, _, *numbers) in enumerate(masks_grid(records).rows):
        own = [number for number in numbers if isinstance(number, Number)]
        points = [(x + 1.0, number.value) for x, number in enumerate(own)]
        errors = [number.error or 0.0 for number in own]
        scores.append(Line(f"{score} ({model})", look % LOOKS, points, errors))
    names = tuple(SEPARATIONS.values())
    return [
        histogram,
        Chart("Telling distractors from others", "", "1: all are told", scores, x_names=names),
    ]
