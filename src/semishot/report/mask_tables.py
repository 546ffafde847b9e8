"""Mask values, and how well scores separate distractors (Figure 7): records -> a section and its chart."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from semishot.errors import counted
from semishot.paper.published import title
from semishot.report.charts import Chart, Steps
from semishot.report.grouping import departures
from semishot.report.image_preparations import data_root_flag, prepare_command_of, prepared_as
from semishot.report.provenance import provenance, split_seeds
from semishot.report.section import Grid, Number, Section
from semishot.report.statistics import standard_error
from semishot.report.tables import updates_of
from semishot.training.records import MaskRecord, Separation

SCORES = {
    "mask": "mask",
    "cluster": "distractor cluster's probability",
    "distance": "distance to the nearest prototype",
}
"""Scores of an unlabeled image: the largest mask over the classes, a probability, a squared distance."""
NOTE = (
    "How well a score separates distractors from the other unlabeled images of all test episodes; "
    "`within episode` compares a distractor only with images of its own episode. Mean ± standard "
    "error over splits."
)


def masks_section(records: Sequence[MaskRecord]) -> Section:
    first = records[0]
    other = f", {first['updates']:,} updates" if updates_of(first) else ""
    measured = f"mask values, and which score finds distractors{other}{prepared_as(records)}"
    return Section(
        f"Figure 7 ({first['dataset']}): {measured}",
        [masks_grid(records)],
        provenance(records),
        [("all of it", masks_command(records))],
        prepare_command_of(records),
        about=[NOTE],
        findings=[mask_findings(records)],
        charts=[mask_chart(records)],
    )


@dataclass(frozen=True)
class ScoreSummary:
    """How well a score separates distractors from other images: means over splits, as fractions."""

    preset: str
    """With what else distinguishes these runs, if there are several kinds."""
    model: str
    score: str
    splits: int
    auroc: Number
    average_precision: Number
    within_episode: Number


def score_summaries(records: Sequence[MaskRecord]) -> list[ScoreSummary]:
    """Each score of each model over its splits, the masks first. Other settings are another row."""
    groups: dict[tuple[str, str, str], list[Separation]] = {}
    settings = settings_of_runs(records)
    for score in SCORES:
        for record, preset in zip(records, settings, strict=True):
            if score in record["tells_distractors"]:
                key = preset, record["model"], score
                groups.setdefault(key, []).append(record["tells_distractors"][score])

    def number(values: list[float]) -> Number:
        error = standard_error(values) if len(values) > 1 else None
        return Number(float(np.mean(values)), error, decimals=4)

    return [
        ScoreSummary(
            *key,
            len(runs),
            number([run["auroc"] for run in runs]),
            number([run["average_precision"] for run in runs]),
            number([run["auroc_within_episode"] for run in runs]),
        )
        for key, runs in groups.items()
    ]


def settings_of_runs(records: Sequence[MaskRecord]) -> list[str]:
    """The preset of each record, and if runs of that preset differ, its updates and changes."""
    said = [
        f"{r['updates']:,} updates" + f", {departures(r)}" * bool(departures(r)) for r in records
    ]
    kinds = {(r["preset"], more) for r, more in zip(records, said, strict=True)}
    several = Counter(preset for preset, _ in kinds)
    return [
        f"{r['preset']}, {more}" if several[r["preset"]] > 1 else r["preset"]
        for r, more in zip(records, said, strict=True)
    ]


def masks_grid(records: Sequence[MaskRecord]) -> Grid:
    header = ["preset", "model", "score", "splits", "AUROC", "average precision", "within episode"]
    return Grid(
        "Which score finds distractors",
        header,
        [
            [
                told.preset,
                title(told.model),
                SCORES[told.score],
                told.splits,
                told.auroc,
                told.average_precision,
                told.within_episode,
            ]
            for told in score_summaries(records)
        ],
        heading=f"{records[0]['dataset']}, {records[0]['episodes']} episodes. {NOTE}",
    )


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
        f"Counted together over {counted_together(records)}, {low:.1%} of the distractors have a mask below "
        f"0.1 and {high:.1%} of the other images one above 0.9; the mean of Sarle's bimodality coefficient "
        f"of a run is {coefficient:.2f} (0.33 for a normal distribution, 0.56 for a uniform one, 1 for two "
        "points)."
    )


def mask_chart(records: Sequence[MaskRecord]) -> Chart:
    """The mask values of distractors and of other images."""
    counts = mask_counts(records)
    lines = [
        Steps(label, look, [100 * count / sum(counts[name]) for count in counts[name]])
        for name, label, look in (
            ("others", "of the episode's classes", 1),
            ("distractors", "distractors", 4),
        )
    ]
    return Chart(
        f"Mask values, {counted_together(records)} together",
        "mask of an unlabeled image (largest over the classes)",
        "% of the images of its kind",
        lines,
        from_zero=True,
        filled=True,
    )


def masks_command(records: Sequence[MaskRecord]) -> str:
    first = records[0]
    which = ["--dataset", first["dataset"], "--preset", first["preset"]]
    which += ["--splits", str(len(split_seeds(records)))]
    which += updates_of(first)
    if "source" in first:
        which = ["--model", first["source"]]
    return "semishot reproduce figure-masks " + shlex.join(which) + data_root_flag(records)
