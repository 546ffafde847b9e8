"""Records -> the paper's tables as text, Markdown or plain data."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from semishot.errors import InputError
from semishot.paper import published as paper
from semishot.training.config import Recipe

Record = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """One cell: accuracy in percent over splits."""

    mean: float
    error: float
    """Standard error over splits: std(ddof=0) / sqrt(splits), as in the paper."""
    interval: float
    """Mean half-width of the 95 % interval over episodes within a split."""
    splits: int

    def __str__(self) -> str:
        """One split has no standard error to show."""
        return f"{self.mean:.2f}" + (f" ± {self.error:.2f}" if self.splits > 1 else "")


def cell(records: Iterable[Record]) -> Measured | None:
    rows = list(records)
    if not rows:
        return None
    if len({row["split_seed"] for row in rows}) < len(rows):
        raise InputError("a cell holds one record per split, and a split seed is there twice")
    accuracies = 100 * np.array([row["accuracy"] for row in rows])
    interval = 100 * float(np.mean([row["accuracy_ci95"] for row in rows]))
    error = float(accuracies.std() / len(rows) ** 0.5)
    return Measured(float(accuracies.mean()), error, interval, len(rows))


Cells = dict[tuple[str, int], Measured | None]


def cells(records: Iterable[Record], shot: int, unlabeled: int) -> Cells:
    """What was measured at this shot and M, by model and number of distractor classes."""
    here = [r for r in records if (r["shot"], r["unlabeled"]) == (shot, unlabeled)]
    return {
        (model, h): cell(
            r
            for r in here
            # the supervised model does not look at the unlabeled images: one number, both columns
            if r["model"] == model and r["distractors"] == (0 if model == "supervised" else h)
        )
        for model in paper.MODELS
        for h in paper.DISTRACTORS
    }


COLUMNS = {0: "no distractors", 5: "w/ distractors"}


def table_rows(
    table: paper.Table, records: list[Record], shot: int, unlabeled: int, beside_paper: bool
) -> tuple[list[str], list[list[str]]]:
    """Header and rows of one shot and M; beside the paper's numbers where that makes sense.

    A cell with fewer splits behind it than others says how many.
    """
    measured = cells(records, shot, unlabeled)
    most = max((ours.splits for ours in measured.values() if ours), default=0)
    header = ["model"]
    for h in paper.DISTRACTORS:
        header += [COLUMNS[h], *(["paper", "difference"] if beside_paper else [])]
    rows = []
    for model, label in paper.MODELS.items():
        row = [label]
        for h in paper.DISTRACTORS:
            ours = measured[model, h]
            fewer = f" ({ours.splits})" if ours and ours.splits < most else ""
            row.append(f"{ours}{fewer}" if ours else "-")
            if beside_paper:
                published = table.cells[model, shot, h]
                row.append(f"{published.mean:.2f} ± {published.error:.2f}")
                row.append(f"{ours.mean - published.mean:+.2f}" if ours else "-")
        rows.append(row)
    return header, rows


def curve_rows(
    table: paper.Table, records: list[Record], shot: int
) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a figure: accuracy at each M, for each model and column measured."""
    at = {m: cells(records, shot, m) for m in table.tests}
    rows = [
        [f"{label}, {COLUMNS[h]}", *(str(at[m][model, h] or "-") for m in table.tests)]
        for model, label in paper.MODELS.items()
        for h in paper.DISTRACTORS
        if any(at[m][model, h] for m in table.tests)
    ]
    return [f"{shot}-shot", *(f"M = {m}" for m in table.tests)], rows


def curves_as_text(table: paper.Table, records: list[Record]) -> str:
    """A figure's numbers for a terminal."""
    dataset, episodes = records[0]["dataset"], records[0]["episodes"]
    splits = len({r["split_seed"] for r in records})
    title = (
        f"{dataset}, 5-way, by M unlabeled images per class at test. Accuracy in %,\n"
        f"mean ± standard error over {splits} splits of {episodes} episodes; "
        f"{records[0]['updates']:,} updates."
    )
    shots = sorted({r["shot"] for r in records})
    return "\n\n".join([title, *(as_text(*curve_rows(table, records, shot)) for shot in shots)])


def parts_of(table: paper.Table, records: list[Record]) -> list[tuple[int, int]]:
    """The (shot, M) of a table at which something was measured."""
    held = {(r["shot"], r["unlabeled"]) for r in records}
    return [(shot, m) for shot in table.shots for m in table.tests if (shot, m) in held]


