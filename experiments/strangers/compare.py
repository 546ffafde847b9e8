"""Piles with strangers in them: the rule of this folder beside what a user could do instead, cell by cell.

    export PYTHONPATH=src:experiments:benchmarks
    python -m strangers.features DATA FOLDER
    python -m strangers.compare FOLDER --half choose          as often as you like
    python -m strangers.compare FOLDER --half report          once, when the rule is final

Birds (first 20 classes to choose, last 20 to report), miniImageNet (validation to choose, test to report)
and scikit-learn's digits (every second drawing). 5-, 10- and 20-way; 1, 3, 5 labels; strangers none, as many
as members (few kinds), many kinds with 3 of each, three times as many as members; balanced or 2 to 30 per
class. Birds leave no class over at 20-way: strangers are then miniImageNet's. Results are written after each
cell, and cells that are in the file are not run again.

Figures, all on the pile: accuracy on members; AUROC; at reject = 0.05 the members lost and the strangers
found, and what cutoffs with knowledge of the truth find where each task loses the share that is lost on
average; ECE of the class probabilities on members and of the probability of a stranger; seconds.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from compact_json import write_lines
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from strangers import rule
from strangers.rivals import ASSUME_BALANCE, RIVALS
from strangers.scores import cutoff
from strangers.tasks import Cell, Source, Task, cells, draw, named_cells, sources

from measurement import about_tasks
from semishot.system.files import read_json
from tasks import calibration_error

RESULTS = Path(__file__).parent / "results"
REJECT = 0.05
FEWER_TASKS = 5
"""At most, for digits and 20-way: a task has up to 1,300 rows, so its own figures are surer."""
OURS, NEW_ROWS, OLD = "ours", "ours, new rows", "version 0.1"

Found = dict[str, Any]
CELL = [field.name for field in fields(Cell)]


def ours(task: Task) -> Found:
    """The pile by the graph it is part of."""
    model, answer = rule.learn_and_read(task.features, task.labels)
    pile = task.pile
    rejected = answer.scores[pile] < cutoff(model.members, REJECT)
    return {
        "classes": answer.classes[pile],
        "score": -answer.scores[pile],
        "rejected": rejected,
        "stranger": answer.stranger[pile],
    }


def ours_on_new_rows(task: Task) -> Found:
    """Each half of the pile by a model that has seen the other half alone."""
    pile = np.flatnonzero(task.pile)
    halves = np.random.default_rng(len(pile)).permutation(len(pile)) % 2
    parts, order = [], []
    for half in (0, 1):
        out = pile[halves == half]
        kept = np.setdiff1d(np.arange(len(task.labels)), out)
        model = rule.learn(task.features[kept], task.labels[kept])
        answer = rule.read(model, task.features[out])
        rejected = answer.scores < cutoff(model.members, REJECT)
        parts.append((answer.classes, -answer.scores, rejected, answer.stranger))
        order.append(np.flatnonzero(halves == half))
    back = np.argsort(np.concatenate(order))
    joined = (np.concatenate(each)[back] for each in zip(*parts, strict=True))
    return dict(zip(("classes", "score", "rejected", "stranger"), joined, strict=True))


def rival(name: str) -> Callable[[Task], Found]:
    def run(task: Task) -> Found:
        known = task.labels != -2
        classes, score = RIVALS[name](task.features[known], task.labels[known])
        found = {"classes": classes, "score": score}
        return {**found, "rejected": score > 1 - REJECT} if name == OLD else found

    return run


CONTENDERS: dict[str, Callable[[Task], Found]] = {OURS: ours, NEW_ROWS: ours_on_new_rows}
CONTENDERS |= {name: rival(name) for name in RIVALS}


def measure(run: Callable[[Task], Found], task: Task) -> Found:
    begun = time.perf_counter()
    found = run(task)
    found["seconds"] = time.perf_counter() - begun
    truth = task.truth[task.pile]
    found["member"] = truth >= 0
    found["right"] = (found["classes"].argmax(1) == truth)[found["member"]]
    found["confidence"] = found["classes"].max(1)[found["member"]]
    return found


def summary(all_found: list[Found]) -> Found:
    """Means over tasks; calibration over the rows of all of them."""
    accuracies = np.array([found["right"].mean() for found in all_found])
    row: Found = {
        "tasks": len(all_found),
        "accuracy": accuracies.mean(),
        "accuracy_ci95": 1.96 * accuracies.std() / len(all_found) ** 0.5,
        "ece": calibration_error(*joined(all_found, "confidence", "right")),
        "seconds": np.mean([found["seconds"] for found in all_found]),
    }
    strange = not all(found["member"].all() for found in all_found)
    if strange:
        row["auroc"] = np.mean([roc_auc_score(~f["member"], f["score"]) for f in all_found])
        row["oracle_at_reject"] = oracle(all_found, REJECT)
    if "rejected" in all_found[0]:
        row["lost"] = np.mean([f["rejected"][f["member"]].mean() for f in all_found])
        if strange:
            row["found"] = np.mean([f["rejected"][~f["member"]].mean() for f in all_found])
            row["oracle_at_same_loss"] = oracle(all_found, row["lost"])
    if "stranger" in all_found[0]:
        probability, member = joined(all_found, "stranger", "member")
        row["ece_stranger"] = calibration_error(probability, ~member)
        row["strangers_expected"] = np.mean([f["stranger"].sum() for f in all_found])
        row["strangers_in_pile"] = np.mean([(~f["member"]).sum() for f in all_found])
    return {key: round(float(value), 5) for key, value in row.items()}


def joined(all_found: list[Found], *keys: str) -> list[NDArray[Any]]:
    return [np.concatenate([found[key] for found in all_found]) for key in keys]


def oracle(all_found: list[Found], loss: float) -> float:
    """The share of strangers found where each task's cutoff loses this share of its members."""
    cuts = [np.quantile(f["score"][f["member"]], 1 - loss) for f in all_found]
    pairs = zip(all_found, cuts, strict=True)
    return float(np.mean([(f["score"][~f["member"]] > cut).mean() for f, cut in pairs]))


