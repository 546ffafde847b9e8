"""Figures by matplotlib: how they are made, and accuracy over unlabeled images (Figures 4 and 6)."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from semishot.errors import InputError
from semishot.paper import published
from semishot.report import tables
from semishot.report.tables import Record
from semishot.system.files import write_whole

STYLES = {
    "supervised": ("#555555", "o", ":"),
    "semi_supervised_inference": ("#56B4E9", "v", "--"),
    "soft_kmeans": ("#E69F00", "s", "-"),
    "distractor_cluster": ("#009E73", "D", "-"),
    "masked_soft_kmeans": ("#D55E00", "^", "-"),
}
"""Colors that the color-blind can tell apart (Okabe and Ito), markers for everyone."""


def canvas(width: float, height: float) -> Any:
    """A figure of matplotlib without its global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError("drawing needs matplotlib: pip install semishot[plots]") from error
    return Figure(figsize=(width, height), dpi=120, layout="constrained")


def save(figure: Any, out: Path, records: Sequence[Record] = ()) -> None:
    """PNG, PDF or SVG, by the name of the file; a PNG says which records it was made of."""
    known = figure.canvas.get_supported_filetypes()
    kind = out.suffix.removeprefix(".").lower()
    if kind not in known:
        raise InputError(f"cannot draw to {out.name!r}: the name must end in .png, .pdf or .svg")
    about = {"Description": fingerprint(records)} if kind == "png" and records else None
    write_whole(out, lambda temporary: figure.savefig(temporary, format=kind, metadata=about))


def fingerprint(records: Sequence[Record]) -> str:
    """Of records as they are published: another one means that a picture of them is out of date."""
    kept = [{k: v for k, v in r.items() if k != "episode_accuracies"} for r in records]
    return "records " + hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def accuracy_over_unlabeled(records: list[Record], path: Path) -> None:
    save(unlabeled_figure(records), path, records)


def unlabeled_figure(records: list[Record]) -> Any:
    """One panel per shot and column, a line per model, standard errors over splits."""
    table = published.table(published.FIGURE_UNLABELED, records[0]["dataset"])
    shots = sorted({r["shot"] for r in records})
    at = {(shot, m): tables.cells(records, shot, m) for shot in shots for m in table.tests}
    figure = canvas(9, 3.8 * len(shots))
    panels = figure.subplots(len(shots), 2, sharey="row", squeeze=False)
    for row, shot in zip(panels, shots, strict=True):
        for panel, h in zip(row, published.DISTRACTORS, strict=True):
            for model, (color, marker, line) in STYLES.items():
                found = [(m, at[shot, m][model, h]) for m in table.tests]
                points = [(m, ours.mean, ours.error) for m, ours in found if ours]
                if points:
                    panel.errorbar(
                        *zip(*[(m, mean) for m, mean, _ in points], strict=True),
                        yerr=[error for *_, error in points],
                        color=color,
                        marker=marker,
                        linestyle=line,
                        capsize=3,
                        label=published.MODELS[model],
                    )
            panel.set_title(f"5-way {shot}-shot, {tables.COLUMNS[h]}")
            panel.set_xlabel("unlabeled images per class at test")
            panel.set_xticks(list(table.tests))
            panel.grid(alpha=0.3)
        row[0].set_ylabel("accuracy (%)")
    panels[0][0].legend(frameon=False)
    return figure