def as_text(header: list[str], rows: list[list[str]]) -> str:
    """Columns aligned for a terminal: words to the left, numbers to the right."""
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    left = [_words(rows, i) for i in range(len(header))]

    def line(cells: list[str]) -> str:
        sized = zip(cells, widths, left, strict=True)
        return "  ".join(c.ljust(w) if words else c.rjust(w) for c, w, words in sized).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(header), rule, *map(line, rows)])


def as_markdown(header: list[str], rows: list[list[str]]) -> str:
    rule = ["---" if _words(rows, i) else "---:" for i in range(len(header))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, rule, *rows])


def _words(rows: list[list[str]], column: int) -> bool:
    return any(row[column][:1].isalpha() for row in rows)


def table_as_json(table: paper.Table, records: list[Record]) -> str:
    """A table's cells as plain data, beside the published ones."""
    found = []
    for shot, m in parts_of(table, records):
        for (model, h), ours in cells(records, shot, m).items():
            if ours is None:
                continue
            cell: Record = {
                "model": model,
                "shot": shot,
                "distractors": h,
                "unlabeled": m,
                "accuracy": ours.mean / 100,
                "standard_error_over_splits": ours.error / 100,
                "mean_ci95_over_episodes": ours.interval / 100,
                "splits": ours.splits,
            }
            if published := table.cells.get((model, shot, h)):
                cell["paper_accuracy"] = published.mean / 100
                cell["paper_standard_error"] = published.error / 100
            found.append(cell)
    return json.dumps(found, indent=1)


def table_as_text(table: paper.Table, records: list[Record]) -> str:
    """A table for a terminal, once for each shot and M at test, and what it says in two sentences."""
    dataset, episodes, updates = (records[0][k] for k in ("dataset", "episodes", "updates"))
    filters = records[0]["recipe"].get("filters", Recipe().filters)
    beside_paper = dataset == table.dataset and bool(table.cells)
    texts, shown = [], parts_of(table, records)
    for shot, m in shown:
        splits = max(ours.splits for ours in cells(records, shot, m).values() if ours)
        text = as_text(*table_rows(table, records, shot, m, beside_paper))
        fewer = " (n): over n splits only." if re.search(r"\(\d+\)", text) else ""
        title = (
            f"{dataset}, 5-way {shot}-shot, M = {m} unlabeled per class at test. Accuracy in %,\n"
            f"mean ± standard error over {splits} splits of {episodes} episodes; "
            f"{updates:,} updates, {filters} filters.{fewer}"
        )
        texts += [title, text]
    said = findings(records, *shown[0])
    return "\n\n".join([*texts, *(["\n".join(said)] if said else [])])


def records_as_text(records: list[Record]) -> str:
    """One line per run, then the mean; both kinds of ± are named."""
    rows = [
        [
            r["model"],
            str(r["split_seed"]),
            f"{100 * r['accuracy']:.2f}",
            f"{100 * r['accuracy_ci95']:.2f}",
        ]
        for r in records
    ]
    text = as_text(["model", "split seed", "accuracy %", "± 95 % over episodes"], rows)
    lines = [text]
    for model in dict.fromkeys(r["model"] for r in records):
        mean = cell(r for r in records if r["model"] == model)
        if mean and mean.splits > 1:
            error = f"{mean.error:.2f} (standard error over {mean.splits} splits)"
            lines.append(f"{model}: mean {mean.mean:.2f} ± {error}")
    return "\n".join(lines)


def findings(records: list[Record], shot: int, unlabeled: int) -> list[str]:
    """What the unlabeled images bought and what distractors cost, where that was measured."""
    means = {k: ours.mean for k, ours in cells(records, shot, unlabeled).items() if ours}
    methods = [model for model in paper.MODELS if model != "supervised"]
    bought = {model: means[model, 0] for model in methods if (model, 0) in means}
    kept = {model: means[model, 5] for model in methods if (model, 5) in means}
    said = []
    if bought and unlabeled and ("supervised", 0) in means:
        base, best = means["supervised", 0], max(bought, key=lambda model: bought[model])
        said.append(
            f"{unlabeled} unlabeled images per class bought {bought[best] - base:+.1f} points: "
            f"{paper.MODELS[best]} reaches {bought[best]:.1f} % where the supervised model has "
            f"{base:.1f} %."
        )
    plain = "soft_kmeans"
    if kept and unlabeled and plain in kept and plain in bought:
        robust = max(kept, key=lambda model: kept[model])
        said.append(
            f"With as many distractors in the pile, Soft k-Means falls by "
            f"{bought[plain] - kept[plain]:.1f} points to {kept[plain]:.1f} %, while "
            f"{paper.MODELS[robust]} keeps {kept[robust]:.1f} %."
        )
    return said
