"""Piles with strangers in them: PrototypeClassifier beside what a user could do instead, cell by cell.

    PYTHONPATH=benchmarks python -m stranger_tasks.features DATA FOLDER
    python benchmarks/strangers.py FOLDER --half choose          as often as you like
    python benchmarks/strangers.py FOLDER --half report          once, when the rule is final
    python benchmarks/strangers.py FOLDER --half fresh           once, too
    python benchmarks/strangers.py FOLDER --half report --named  strangers that the user has named
    python benchmarks/strangers.py --markdown                    tables of what is stored: docs/strangers.md

Birds (first 20 classes to choose, last 20 to report), miniImageNet (validation to choose, test to report,
40 training classes fresh) and scikit-learn's digits (every second drawing). 5-, 10- and 20-way; 1, 3, 5
labels; strangers none, as many as members (few kinds), many kinds with 3 of each, three times as many as
members; balanced or 2 to 30 per class. Birds leave no class over at 20-way: strangers are then
miniImageNet's. Results are written after each cell, and cells that are in the file are not run again.

Figures, all on the pile: accuracy on members; AUROC; at reject = 0.05 the members lost and the strangers
found, and what cutoffs with knowledge of the truth find where each task loses the share that is lost on
average; ECE of the class probabilities on members and of the probability of a stranger; seconds. Errors
are standard errors over tasks.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from measurement import about_tasks
from pages import write_lines
from semishot import PrototypeClassifier
from semishot.system.files import read_json
from stranger_tasks.figures import NEW_ROWS, OLD, OURS, REJECT, Found, cell_of, figures
from stranger_tasks.rivals import RIVALS
from stranger_tasks.tables import markdown
from stranger_tasks.tasks import Cell, Source, Task, cells, draw, named_cells, sources

RESULTS = Path(__file__).parents[1] / "results" / "strangers"
FEWER_TASKS = 5
"""At most, for digits and 20-way: a task has up to 1,300 rows, so its own figures are surer."""
CELL = [field.name for field in fields(Cell)]


def ours(task: Task) -> Found:
    """The pile by the graph it is part of."""
    fitted = PrototypeClassifier(reject=REJECT).fit(task.features, task.labels)
    pile = task.pile
    return {
        "classes": fitted.label_distributions_[pile],
        "score": fitted.distractor_score_[pile],
        "rejected": fitted.transduction_[pile] == -1,
        "stranger": fitted.stranger_proba_[pile],
    }


def ours_on_new_rows(task: Task) -> Found:
    """Each half of the pile by a model that has seen the other half alone."""
    pile = np.flatnonzero(task.pile)
    halves = np.random.default_rng(len(pile)).permutation(len(pile)) % 2
    found: Found = {}
    for half in (0, 1):
        out = pile[halves == half]
        kept = np.setdiff1d(np.arange(len(task.labels)), out)
        fitted = PrototypeClassifier(reject=REJECT).fit(task.features[kept], task.labels[kept])
        new = task.features[out]
        answers = {
            "classes": fitted.predict_proba(new),
            "score": fitted.distractor_score(new),
            "rejected": fitted.predict(new) == -1,
            "stranger": fitted.stranger_proba(new),
        }
        for key, values in answers.items():
            whole = found.setdefault(key, np.empty((len(pile), *values.shape[1:]), values.dtype))
            whole[halves == half] = values
    return found


def rival(name: str) -> Callable[[Task], Found]:
    def run(task: Task) -> Found:
        known = task.labels != -2
        classes, score = RIVALS[name](task.features[known], task.labels[known])
        found = {"classes": classes, "score": score}
        return {**found, "rejected": score > 1 - REJECT} if name == OLD else found

    return run


CONTENDERS: dict[str, Callable[[Task], Found]] = {OURS: ours, NEW_ROWS: ours_on_new_rows}
CONTENDERS |= {name: rival(name) for name in RIVALS}


def run_cell(source: Source, cell: Cell, names: list[str], tasks: int) -> Found:
    tasks = min(tasks, FEWER_TASKS) if cell.data == "digits" or cell.way == 20 else tasks
    each: dict[str, list[Found]] = {name: [] for name in names}
    for seed in range(tasks):
        task = draw(source, cell, seed)
        for name in names:
            begun = time.perf_counter()
            found = CONTENDERS[name](task)
            found["seconds"] = time.perf_counter() - begun
            each[name].append(figures(found, task))
    return cell_of(cell, each)


def lines(entry: Found) -> list[str]:
    kind = "balanced" if entry["balanced"] else "2 to 30"
    named = "-" if entry["named"] is None else entry["named"]
    cell = f"{entry['data']:13} {entry['way']:2}-way {entry['shot']:2} {entry['strangers']:11} {kind:8} "
    found = []
    for name, row in entry["contenders"].items():
        text = f"{cell}{named:2} named  {name:19} {100 * row['accuracy']:5.1f}"
        for key in ("auroc", "lost", "found", "oracle_at_same_loss", "ece", "ece_stranger"):
            if key in row:
                text += f"  {key} {row[key]:.3f}"
        found.append(text)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "features", type=Path, nargs="?", help="the folder of stranger_tasks.features"
    )
    parser.add_argument("--half", choices=("choose", "report", "fresh"), default="choose")
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--only", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--named", action="store_true", help="named strangers instead of all cells")
    parser.add_argument("--out", type=Path, help="default: results/strangers/[named-]HALF.json")
    parser.add_argument(
        "--markdown", action="store_true", help="print tables of the stored results"
    )
    given = parser.parse_args(arguments)
    if given.markdown:
        print(markdown(given.out or RESULTS))
        return
    if given.features is None:
        parser.error("FOLDER with features is missing; make one with `-m stranger_tasks.features`")
    torch.set_num_threads(1)
    threadpool_limits(1)  # small products: on a busy machine more threads only wait for each other
    warnings.simplefilter("ignore")  # theirs, when no label reaches a row
    out = given.out or RESULTS / f"{'named-' if given.named else ''}{given.half}.json"
    names = [OURS] if given.named else given.only
    held: list[Found] = read_json(out)["cells"] if out.exists() else []
    done = {tuple(entry[key] for key in CELL) for entry in held}
    found = sources(given.features, given.half)
    for cell in named_cells(given.half) if given.named else cells(given.half):
        if tuple(asdict(cell).values()) in done:
            continue
        held.append(run_cell(found[cell.data, cell.way], cell, names, given.tasks))
        print("\n".join(lines(held[-1])), flush=True)
        about = about_tasks("strangers", half=given.half, reject=REJECT, tasks=given.tasks)
        write_lines(out, {**about, "cells": held})


if __name__ == "__main__":
    main()
