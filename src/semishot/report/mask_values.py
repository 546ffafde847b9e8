"""Mask values on test episodes (Figure 7): records -> a section with charts."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from semishot.errors import counted
from semishot.paper import published
from semishot.paper.requests import MasksRequest
from semishot.report.charts import Chart, Line, steps
from semishot.report.other_tables import departures
from semishot.report.provenance import again, section_of, split_seeds, unusual_updates
from semishot.report.tables import Grid, GridCell, Number, Section, grouped, line_of, standard_error
from semishot.training.records import MaskRecord

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


def masks_section(records: Sequence[MaskRecord]) -> Section:
    first, updates = records[0], unusual_updates(records[0])
    if "source" in first:
        request = MasksRequest((first["source"],), first["dataset"])
    else:
        own = first["preset"], len(split_seeds(records)), updates
        request = MasksRequest((), first["dataset"], *own)
    other = f", {updates:,} updates" if updates is not None else ""
    return section_of(
        records,
        f"Figure 7 ({first['dataset']}): mask values{other}",
        [masks_grid(records)],
        [again("figure-masks", request)],
        "How well a score separates distractors from other unlabeled images; `within episode` compares "
        "images of one episode.",
        mask_finding(records),
        masks_charts(records),
    )


def with_settings(records: Sequence[MaskRecord]) -> list[tuple[MaskRecord, str]]:
    """Each record with its preset, and if runs differ, its updates and changes."""
    more = [(r["preset"], f"{r['updates']:,} updates", departures(r)) for r in records]
    several = len(set(more)) > 1
    settings = [", ".join(filter(None, own)) if several else own[0] for own in more]
    return list(zip(records, settings, strict=True))


def masks_grid(records: Sequence[MaskRecord]) -> Grid:
    """Each score of each model over its splits, the masks first. Other settings are another row."""
    rows: list[list[GridCell]] = []
    for score, name in SCORES.items():
        known = [run for run in with_settings(records) if score in run[0]["tells_distractors"]]
        for (setting, model), runs in grouped(known, lambda run: (run[1], run[0]["model"])).items():
            values: list[dict[str, Any]] = [{**r["tells_distractors"][score]} for r, _ in runs]
            numbers = [over_splits([value[of] for value in values]) for of in SEPARATIONS]
            rows.append([setting, published.title(model), name, len(runs), *numbers])
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
    runs = with_settings(records)
    kinds = Counter(setting for record, setting in runs if "mask_histogram" in record)
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
    scores = [
        line_of(f"{score} ({model})", look, range(1, len(SEPARATIONS) + 1), numbers)
        for look, (_, model, score, _, *numbers) in enumerate(masks_grid(records).rows)
    ]
    names = tuple(SEPARATIONS.values())
    return [
        histogram,
        Chart("Telling distractors from others", "", "1: all are told", scores, x_names=names),
    ]
