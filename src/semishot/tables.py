"""Records -> the paper's tables as text, Markdown or plain data."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from semishot import paper
from semishot.config import Recipe

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
        raise ValueError("a cell holds one record per split")
    accuracies = 100 * np.array([row["accuracy"] for row in rows])
    interval = 100 * float(np.mean([row["accuracy_ci95"] for row in rows]))
    error = float(accuracies.std() / len(rows) ** 0.5)
    return Measured(float(accuracies.mean()), error, interval, len(rows))


def table1_cells(
    records: Iterable[Record], unlabeled: int
) -> dict[tuple[str, int], Measured | None]:
    """Table 1 at M = `unlabeled`, by model and number of distractor classes."""
    at_m = [r for r in records if r["unlabeled"] == unlabeled]
    return {
        (model, h): cell(
            r
            for r in at_m
            # the supervised model does not look at the unlabeled images: one number, both columns
            if r["model"] == model and r["distractors"] == (0 if model == "supervised" else h)
        )
        for model, h in paper.TABLE1
    }


COLUMNS = {0: "no distractors", 5: "w/ distractors"}


def table1_rows(
    records: list[Record], unlabeled: int, beside_paper: bool
) -> tuple[list[str], list[list[str]]]:
    """Header and rows of Table 1's layout; beside the paper's numbers where that makes sense."""
    cells = table1_cells(records, unlabeled)
    header = ["model"]
    for h in paper.TABLE1_DISTRACTORS:
        header += [COLUMNS[h], *(["paper", "difference"] if beside_paper else [])]
    rows = []
    for model, label in paper.MODELS.items():
        row = [label]
        for h in paper.TABLE1_DISTRACTORS:
            ours, published = cells[model, h], paper.TABLE1[model, h]
            row.append(str(ours) if ours else "-")
            if beside_paper:
                row.append(f"{published.mean:.2f} ± {published.error:.2f}")
                row.append(f"{ours.mean - published.mean:+.2f}" if ours else "-")
        rows.append(row)
    return header, rows


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


def table1_as_json(records: list[Record]) -> str:
    """Table 1's cells as plain data, beside the published ones."""
    cells = [
        {
            "model": model,
            "distractors": h,
            "unlabeled": m,
            "accuracy": ours.mean / 100,
            "standard_error_over_splits": ours.error / 100,
            "mean_ci95_over_episodes": ours.interval / 100,
            "splits": ours.splits,
            "paper_accuracy": paper.TABLE1[model, h].mean / 100,
            "paper_standard_error": paper.TABLE1[model, h].error / 100,
        }
        for m in paper.TABLE1_TEST
        for (model, h), ours in table1_cells(records, m).items()
        if ours
    ]
    return json.dumps(cells, indent=1)


def table1_as_text(records: list[Record], unlabeled: Iterable[int] = paper.TABLE1_TEST) -> str:
    """Table 1 for a terminal, once for each M at test, and what it says in two sentences."""
    dataset, episodes, updates = (records[0][k] for k in ("dataset", "episodes", "updates"))
    filters = records[0]["recipe"].get("filters", Recipe().filters)
    splits = len({r["split_seed"] for r in records})
    parts = []
    for m in unlabeled:
        title = (
            f"{dataset}, 5-way 1-shot, M = {m} unlabeled per class at test. Accuracy in %,\n"
            f"mean ± standard error over {splits} splits of {episodes} episodes; "
            f"{updates:,} updates, {filters} filters."
        )
        parts += [title, as_text(*table1_rows(records, m, beside_paper=dataset == "omniglot"))]
    return "\n\n".join([*parts, "\n".join(findings(records, 5))])


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


def findings(records: list[Record], unlabeled: int) -> list[str]:
    """What the unlabeled images bought and what distractors cost, in two plain sentences."""
    cells = table1_cells(records, unlabeled)

    def mean(model: str, h: int) -> float:
        measured = cells[model, h]
        return measured.mean if measured else float("nan")

    methods = [model for model in paper.MODELS if model != "supervised"]
    best = max(methods, key=lambda model: mean(model, 0))
    robust = max(methods, key=lambda model: mean(model, 5))
    base = mean("supervised", 0)
    return [
        f"{unlabeled} unlabeled images per class bought {mean(best, 0) - base:+.1f} points: "
        f"{paper.MODELS[best]} reaches {mean(best, 0):.1f} % where the supervised model has "
        f"{base:.1f} %.",
        f"With as many distractors in the pile, Soft k-Means falls by "
        f"{mean('soft_kmeans', 0) - mean('soft_kmeans', 5):.1f} points to "
        f"{mean('soft_kmeans', 5):.1f} %, while {paper.MODELS[robust]} keeps "
        f"{mean(robust, 5):.1f} %.",
    ]
