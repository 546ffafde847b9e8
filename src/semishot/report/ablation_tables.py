"""Records of ablations, and of how a recipe was chosen -> sections."""

import shlex
from collections.abc import Sequence

import numpy as np

from semishot.paper import published
from semishot.report.images import preparing, using
from semishot.report.provenance import provenance, split_seeds
from semishot.report.section import Cell, Grid, Number, Provenance, Section
from semishot.report.statistics import paired
from semishot.report.tables import COLUMNS
from semishot.training.recipe_choices import Choice
from semishot.training.records import AblationRecord


def ablations_section(records: Sequence[AblationRecord]) -> Section:
    dataset, only, splits = records[0]["dataset"], records[0]["only"], len(split_seeds(records))
    tests = ", ".join(str(m) for m in sorted({r["unlabeled"] for r in records}))
    command = f"semishot reproduce ablations --dataset {shlex.quote(dataset)} --splits {splits}"
    command += f" --only {shlex.quote(only)}" if only else ""
    return Section(
        f"What made the numbers ({dataset})" + (f": {only}" if only else ""),
        [ablations_grid(records)],
        provenance(records),
        [("all of it", command + using(records))],
        preparing(records),
        about=[
            f"One change at a time, M = {tests} at test; `difference` is to the preset's own cell, "
            f"split by split, with its 95 % interval by Student's t over {splits} splits, and t. If the "
            "interval holds zero, the change may be worth nothing."
        ],
    )


def ablations_grid(records: Sequence[AblationRecord]) -> Grid:
    """Each variant beside the cell it is compared with, split by split."""
    base = {cell_of(r): r["accuracy"] for r in records if not r["variant"]}
    groups: dict[tuple[str, int, str, str], dict[int, list[tuple[float, float]]]] = {}
    for record in records:
        if record["variant"]:
            if cell_of(record) not in base:
                raise ValueError(f"{record['variant']!r} has no cell that it departs from")
            pair = 100 * record["accuracy"], 100 * base[cell_of(record)]
            name = record["preset"], record["updates"], record["model"], record["variant"]
            groups.setdefault(name, {}).setdefault(record["distractors"], []).append(pair)
    header = ["preset", "updates", "model", "change"]
    for h in published.DISTRACTORS:
        header += [COLUMNS[h], "difference"]
    rows = []
    for (preset, updates, model, variant), columns in groups.items():
        row: list[Cell] = [preset, Number(updates, decimals=0), published.title(model), variant]
        for h in published.DISTRACTORS:
            row += difference(columns[h]) if h in columns else ["", ""]
        rows.append(row)
    return Grid("One change at a time", header, rows)


def difference(pairs: Sequence[tuple[float, float]]) -> list[Cell]:
    """The mean of the variant, and of its difference to the cell itself."""
    ours, base = np.array(pairs).T
    mean, gap = Number(float(ours.mean())), paired(dict(enumerate(ours)), dict(enumerate(base)))
    if gap is None:
        return [mean, Number(float((ours - base).mean()), form="difference")]
    return [mean, Number(gap.mean, form="difference", note=gap.interval, t=gap.t)]


def cell_of(record: AblationRecord) -> tuple[str, str, int, int]:
    """What a variant and the cell it is compared with have in common."""
    return record["preset"], record["model"], record["distractors"], record["split_seed"]


def choice_section(choice: Choice) -> Section:
    header = ["round", "recipe", *(COLUMNS[h] for h in published.DISTRACTORS)]
    rows: list[list[Cell]] = [
        [
            tried["round"],
            tried["change"],
            Number(tried["accuracy_0"], tried["half_range_0"]),
            Number(tried["accuracy_5"], tried["half_range_5"]),
        ]
        for tried in choice["variants"]
    ]
    return Section(
        choice["title"],
        [Grid("On validation classes", header, rows)],
        Provenance([choice["device"]], [choice["versions"]], [choice["date"]]),
        [("all of it", choice["again"])],
        about=[choice["about"]],
    )
