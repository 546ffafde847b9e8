"""What is measured on tasks with strangers, and how a result file holds it.

Letters: M rows, U of them in the pile, N classes.
"""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from stranger_tasks.rivals import ASSUME_BALANCE, RIVALS
from stranger_tasks.tasks import Cell, Task

REJECT, BINS = 0.05, 15
OURS, NEW_ROWS, OLD = "ours", "ours, new rows", "version 0.1"
Found = dict[str, Any]


def figures(found: Found, task: Task) -> Found:
    """What a contender said of the pile -> its figures, and what calibration needs of each row."""
    truth = task.truth[task.pile]
    member = truth >= 0
    right = (found["classes"].argmax(1) == truth)[member]
    row = {**found, "member": member, "right": right, "accuracy": right.mean()}
    row["confidence"] = found["classes"].max(1)[member]
    if not member.all():
        row["auroc"] = roc_auc_score(~member, found["score"])
    if "rejected" in found:
        row["lost"] = found["rejected"][member].mean()
        if not member.all():
            row["found"] = found["rejected"][~member].mean()
    return row


def summary(rows: list[Found]) -> Found:
    """Means over tasks with their standard errors; calibration over the rows of all of them."""
    found: Found = {}
    for key in ("accuracy", "auroc", "lost", "found"):
        if key in rows[0]:
            found |= mean_and_error(key, [row[key] for row in rows])
    found["ece"] = calibration_error(*joined(rows, "confidence", "right"))
    found["seconds"] = np.mean([row["seconds"] for row in rows])
    if "found" in rows[0]:
        found["oracle_at_same_loss"] = oracle(rows, found["lost"])
    if "stranger" in rows[0]:
        probability, member = joined(rows, "stranger", "member")
        found["ece_stranger"] = calibration_error(probability, ~member)
        found["strangers_expected"] = np.mean([row["stranger"].sum() for row in rows])
        found["strangers_in_pile"] = np.mean([(~row["member"]).sum() for row in rows])
    return rounded(found)


def mean_and_error(key: str, values: Iterable[float]) -> Found:
    """The error is 0 where there is one task."""
    each = np.array(list(values))
    error = each.std(ddof=1) / len(each) ** 0.5 if len(each) > 1 else 0.0
    return {key: each.mean(), f"{key}_error": error}


def rounded(found: Found) -> Found:
    return {key: round(float(value), 4) for key, value in found.items()}


def joined(rows: list[Found], *keys: str) -> list[NDArray[Any]]:
    return [np.concatenate([row[key] for row in rows]) for key in keys]


def oracle(rows: list[Found], loss: float) -> float:
    """The share of strangers found where each task's cutoff loses this share of its members."""
    cuts = [np.quantile(row["score"][row["member"]], 1 - loss) for row in rows]
    pairs = zip(rows, cuts, strict=True)
    return float(np.mean([(row["score"][~row["member"]] > cut).mean() for row, cut in pairs]))


def cell_of(cell: Cell, each: dict[str, list[Found]]) -> Found:
    """The cell, what each contender reached in it, and ours minus the best rival, task by task."""
    contenders = {name: summary(rows) for name, rows in each.items()}
    tasks = len(next(iter(each.values())))
    entry: Found = {**asdict(cell), "tasks": tasks, "contenders": contenders}
    if OURS in each and all(name in each for name in RIVALS):
        for key in ("accuracy", "auroc"):
            rivals = [name for name in RIVALS if key == "auroc" or name not in ASSUME_BALANCE]
            if key in contenders[OURS]:
                best = max(rivals, key=lambda name: contenders[name][key])
                pairs = zip(each[OURS], each[best], strict=True)
                ahead = mean_and_error("ahead", (mine[key] - its[key] for mine, its in pairs))
                entry[f"{key}_best_rival"] = {"name": best, **rounded(ahead)}
    return entry


def calibration_error(confidence: NDArray[Any], right: NDArray[np.bool_]) -> float:
    """ECE: |confidence - accuracy| averaged over 15 bins of confidence, weighted by their size."""
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs((confidence - right)[bins == b].sum()) for b in range(BINS)]
    return float(sum(gaps) / len(right))
