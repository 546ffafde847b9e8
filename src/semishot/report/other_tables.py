"""How a recipe was chosen, other measurements, and the lines that `evaluate` and `pick` print."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from semishot.errors import counted
from semishot.paper import presets, published
from semishot.report.paper_tables import COLUMNS
from semishot.report.provenance import episode_of, provenance
from semishot.report.render import grid_as_text
from semishot.report.tables import Grid, GridCell, Number, Section, grouped, measured
from semishot.training.config import SEMI_SUPERVISED_INFERENCE, SUPERVISED, Recipe
from semishot.training.records import SETTINGS, AccuracyRecord, Choice, Record

if TYPE_CHECKING:  # it imports torch
    from semishot.training.evaluation import Picked


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

    def settings(pair: tuple[str, AccuracyRecord]) -> str:
        name, record = pair
        return json.dumps([name, record["updates"], *(record.get(k) for k in apart)])

    header = ["model", "accuracy", "splits", "data set", "preset", "updates", "test episode"]
    rows = [other_row(pairs) for pairs in grouped(others, settings).values()]
    return Section(
        "Other measurements",
        [Grid("Mean over splits ± standard error", [*header, "changed", "file"], rows)],
        provenance([record for _, record in others]),
        note="Runs that depart from their preset, episodes of other shapes, methods of your own. "
        "`semishot evaluate` tests a run folder again.",
    )


def other_row(pairs: Sequence[tuple[str, AccuracyRecord]]) -> list[GridCell]:
    name, r = pairs[0]
    cell = measured(record for _, record in pairs)
    model, updates = published.title(r["model"]), Number(r["updates"], decimals=0)
    return [
        *(model, cell.number() if cell else None, len(pairs), r["dataset"], r["preset"], updates),
        *(f"{episode_of(r)}, {r['split']} classes", departures(r) or None, name),
    ]


def departures(record: Record) -> str:
    """Options of the method, and what differs from the preset."""
    changed = record["options"] | (departed(record) or {})
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in changed.items())


def departed(record: Record) -> dict[str, Any] | None:
    """Settings of recipe, training episode and refinement at test that are not the preset's, updates apart,
    by a name that says where they belong; None if there is no such preset."""
    if not presets.exists(record["preset"], record["dataset"]):
        return None
    preset = presets.preset(record["preset"], record["dataset"])
    refines = record["model"] not in (SUPERVISED, SEMI_SUPERVISED_INFERENCE)
    recipe = preset.recipe.with_updates(max(record["updates"], 1)).as_dict()
    train = preset.episode(record["shot"], record["distractors"], refines).as_dict()
    at_test = preset.at_test.get((record["model"], record["distractors"]), {})
    kinds = {
        "": (recipe, Recipe().as_dict() | record["recipe"]),
        "training ": (train, record["train"]),
        "at test ": (at_test, record.get("at_test", {})),
    }
    return {
        kind + name: own.get(name)
        for kind, (usual, own) in kinds.items()
        for name in {**usual, **own}
        if json.dumps(usual.get(name)) != json.dumps(own.get(name))  # a tuple is a list in a file
    }


# What `semishot evaluate` and `semishot pick` print: a line per run


def records_as_text(records: Sequence[Record]) -> str:
    """One line per run, then the mean of each method with its options; both kinds of ± are named."""

    def method(r: Record) -> str:
        return ", ".join([r["model"], *(f"{k} {v}" for k, v in r["options"].items())])

    def row(r: Record) -> list[GridCell]:
        interval = Number(100 * r["accuracy_ci95"]) if r["episodes"] > 1 else None
        return [method(r), r["split_seed"], Number(100 * r["accuracy"]), interval]

    header = ["model", "split seed", "accuracy %", "± 95 % over episodes"]
    lines = [grid_as_text(Grid("", header, [row(r) for r in records]))]
    for name, own in grouped(records, method).items():
        mean = measured(own)
        if mean and mean.splits > 1:
            error = f"{mean.error:.2f} (standard error over {mean.splits} splits)"
            lines.append(f"{name}: mean {mean.mean:.2f} ± {error}")
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
