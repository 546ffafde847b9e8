"""Ablations, how a recipe was chosen, other measurements, and the lines that `evaluate` and `pick` print."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from semishot.errors import counted
from semishot.paper import presets, published
from semishot.report.paper_tables import COLUMNS, is_beside_paper
from semishot.report.provenance import provenance, section_of, split_seeds
from semishot.report.render import grid_as_text
from semishot.report.tables import Grid, GridCell, Number, Section, beside, measured, paired
from semishot.training.config import Recipe
from semishot.training.records import SETTINGS, AblationRecord, AccuracyRecord, Choice, Record

if TYPE_CHECKING:  # it imports torch
    from semishot.training.evaluation import Picked

# Ablations


def ablations_section(records: Sequence[AblationRecord]) -> Section:
    dataset, only, splits = records[0]["dataset"], records[0]["only"], len(split_seeds(records))
    tests = ", ".join(str(m) for m in sorted({r["unlabeled"] for r in records}))
    return section_of(
        records,
        f"What made the numbers ({dataset})" + (f": {only}" if only else ""),
        [ablations_grid(records)],
        ["ablations", "--splits", str(splits), *(["--only", only] if only else [])],
        f"One change at a time, M = {tests} at test. `difference`: from the preset's own cell, paired over "
        f"{splits} splits, with its 95 % interval and t.",
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
    ours, first = measured(records), records[0]
    assert ours is not None
    own = {r["split_seed"]: 100 * r["accuracy"] for r in records}
    difference = paired(own, {r["split_seed"]: 100 * base[cell_of(r)] for r in records})
    tables = [t for t in published.TABLES.values() if is_beside_paper(t, [first])]
    key = first["model"], first["shot"], first["distractors"]
    theirs = tables[0].cells.get(key) if tables and first["preset"] == "ren2018" else None
    return [ours.number(), difference, beside(ours, theirs)[1] if theirs else ""]


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
    return Section(choice["title"], grids, facts, [choice["again"]], choice["about"])


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
        note="Runs that depart from their preset, episodes of other shapes, methods of your own. "
        "`semishot evaluate` tests a run folder again.",
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


# What `semishot evaluate` and `semishot pick` print: a line per run


def records_as_text(records: Sequence[Record]) -> str:
    """One line per run, then the mean of each method with its options; both kinds of ± are named."""
    methods: dict[str, list[Record]] = {}
    rows: list[list[GridCell]] = []
    for r in records:
        method = ", ".join([r["model"], *(f"{k} {v}" for k, v in r["options"].items())])
        methods.setdefault(method, []).append(r)
        interval = Number(100 * r["accuracy_ci95"]) if r["episodes"] > 1 else None
        rows.append([method, r["split_seed"], Number(100 * r["accuracy"]), interval])
    header = ["model", "split seed", "accuracy %", "± 95 % over episodes"]
    lines = [grid_as_text(Grid("", header, rows))]
    for method, own in methods.items():
        mean = measured(own)
        if mean and mean.splits > 1:
            error = f"{mean.error:.2f} (standard error over {mean.splits} splits)"
            lines.append(f"{method}: mean {mean.mean:.2f} ± {error}")
    return "\n".join(lines)


def picked_as_text(picked: "Picked") -> str:
    """All runs on the validation classes, the best on the test classes, and how sure the choice is."""
    record, episodes = picked.record, counted(picked.record["episodes"], "episode")
    header = ["method", "split seed", "validation accuracy %"]
    rows: list[list[GridCell]] = [
        [published.title(c.model), c.split_seed, Number(100 * c.accuracy, 100 * c.accuracy_ci95)]
        for c in picked.candidates
    ]
    accuracy = f"{100 * record['accuracy']:.2f} ± {100 * record['accuracy_ci95']:.2f} %"
    text = grid_as_text(Grid("", header, rows)) + (
        f"\nSaved: {published.title(record['model'])} of split seed {record['split_seed']}. "
        f"On the test classes: {accuracy}. ± is the 95 % interval over {episodes}."
    )
    if picked.lead is None:
        return text
    difference, error = 100 * picked.lead.difference, 100 * picked.lead.ci95
    sure = "more than" if difference > error else "no more than"
    above = f"{difference:.2f} ± {error:.2f} points above the next: {sure} chance."
    return f"{text}\nOn the validation classes it is {above}"
