"""Tables of `benchmarks/strangers.py` from its result files alone: means by number of labels, targets met."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from semishot.errors import InputError
from semishot.system.files import read_json
from stranger_tasks.figures import NEW_ROWS, OURS, Found
from stranger_tasks.rivals import RIVALS

HALVES = {
    "choose": "The half on which constants were chosen",
    "report": "The reported half",
    "fresh": "Fresh classes of miniImageNet",
}
FIGURES = {
    "accuracy": "accuracy on members, %",
    "auroc": "AUROC of strangers",
    "lost": "members lost, % (wanted: 5)",
    "found": "strangers found, %",
    "ece_stranger": "ECE of the probability of a stranger, %",
}
LABELS_ALONE = ("nearest prototype", "logistic regression")


def markdown(folder: Path) -> str:
    """All tables of a folder with choose.json, report.json, fresh.json and their named-*.json."""
    parts = []
    for half, title in HALVES.items():
        path, named = folder / f"{half}.json", folder / f"named-{half}.json"
        if path.exists():
            held = read_json(path)
            parts += [f"### {title}", means(held["cells"]), targets(held["cells"])]
        if named.exists():
            parts.append(named_table(read_json(named)["cells"]))
    if not parts:
        raise InputError(f"no results in {folder}; run benchmarks/strangers.py FOLDER first")
    return "\n\n".join(parts)


def table(head: list[str], rows: list[list[str]]) -> str:
    ruled = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in ruled)


def means(cells: list[Found]) -> str:
    """Over the cells of photographs with one number of labels, and digits apart."""
    names = [name for name in (OURS, NEW_ROWS, *RIVALS) if name in cells[0]["contenders"]]
    rows = []
    for data, shot in sorted({(c["data"] == "digits", c["shot"]) for c in cells}):
        chosen = [c for c in cells if c["shot"] == shot and (c["data"] == "digits") == data]
        for key, title in FIGURES.items():
            row = [f"{'digits, ' if data else ''}{title}", str(shot)]
            row += [mean_of(chosen, name, key) for name in names]
            if any(row[2:]):
                rows.append(row)
    return table(["", "labels", *names], rows)


def mean_of(cells: list[Found], name: str, key: str) -> str:
    """Nothing where the contender has no such figure. Without strangers, calibration says little."""
    found = [
        c["contenders"][name] for c in cells if c["strangers"] != "none" or key != "ece_stranger"
    ]
    values = [row[key] for row in found if key in row]
    if not values:
        return ""
    mean = float(np.mean(values))
    return f"{mean:.3f}" if key == "auroc" else f"{100 * mean:.1f}"


def targets(cells: list[Found]) -> str:
    """How many cells meet each target, and how many are short of it by more than two standard errors."""
    wanted: dict[str, list[tuple[float, float]]] = {}
    for cell in cells:
        for name, short, error in shortfalls(cell):
            wanted.setdefault(name, []).append((short, error))
    rows = []
    for name, found in wanted.items():
        met = sum(short <= 1e-9 for short, _ in found)
        clearly = sum(short > 1e-9 and short > 2 * error for short, error in found)
        mean_error = np.mean([error for _, error in found])
        cells_met = f"{met} of {len(found)}"
        known = ["", ""] if np.isnan(mean_error) else [str(clearly), f"{mean_error:.3f}"]
        rows.append([name, cells_met, *known])
    head = ["target", "cells that meet it", "short by more than two errors", "mean error of a cell"]
    return table(head, rows)


def shortfalls(cell: Found) -> list[tuple[str, float, float]]:
    """For each target: its name, how far the cell is short of it (0 or less: met), the standard error."""
    mine, contenders = cell["contenders"][OURS], cell["contenders"]
    found = []
    if "accuracy_best_rival" in cell:
        best = cell["accuracy_best_rival"]
        name = "accuracy within 0.5 points of the best rival that does not assume balanced classes"
        found.append((name, -0.005 - best["ahead"], best["ahead_error"]))
    if "auroc" in mine and "auroc_best_rival" in cell:
        best = cell["auroc_best_rival"]
        name = "AUROC within .01 of the best rival"
        found.append((name, -0.01 - best["ahead"], best["ahead_error"]))
    if "auroc" in mine and all(name in contenders for name in LABELS_ALONE):
        alone = max(contenders[name]["accuracy"] for name in LABELS_ALONE)
        name = "with strangers, accuracy not below labels alone"
        found.append((name, alone - mine["accuracy"], np.nan))  # not paired: no error is known
    lost = mine["lost"]
    found.append(("2 to 7 % of members lost", max(0.02 - lost, lost - 0.07), mine["lost_error"]))
    if "found" in mine:
        name = "at least 85 % of the strangers that a cutoff with knowledge of the truth finds"
        short = 0.85 * mine["oracle_at_same_loss"] - mine["found"]
        found.append((name, short, mine["found_error"]))
    return found


def named_table(cells: list[Found]) -> str:
    counts = sorted({c["named"] for c in cells})
    rows = []

    def row(title: str, shot: int, text: Callable[[list[Found]], str]) -> None:
        chosen = [
            [c["contenders"][OURS] for c in cells if c["shot"] == shot and c["named"] == count]
            for count in counts
        ]
        rows.append([f"{title}, {shot} label{'s' * (shot > 1)}", *map(text, chosen)])

    def percent(key: str) -> Callable[[list[Found]], str]:
        return lambda found: f"{100 * np.mean([f[key] for f in found]):.1f}"

    for shot in sorted({c["shot"] for c in cells}):
        row("AUROC", shot, lambda found: f"{np.mean([f['auroc'] for f in found]):.3f}")
        for key in ("lost", "found", "ece_stranger"):
            row(FIGURES[key], shot, percent(key))
    return table(["strangers that the user has named", *map(str, counts)], rows)
