"""Piles with strangers in them: PrototypeClassifier beside what a user could do instead, cell by cell.

    PYTHONPATH=benchmarks python -m pile_tasks.encode DATA FOLDER
    python benchmarks/piles.py FOLDER choose --before PATH      as often as you like
    python benchmarks/piles.py FOLDER report --before PATH      once, when the rule is final
    python benchmarks/piles.py --page                           docs/piles_tables.md from what is stored

A cell has a domain and a shape: photographs by two encoders, drawings, text, digits, tables and plane shapes;
1 to 50 classes, 1 to 10 labels, piles of 20 to 5,000, none to all of them strangers. Its tasks are the same
for all methods. Results are written after each cell; what is in the file is not run again, so that a method
can be added later: `--method FILE` runs the functions that FILE defines (see pile_tasks/methods.py), and
`--only` names methods. PATH holds another version's `semishot/`, such as `src` of a checkout.
"""

import argparse
import importlib.util
import inspect
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from measurement import about_tasks
from pages import between, write_lines
from pile_tasks.cells import Cell, cells
from pile_tasks.domains import domains
from pile_tasks.figures import Found, figures, summary
from pile_tasks.methods import (
    BEFORE,
    NEW_ROWS,
    OURS,
    RIVALS,
    TOLD,
    Before,
    Method,
    semishot,
    semishot_on_new_rows,
)
from pile_tasks.tables import BEGIN, COLUMNS, END, lines, packed, page_parts, unpacked
from semishot.system.files import read_json

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results" / "piles", ROOT / "docs" / "piles_tables.md"


def methods(before: Path | None, files: Sequence[Path]) -> dict[str, Method]:
    found: dict[str, Method] = {OURS: semishot, NEW_ROWS: semishot_on_new_rows, **RIVALS}
    if before:
        found[BEFORE] = Before(before)
    for path in files:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        own = inspect.getmembers(module, inspect.isfunction)
        found |= {
            name: made for name, made in own if made.__module__ == path.stem and name[0] != "_"
        }
    return found


def run_cell(cell: Cell, chosen: dict[str, Method], wanted: int) -> dict[str, Found]:
    """Figures of each method, over the same tasks."""
    each: dict[str, list[Found]] = {name: [] for name in chosen}
    for seed in range(cell.tasks(wanted)):
        task = cell.task(seed)
        known = task.labels != -2
        for name, method in chosen.items():
            rows = slice(None) if name in TOLD else known
            features = task.features[rows]
            if cell.domain.kind == "tables" and name not in TOLD:  # as a user would
                features = (features - features.mean(0)) / np.maximum(features.std(0), 1e-9)
            begun = time.perf_counter()
            answer = method(features, task.labels[rows])
            seconds = time.perf_counter() - begun
            each[name].append({**figures(answer, task.truth[task.pile]), "seconds": seconds})
    return {name: summary(found) for name, found in each.items()}


def read_cells(path: Path) -> Found:
    found = read_json(path)
    return {**found, "cells": [*map(unpacked, found["cells"])]}


def filled(document: str, folder: Path) -> str:
    found = [read_cells(path) for path in sorted(folder.glob("*.json"))]
    return between(document, BEGIN, END, page_parts(found))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("features", type=Path, nargs="?", help="the folder of pile_tasks.encode")
    parser.add_argument("part", choices=("choose", "report"), nargs="?", default="choose")
    parser.add_argument("--tasks", type=int, default=10, help="of a cell; large piles have two")
    parser.add_argument("--before", type=Path, help="a folder with another version's semishot/")
    parser.add_argument("--method", type=Path, nargs="+", default=[], help="Python files")
    parser.add_argument("--only", nargs="+", help="names of methods")
    parser.add_argument("--again", action="store_true", help="of --only, replace what is stored")
    parser.add_argument("--cells", default="", help="only cells whose name has this in it")
    parser.add_argument("--out", type=Path, help="default: results/piles/PART.json")
    parser.add_argument("--page", action="store_true", help="fill docs/piles_tables.md")
    given = parser.parse_args(arguments)
    if given.page:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), RESULTS), encoding="utf-8")
        return
    if given.features is None:
        parser.error("FOLDER with features is missing; make one with `-m pile_tasks.encode`")
    threadpool_limits(1)  # small products: on a busy machine more threads only wait for each other
    warnings.simplefilter("ignore")  # theirs, when no label reaches a row
    out = given.out or RESULTS / f"{given.part}.json"
    held: dict[str, Found] = {}
    if out.exists():
        held = {entry["cell"]: entry for entry in read_cells(out)["cells"]}
    every = methods(given.before, given.method)
    if given.only and (unknown := set(given.only) - set(every)):
        parser.error(f"no method {sorted(unknown)}; there are {sorted(every)}")
    wanted = {name: made for name, made in every.items() if name in (given.only or every)}
    about = about_tasks("piles", part=given.part, tasks=given.tasks)
    for cell in cells(domains(given.features, given.part)):
        if given.cells not in cell.name:
            continue
        shape = {key: value for key, value in asdict(cell.shape).items() if value}
        new = {"cell": cell.name, "kind": cell.domain.kind, "note": cell.note, "shape": shape}
        entry = held.setdefault(cell.name, {**new, "tasks": cell.tasks(given.tasks), "methods": {}})
        missing = {n: m for n, m in wanted.items() if given.again or n not in entry["methods"]}
        if missing:
            entry["methods"] |= run_cell(cell, missing, entry["tasks"])
            print("\n".join(lines(entry)), flush=True)
            stored = {**about, "figures": list(COLUMNS), "cells": [*map(packed, held.values())]}
            write_lines(out, stored)


if __name__ == "__main__":
    main()
