"""Charts by matplotlib: accuracy over unlabeled images (Figures 4 and 6) and mask values (Figure 7)."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from semishot.errors import InputError
from semishot.paper.published import DISTRACTORS, title
from semishot.report.charts import Steps
from semishot.report.curves import unlabeled_charts
from semishot.report.mask_tables import SCORES, mask_chart, score_summaries
from semishot.system.files import write_whole_with
from semishot.training.records import MaskRecord, Record

STYLES = (
    ("#555555", "o", ":"),
    ("#56B4E9", "v", "--"),
    ("#E69F00", "s", "-"),
    ("#009E73", "D", "-"),
    ("#D55E00", "^", "-"),
    ("#CC79A7", "P", "-"),
    ("#0072B2", "h", "-"),
    ("#000000", "<", "-"),
)
"""Color, marker and line style by look; the colors are Okabe and Ito's, for all kinds of color vision."""
BLUE, ORANGE, RED = "#0072B2", "#E69F00", "#D55E00"


def canvas(width: float, height: float) -> Any:
    """A matplotlib figure that does not use its global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("drawing needs matplotlib: pip install 'semishot[plots]'") from error
    return Figure(figsize=(width, height), dpi=120, layout="constrained")


def save(figure: Any, out: Path, records: Sequence[Record] = ()) -> None:
    """Write PNG, PDF or SVG, by the file name; the metadata of a PNG identify its records."""
    known = figure.canvas.get_supported_filetypes()
    suffix = out.suffix.removeprefix(".").lower()
    if suffix not in known:
        raise InputError(f"cannot draw to {out.name!r}: the name must end in .png, .pdf or .svg")
    about = {"Description": fingerprint(records)} if suffix == "png" and records else None
    write_whole_with(out, lambda file: figure.savefig(file, format=suffix, metadata=about))


def fingerprint(records: Sequence[Record]) -> str:
    """A digest of records as they are published: if it differs, a picture of them is out of date.

    Without their `kind`, which files of version 0.1 do not have.
    """
    left_out = ("kind", "episode_accuracies")
    kept = [{k: v for k, v in r.items() if k not in left_out} for r in records]
    return "records " + hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def accuracy_over_unlabeled(records: Sequence[Record], path: Path) -> None:
    save(unlabeled_figure(records), path, records)


def unlabeled_figure(records: Sequence[Record]) -> Any:
    """A row of panels for each shot, a panel for each column, standard errors over splits."""
    charts, across = unlabeled_charts(records), len(DISTRACTORS)
    down = len(charts) // across
    figure = canvas(9, 3.8 * down)
    panels = figure.subplots(down, across, sharey="row", squeeze=False)
    for panel, chart in zip(panels.flat, charts, strict=True):
        for line in chart.lines:
            color, marker, style = STYLES[line.look]
            panel.errorbar(
                *zip(*line.points, strict=True),
                yerr=line.errors,
                color=color,
                marker=marker,
                linestyle=style,
                capsize=3,
                label=line.label,
            )
        panel.set_title(chart.title)
        panel.set_xlabel(chart.x_label)
        panel.set_xticks(chart.x_values)
        panel.grid(alpha=0.3)
    for row, chart in zip(panels, charts[::across], strict=True):
        row[0].set_ylabel(chart.y_label)
    panels[0][0].legend(frameon=False)
    return figure


def draw_masks(records: Sequence[MaskRecord], out: Path) -> None:
    """The mask values of distractors and of other images, and how well scores separate them."""
    figure, chart = canvas(11, 4.6), mask_chart(records)
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    for line, color, hatch in zip(chart.lines, (BLUE, RED), ("", "///"), strict=True):
        assert isinstance(line, Steps)
        style = {"alpha": 0.45, "edgecolor": color, "facecolor": color, "hatch": hatch}
        left.stairs(line.heights, line.edges, fill=True, label=line.label, **style)
    left.set_title(chart.title, fontsize=12)
    left.set_xlabel(chart.x_label, fontsize=12)
    left.set_ylabel(chart.y_label, fontsize=12)
    left.legend(fontsize=12, frameon=False, loc="upper center")
    told = score_summaries(records)[::-1]
    for y, each in enumerate(told):
        for number, mark, color, shift in (
            (each.auroc, "o", BLUE, 0.12),
            (each.average_precision, "D", ORANGE, -0.12),
        ):
            style = {"fmt": mark, "color": color, "markersize": 9, "capsize": 4}
            right.errorbar(number.value, y + shift, xerr=number.error or 0.0, **style)
            right.annotate(
                f"{number.value:.3f}", (number.value, y + shift), (-10, -4), ha="right",
                fontsize=11, textcoords="offset points",
            )  # fmt: skip
    labels = [f"{SCORES[each.score]}\n({title(each.model)})" for each in told]
    right.set_yticks(range(len(told)), labels, fontsize=11)
    right.set(ylim=(-0.6, len(told) - 0.3))
    lowest = min(min(each.auroc.value, each.average_precision.value) for each in told)
    right.set_xlim(np.floor(20 * lowest) / 20 - 0.05, 1.005)
    right.set_xlabel("telling distractors: AUROC (disk),\naverage precision (diamond)", fontsize=12)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=11)
    save(figure, out, records)
