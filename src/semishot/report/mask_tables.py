"""Mask values and what tells distractors (Figure 7): records -> a table and a sentence."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from semishot.paper.published import MODELS, Cell
from semishot.report.baseline_tables import origin
from semishot.report.tables import Record, as_markdown, as_text

SCORES = {
    "mask": "mask",
    "cluster": "distractor cluster's probability",
    "distance": "distance to the nearest prototype",
}
"""What may tell a distractor; the mask is the largest over the classes, the distance squared."""


@dataclass(frozen=True)
class Told:
    """How well a score tells distractors, over splits: means and standard errors."""

    preset: str
    model: str
    score: str
    splits: int
    auroc: Cell
    average_precision: Cell
    auroc_within_episode: Cell


def mask_summary(records: Sequence[Record]) -> list[Told]:
    """Each score of each model over its splits, as fractions, the masks first."""
    groups: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for score in SCORES:
        for record in records:
            if score in record["tells_distractors"]:
                key = record["preset"], record["model"], score
                groups.setdefault(key, []).append(record["tells_distractors"][score])
    found = []
    for (preset, model, score), runs in groups.items():
        measures = ("auroc", "average_precision", "auroc_within_episode")
        cells = []
        for measure in measures:
            values = np.array([run[measure] for run in runs])
            cells.append(Cell(float(values.mean()), float(values.std() / len(values) ** 0.5)))
        found.append(Told(preset, model, score, len(runs), *cells))
    return found


def mask_rows(records: Sequence[Record]) -> tuple[list[str], list[list[str]]]:
    def shown(value: Cell, splits: int) -> str:
        return f"{value.mean:.4f}" + (f" ± {value.error:.4f}" if splits > 1 else "")

    header = ["preset", "model", "score", "splits", "AUROC", "average precision", "within episode"]
    rows = [
        [
            told.preset,
            MODELS[told.model],
            SCORES[told.score],
            str(told.splits),
            shown(told.auroc, told.splits),
            shown(told.average_precision, told.splits),
            shown(told.auroc_within_episode, told.splits),
        ]
        for told in mask_summary(records)
    ]
    return header, rows


def mask_findings(records: Sequence[Record]) -> str:
    """Whether the masks are bi-modal, as the paper says of its Figure 7, in one sentence."""
    masked = [r for r in records if "mask_histogram" in r]
    counts = {
        name: np.array([r["mask_histogram"][name] for r in masked]).sum(0)
        for name in ("distractors", "others")
    }
    tenth = len(counts["others"]) // 10
    low = counts["distractors"][:tenth].sum() / counts["distractors"].sum()
    high = counts["others"][-tenth:].sum() / counts["others"].sum()
    coefficient = np.mean([r["bimodality"] for r in masked])
    return (
        f"{low:.1%} of the distractors have a mask below 0.1 and {high:.1%} of the other images one "
        f"above 0.9; Sarle's bimodality coefficient is {coefficient:.2f} (0.33 for a normal "
        "distribution, 0.56 for a uniform one, 1 for two points)."
    )


MASK_NOTE = (
    "How well a score tells distractors among the unlabeled images of all test episodes; "
    "`within episode` compares a distractor only with images of its own episode. Mean ± standard "
    "error over splits."
)


def masks_as_text(records: Sequence[Record]) -> str:
    title = f"{records[0]['dataset']}, {records[0]['episodes']} episodes. {MASK_NOTE}"
    return f"{title}\n\n{as_text(*mask_rows(records))}\n\n{mask_findings(records)}"


def masks_section(records: Sequence[Record]) -> str:
    """For docs/results.md."""
    return "\n".join(
        [
            f"## Figure 7 ({records[0]['dataset']}): mask values, and what tells distractors\n",
            f"{MASK_NOTE}\n",
            as_markdown(*mask_rows(records)) + "\n",
            f"{mask_findings(records)}\n",
            origin(records, masks_command(records)),
        ]
    )


def masks_command(records: Sequence[Record]) -> str:
    first, splits = records[0], len({r["split_seed"] for r in records})
    which = ["--dataset", first["dataset"], "--preset", first["preset"], "--splits", str(splits)]
    if "source" in first:
        which = ["--model", first["source"]]
    return "semishot reproduce figure-masks " + shlex.join(which)