def run_cell(source: Source, cell: Cell, names: list[str], tasks: int) -> list[Found]:
    tasks = min(tasks, FEWER_TASKS) if cell.data == "digits" or cell.way == 20 else tasks
    each: dict[str, list[Found]] = {name: [] for name in names}
    for seed in range(tasks):
        task = draw(source, cell, seed)
        for name in names:
            each[name].append(measure(CONTENDERS[name], task))
    return [{**asdict(cell), "contender": name, **summary(found)} for name, found in each.items()]


def as_cells(rows: list[Found]) -> list[Found]:
    """One entry for each cell: its fields, and what each contender reached in it."""
    found: dict[tuple[Any, ...], Found] = {}
    for row in rows:
        key = tuple(row[name] for name in CELL)
        cell = found.setdefault(key, {**{name: row[name] for name in CELL}, "contenders": {}})
        figures = {k: v for k, v in row.items() if k not in (*CELL, "contender")}
        cell["contenders"][row["contender"]] = figures
    return list(found.values())


def as_rows(held: list[Found]) -> list[Found]:
    return [
        {**{name: cell[name] for name in CELL}, "contender": contender, **figures}
        for cell in held
        for contender, figures in cell["contenders"].items()
    ]


def as_line(row: Found) -> str:
    kind = "balanced" if row["balanced"] else "2 to 30"
    text = f"{row['data']:13} {row['way']:2}-way {row['shot']:2} {row['strangers']:11} {kind:8} "
    named = "-" if row["named"] is None else row["named"]
    text += f"{named:2} named  {row['contender']:19} {100 * row['accuracy']:5.1f}"
    for key in ("auroc", "lost", "found", "oracle_at_same_loss", "ece", "ece_stranger"):
        if key in row:
            text += f"  {key} {row[key]:.3f}"
    return text


def against_targets(rows: list[Found]) -> dict[str, Any]:
    """Over all cells: how far ours is from the best rival, and where it falls short."""
    by_cell: dict[tuple[Any, ...], dict[str, Found]] = {}
    for row in rows:
        key = tuple(row[name] for name in CELL)
        by_cell.setdefault(key, {})[row["contender"]] = row
    accuracy, auroc, lost, ratio, alone = {}, {}, {}, {}, {}
    for key, found in by_cell.items():
        if OURS not in found or len(found) < len(RIVALS):
            continue
        mine = found[OURS]
        fair = [r["accuracy"] for n, r in found.items() if n in RIVALS and n not in ASSUME_BALANCE]
        accuracy[key] = mine["accuracy"] - max(fair)
        lost[key] = mine["lost"]
        if "auroc" in mine:
            auroc[key] = mine["auroc"] - max(r["auroc"] for n, r in found.items() if n in RIVALS)
            ratio[key] = mine["found"] / max(mine["oracle_at_same_loss"], 1e-9)
            labels_alone = ("nearest prototype", "logistic regression")
            alone[key] = mine["accuracy"] - max(found[n]["accuracy"] for n in labels_alone)
    wanted = {
        "accuracy minus best rival": (accuracy, lambda v: v >= -0.005),
        "accuracy minus labels alone, with strangers": (alone, lambda v: v >= 0),
        "auroc minus best rival": (auroc, lambda v: v >= -0.01),
        "members lost": (lost, lambda v: 0.02 <= v <= 0.07),
        "found of what an oracle finds": (ratio, lambda v: v >= 0.85),
    }
    return {
        name: {
            "mean": round(float(np.mean(list(values.values()))), 4),
            "least": round(float(min(values.values())), 4),
            "most": round(float(max(values.values())), 4),
            "cells": len(values),
            "met": sum(bool(good(v)) for v in values.values()),
            "short": {
                " ".join(map(str, key[:5])): round(float(value), 4)
                for key, value in values.items()
                if not good(value)
            },
        }
        for name, (values, good) in wanted.items()
        if values
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("features", type=Path, help="the folder that strangers.features filled")
    parser.add_argument("--half", choices=("choose", "report"), default="choose")
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--named", action="store_true", help="named strangers instead of all cells")
    parser.add_argument("--out", type=Path, help="default: results/HALF.json in this folder")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # theirs, when no label reaches a row
    name = f"{'named-' if given.named else ''}{given.half}.json"
    out = given.out or RESULTS / name
    names = [OURS] if given.named else given.only
    rows: list[Found] = as_rows(read_json(out)["cells"]) if out.exists() else []
    done = {tuple(row[key] for key in CELL) for row in rows}
    found = sources(given.features, given.half)
    for cell in named_cells() if given.named else cells():
        if tuple(asdict(cell).values()) in done:
            continue
        rows += run_cell(found[cell.data, cell.way], cell, names, given.tasks)
        for row in rows[-len(names) :]:
            print(as_line(row), flush=True)
        about = about_tasks("strangers", half=given.half, reject=REJECT, tasks=given.tasks)
        held = {**about, "against_targets": against_targets(rows), "cells": as_cells(rows)}
        write_lines(out, held)


if __name__ == "__main__":
    main()
