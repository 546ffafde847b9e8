"""Table 5, ablations, how a recipe was chosen, and all other measurements: records -> sections."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from semishot.paper import presets, published
from semishot.paper.published import CLASSIFIERS, FEATURES, published_baseline
from semishot.paper.requests import Table5Request
from semishot.report.paper_tables import COLUMNS, Measured, beside, is_beside_paper, measured
from semishot.report.provenance import (
    about_images,
    commands_for,
    prepared_as,
    provenance,
    split_seeds,
)
from semishot.report.section import Grid, GridCell, Number, Section
from semishot.report.statistics import chance, paired, unbiased
from semishot.training.config import Recipe
from semishot.training.records import (
    SETTINGS,
    AblationRecord,
    AccuracyRecord,
    BaselineRecord,
    Choice,
    Record,
)

# Table 5

USUAL_UPDATES = 4_000
"""Of the pre-training."""
TABLE5_NOTE = (
    "± is half the 95 % interval over the episodes of a split, `over splits` the standard error over splits. "
    "The paper's ± is taken as a standard error in z. LR is the authors' 200 steps of Adam; LR, converged is "
    "scikit-learn's."
)
SCALE_BUG = (
    "Scale bug: pre-trained on pixels from 0 to 255, as the authors' code does on Omniglot and "
    "tieredImageNet; the paper's `CNN pre` cells there belong to these rows."
)
AUTHORS_RANDOM = (
    "The paper's `CNN rnd` cells belong to `CNN rnd, the authors'`, the one network that the authors' code "
    "draws in every run."
)


def table5_section(records: Sequence[BaselineRecord]) -> Section:
    dataset, updates = records[0]["dataset"], max(r["updates"] for r in records)
    notes = [*about_images(records), TABLE5_NOTE]
    if any(r["features"] == "authors_random" for r in records):
        notes.append(AUTHORS_RANDOM)
    if any(r["options"] for r in records):
        notes.append(SCALE_BUG)
    trained = f", pre-trained for {updates:,} updates" if updates else ""
    return Section(
        f"Table 5 ({dataset}, 5-way){prepared_as(records)}{trained}",
        [table5_grid(records)],
        provenance(records),
        commands_for(records, table5_command(records)),
        notes,
    )


def table5_command(records: Sequence[BaselineRecord]) -> str:
    """The command that measures these records, with what is not its default."""
    usual, words = Table5Request(), ["--dataset", records[0]["dataset"]]
    seen = {r["features"] for r in records}
    if seen != set(usual.features):
        words += ["--features", *(features for features in FEATURES if features in seen)]
    if any(r["options"] for r in records):
        words.append("--with-scale-bug")
    if (splits := len(split_seeds(records))) != usual.splits:
        words += ["--splits", str(splits)]
    if (updates := max(r["updates"] for r in records)) not in (0, USUAL_UPDATES):
        words += ["--updates", str(updates)]
    return f"semishot reproduce table5 {shlex.join(words)}"


def table5_grid(records: Sequence[BaselineRecord]) -> Grid:
    """One data set, beside the paper's numbers where it has a cell."""
    dataset, cells = records[0]["dataset"], table5_cells(records)
    shots = sorted({shot for *_, shot in cells})
    header = ["model", "splits"]
    for shot in shots:
        header += [f"{shot}-shot", "over splits", "paper", "difference"]
    rows = []
    for classifier, features, bug in dict.fromkeys(key[:3] for key in cells):
        own = {shot: cells.get((classifier, features, bug, shot)) for shot in shots}
        label = f"{CLASSIFIERS[classifier]} {FEATURES[features]}" + (", scale bug" * bug)
        row: list[GridCell] = [label, max(ours.splits for ours in own.values() if ours)]
        for shot, ours in own.items():
            theirs = published_baseline(dataset, shot, classifier, features)
            over_splits = Number(ours.error, form="error") if ours and ours.splits > 1 else None
            row += [Number(ours.mean, ours.interval) if ours else None, over_splits]
            row += beside(ours, theirs, theirs.error if theirs else 0.0)
        rows.append(row)
    return Grid("", header, rows)


def table5_cells(
    records: Sequence[BaselineRecord],
) -> dict[tuple[str, str, bool, int], Measured]:
    """By classifier, features, scale bug and shot, in the order of the table."""
    groups: dict[tuple[str, str, bool, int], list[BaselineRecord]] = {}
    for r in records:
        key = r["model"], r["features"], bool(r["options"].get("scale_bug")), r["shot"]
        groups.setdefault(key, []).append(r)
    kinds = [*((features, False) for features in FEATURES), ("pretrained", True)]
    order = product(CLASSIFIERS, kinds, sorted({r["shot"] for r in records}))
    cells = {
        (c, *kind, shot): measured(groups.get((c, *kind, shot), ())) for c, kind, shot in order
    }
    return {key: cell for key, cell in cells.items() if cell}


def table5_as_json(records: Sequence[BaselineRecord]) -> str:
    """The cells as plain data, beside the published ones."""
    dataset, cells = records[0]["dataset"], []
    for (classifier, features, bug, shot), ours in table5_cells(records).items():
        where = {"model": classifier, "features": features, "scale_bug": bug, "shot": shot}
        cell: dict[str, Any] = {**where, **ours.as_json()}
        if theirs := published_baseline(dataset, shot, classifier, features):
            cell |= {"paper_accuracy": theirs.mean / 100, "paper_error": theirs.error / 100}
        cells.append(cell)
    return json.dumps(cells, indent=1)


