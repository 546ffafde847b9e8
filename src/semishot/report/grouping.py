"""Which records belong to a table or a figure of the paper, and which are something else."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from semishot.paper import presets, published
from semishot.report import tables
from semishot.report.image_preparations import rank
from semishot.report.provenance import provenance
from semishot.report.section import Cell, Grid, Number, Section
from semishot.training.config import (
    NOT_REFINED,
    SEMI_SUPERVISED_INFERENCE,
    SUPERVISED,
    Recipe,
)
from semishot.training.records import (
    AblationRecord,
    AccuracyRecord,
    BaselineRecord,
    MaskRecord,
    Record,
)
from semishot.training.result_files import SETTINGS, identity

Plain = dict[str, tuple[str, AccuracyRecord]]
"""By identity: the name of the file that a record comes from, and the record."""


@dataclass(frozen=True)
class Group:
    """The records of a table or figure: one data set, preset and number of updates."""

    name: str
    table: published.Table
    records: list[AccuracyRecord]


@dataclass
class Grouped:
    tables: list[Group] = field(default_factory=list)
    figures: list[Group] = field(default_factory=list)
    baselines: dict[str, list[BaselineRecord]] = field(default_factory=dict)
    """Keys are file names, as in the next two fields."""
    masks: dict[str, list[MaskRecord]] = field(default_factory=dict)
    ablations: dict[str, list[AblationRecord]] = field(default_factory=dict)
    others: list[tuple[str, AccuracyRecord]] = field(default_factory=list)
    """Each with the file that it comes from."""


def group(files: dict[str, list[Record]]) -> Grouped:
    out = Grouped()
    plain: dict[tuple[str, str, int, str], Plain] = {}
    for name, records in files.items():
        for record in records:
            if record["kind"] == "baseline":
                out.baselines.setdefault(name, []).append(record)
            elif record["kind"] == "masks":
                out.masks.setdefault(name, []).append(record)
            elif record["kind"] == "ablation":
                out.ablations.setdefault(name, []).append(record)
            else:
                prepared = record.get("preparation", "")
                key = record["dataset"], record["preset"], record["updates"], prepared
                # measured twice, for a table and for a figure: the later file's is used
                plain.setdefault(key, {})[identity(record)] = name, record
    for (dataset, *_), own in sorted(plain.items(), key=in_order):
        used = set()
        figure = published.table(published.FIGURE_UNLABELED, dataset)
        for name, table, least, place in (
            (*table_of(dataset), 1, out.tables),
            (published.FIGURE_UNLABELED, figure, 2, out.figures),
        ):
            taken = [r for _, r in own.values() if is_by_its_preset(r) and is_of_table(r, table)]
            if len({r["unlabeled"] for r in taken}) >= least:
                place.append(Group(name, table, taken))
                used |= {identity(r) for r in taken}
        out.others += [pair for key, pair in own.items() if key not in used]
    # the paper's data set first
    out.tables.sort(key=lambda each: (each.name, each.records[0]["dataset"] != each.table.dataset))
    return out


def in_order(pair: tuple[tuple[str, str, int, str], Plain]) -> tuple[object, ...]:
    """By data set, preset and updates; of one table the authors' images first."""
    (*settings, _), own = pair
    return *settings, rank(next(iter(own.values()))[1])


def table_of(dataset: str) -> tuple[str, published.Table]:
    """The paper's table of a data set; others are measured like Table 1."""
    named = [(n, t) for n, t in published.TABLES.items() if t.dataset == dataset]
    return named[0] if named else ("table1", published.TABLES["table1"])


def is_of_table(record: Record, table: published.Table) -> bool:
    """Whether a record was tested on the episodes of this table."""
    test = table.tests.get(record["unlabeled"])
    return (
        test is not None
        and (record["way"], record["query"]) == (test.way, test.query)
        and record["model"] != NOT_REFINED
        and record["shot"] in table.shots
        and record["distractors"] in published.DISTRACTORS
    )


def is_by_its_preset(record: Record) -> bool:
    """Whether a run was trained by its preset, with no change except the number of updates."""
    exists = presets.exists(record["preset"], record["dataset"])
    if not exists or record["options"] or record["split"] != "test":
        return False
    preset = presets.preset(record["preset"], record["dataset"])
    if "trained_as" in record:  # refined at test by another method than in training
        return False
    refines = record["model"] not in (SUPERVISED, SEMI_SUPERVISED_INFERENCE)
    train = preset.episode(record["shot"], record["distractors"], refines)
    usual = preset.refined_at_test(record["model"], record["distractors"])
    if record.get("at_test", {}) != usual:
        return False
    recipe = preset.recipe.with_updates(max(record["updates"], 1))
    return (record["train"], record["recipe"]) == (train.as_dict(), recipe.changes())


def others_section(others: Sequence[tuple[str, AccuracyRecord]]) -> Section:
    """Records that are not in a table: one row for the splits of the same settings in the same file."""
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
        about=[
            "Runs that depart from their preset, episodes of other shapes, methods of your own.",
            "The command `semishot evaluate` tests a run folder again.",
        ],
    )


def other_row(pairs: Sequence[tuple[str, AccuracyRecord]]) -> list[Cell]:
    name, r = pairs[0]
    episode = (
        f"{r['way']}-way {r['shot']}-shot, M = {r['unlabeled']}, H = {r['distractors']}, "
        f"{r['query']} queries, {r['split']} classes"
    )
    measured = tables.cell(record for _, record in pairs)
    return [
        published.title(r["model"]),
        measured.number() if measured else None,
        len(pairs),
        r["dataset"],
        r["preset"],
        Number(r["updates"], decimals=0),
        episode,
        departures(r) or None,
        name,
    ]


def departures(record: Record) -> str:
    """Options of the method, and where the recipe or the training episode differs from the preset's."""
    changed = dict(record["options"])
    changed |= {f"at test {name}": value for name, value in record.get("at_test", {}).items()}
    if presets.exists(record["preset"], record["dataset"]):
        preset = presets.preset(record["preset"], record["dataset"])
        usual = preset.recipe.with_updates(max(record["updates"], 1)).as_dict()
        changed |= {
            name: value
            for name, value in (Recipe().as_dict() | record["recipe"]).items()
            if json.dumps(usual.get(name)) != json.dumps(value)
        }
        shape = preset.train.as_dict()
        changed |= {
            f"training {name}": value
            for name, value in record["train"].items()
            if name in ("way", "query", "batch") and shape.get(name) != value
        }
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in changed.items())
