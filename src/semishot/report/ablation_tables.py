"""Records of ablations, and of how a recipe was chosen -> sections."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from semishot.paper import published
from semishot.report.image_preparations import data_root_flag, prepare_command_of, prepared_as
from semishot.report.provenance import provenance, split_seeds
from semishot.report.section import Cell, Grid, Number, Provenance, Section
from semishot.report.statistics import chance, paired, unbiased
from semishot.report.tables import COLUMNS, Measured, beside, cell, is_beside_paper
from semishot.training.recipe_choices import Choice
from semishot.training.records import AblationRecord

PAPER = "ren2018"
"""The preset that the paper's numbers are compared with."""


def ablations_section(records: Sequence[AblationRecord]) -> Section:
    dataset, only, splits = records[0]["dataset"], records[0]["only"], len(split_seeds(records))
    tests = ", ".join(str(m) for m in sorted({r["unlabeled"] for r in records}))
    command = f"semishot reproduce ablations --dataset {shlex.quote(dataset)} --splits {splits}"
    command += f" --only {shlex.quote(only)}" if only else ""
    return Section(
        f"What made the numbers ({dataset})" + (f": {only}" if only else "") + prepared_as(records),
        [ablations_grid(records)],
        provenance(records),
        [("all of it", command + data_root_flag(records))],
        prepare_command_of(records),
        about=[
            f"One change at a time, M = {tests} at test. `difference` is from the preset's own cell, "
            f"split by split, with its 95 % interval by Student's t over {splits} splits, and t. If the "
            "interval contains zero, no effect is established. `from the paper` is the difference from "
            "the paper's cell, with z."
        ],
    )


def ablations_grid(records: Sequence[AblationRecord]) -> Grid:
    """Each variant beside the cell it is compared with, split by split."""
    base = {cell_of(r): r["accuracy"] for r in records if not r["variant"]}
    groups: dict[tuple[str, int, str, str], dict[int, list[AblationRecord]]] = {}
    for record in records:
        if record["variant"]:
            if cell_of(record) not in base:
                raise ValueError(f"{record['variant']!r} has no cell that it departs from")
            name = record["preset"], record["updates"], record["model"], record["variant"]
            groups.setdefault(name, {}).setdefault(record["distractors"], []).append(record)
    header = ["preset", "updates", "model", "change"]
    for h in published.DISTRACTORS:
        header += [COLUMNS[h], "difference", "from the paper"]
    rows = []
    for (preset, updates, model, variant), columns in groups.items():
        row: list[Cell] = [preset, Number(updates, decimals=0), published.title(model), variant]
        for h in published.DISTRACTORS:
            row += in_column(columns[h], base) if h in columns else ["", "", ""]
        rows.append(row)
    return Grid("One change at a time", header, rows)


def in_column(
    records: Sequence[AblationRecord], base: Mapping[tuple[str, str, int, int], float]
) -> list[Cell]:
    """The mean of the variant, its difference to the cell itself, and from the paper's."""
    ours = np.array([100 * r["accuracy"] for r in records])
    own = np.array([100 * base[cell_of(r)] for r in records])
    gap = paired(dict(enumerate(ours)), dict(enumerate(own)))
    difference = Number(float((ours - own).mean()), form="difference")
    if gap is not None:
        difference = replace(difference, note=gap.interval, t=gap.t, needed=chance(gap.splits))
    measured = cell(records)
    assert measured is not None
    return [measured.number(), difference, from_paper(measured, records[0])]


def from_paper(measured: Measured, record: AblationRecord) -> Cell:
    """Nothing for a preset that is not the paper's, or a data set that is not."""
    tables = [t for t in published.TABLES.values() if is_beside_paper(t, [record])]
    where = record["model"], record["shot"], record["distractors"]
    theirs = tables[0].cells.get(where) if tables and record["preset"] == PAPER else None
    return beside(measured, theirs, unbiased(theirs.error))[1] if theirs else ""


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