# Ablations

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
        commands_for(records, command),
        [
            f"One change at a time, M = {tests} at test. `difference`: from the preset's own cell, paired "
            f"over {splits} splits, with its 95 % interval and t."
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
        row: list[GridCell] = [preset, Number(updates, decimals=0), published.title(model), variant]
        for h in published.DISTRACTORS:
            row += in_column(columns[h], base) if h in columns else ["", "", ""]
        rows.append(row)
    return Grid("", header, rows)


def in_column(
    records: Sequence[AblationRecord], base: Mapping[tuple[str, str, int, int], float]
) -> list[GridCell]:
    """The mean of the variant, its difference to the cell itself, and from the paper's.

    The last is empty for a preset that is not the paper's, or a data set that is not.
    """
    ours = {r["split_seed"]: 100 * r["accuracy"] for r in records}
    own = {r["split_seed"]: 100 * base[cell_of(r)] for r in records}
    gap, cell, first = paired(ours, own), measured(records), records[0]
    assert cell is not None
    difference = Number(cell.mean - sum(own.values()) / len(own), form="difference")
    if gap is not None:
        low, high = gap.interval
        note, needed = f"{low:+.2f} to {high:+.2f}", chance(gap.splits)
        difference = replace(difference, note=note, t=gap.t, needed=needed)
    tables = [t for t in published.TABLES.values() if is_beside_paper(t, [first])]
    key = first["model"], first["shot"], first["distractors"]
    theirs = tables[0].cells.get(key) if tables and first["preset"] == PAPER else None
    from_paper = beside(cell, theirs, unbiased(theirs.error))[1] if theirs else ""
    return [cell.number(), difference, from_paper]


def cell_of(record: AblationRecord) -> tuple[str, str, int, int]:
    """What a variant and the cell it is compared with have in common."""
    return record["preset"], record["model"], record["distractors"], record["split_seed"]


def choice_section(choice: Choice) -> Section:
    """How a recipe was chosen."""
    header = ["round", "recipe", *(COLUMNS[h] for h in published.DISTRACTORS)]
    rows: list[list[GridCell]] = [
        [
            tried["round"],
            tried["change"],
            Number(tried["accuracy_0"], tried["half_range_0"]),
            Number(tried["accuracy_5"], tried["half_range_5"]),
        ]
        for tried in choice["variants"]
    ]
    facts = {name: choice[name] for name in ("device", "versions", "date")}
    grids = [Grid("On validation classes", header, rows)]
    return Section(choice["title"], grids, facts, [choice["again"]], [choice["about"]])


# Other measurements


def others_section(others: Sequence[tuple[str, AccuracyRecord]]) -> Section:
    """Records that are in no table, each with its file: a row for the splits of the same settings."""
    apart = [name for name in SETTINGS if name != "split_seed"]
    groups: dict[str, list[tuple[str, AccuracyRecord]]] = {}
    for name, record in others:
        key = json.dumps([name, record["updates"], *(record.get(k) for k in apart)])
        groups.setdefault(key, []).append((name, record))
    header = ["model", "accuracy", "splits", "data set", "preset", "updates", "test episode"]
    rows = [other_row(pairs) for pairs in groups.values()]
    return Section(
        "Other measurements",
        [Grid("Mean over splits ± standard error", [*header, "changed", "file"], rows)],
        provenance([record for _, record in others]),
        notes=[
            "Runs that depart from their preset, episodes of other shapes, methods of your own. "
            "`semishot evaluate` tests a run folder again."
        ],
    )


def other_row(pairs: Sequence[tuple[str, AccuracyRecord]]) -> list[GridCell]:
    name, r = pairs[0]
    episode = (
        f"{r['way']}-way {r['shot']}-shot, M = {r['unlabeled']}, H = {r['distractors']}, "
        f"{r['query']} queries, {r['split']} classes"
    )
    cell = measured(record for _, record in pairs)
    model, updates = published.title(r["model"]), Number(r["updates"], decimals=0)
    accuracy, changed = cell.number() if cell else None, departures(r) or None
    return [
        *(model, accuracy, len(pairs)),
        *(r["dataset"], r["preset"], updates, episode, changed, name),
    ]


def departures(record: Record) -> str:
    """Options of the method, and where the recipe or the training episode differs from the preset's."""
    changed = dict(record["options"])
    changed |= {f"at test {name}": value for name, value in record.get("at_test", {}).items()}
    if presets.exists(record["preset"], record["dataset"]):
        preset = presets.preset(record["preset"], record["dataset"])
        usual = preset.recipe.with_updates(max(record["updates"], 1)).as_dict()
        own, shape = Recipe().as_dict() | record["recipe"], preset.train.as_dict()
        changed |= {
            name: value
            for name, value in own.items()
            if json.dumps(usual.get(name)) != json.dumps(value)
        }
        changed |= {
            f"training {name}": value
            for name, value in record["train"].items()
            if name in ("way", "query", "batch") and shape.get(name) != value
        }
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in changed.items())
