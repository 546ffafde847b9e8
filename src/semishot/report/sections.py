"""Result files, and folders of them -> their records, and a section for each table and figure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semishot.errors import InputError
from semishot.paper import presets, published
from semishot.report.mask_values import masks_section
from semishot.report.other_tables import choice_section, departed, others_section
from semishot.report.paper_tables import (
    ablations_section,
    curves_section,
    table5_section,
    table_section,
)
from semishot.report.provenance import image_order
from semishot.report.tables import Section, grouped
from semishot.system.files import read_json, reading, real_path
from semishot.training.config import NOT_REFINED
from semishot.training.records import (
    AccuracyRecord,
    Choice,
    Record,
    as_choice,
    as_records,
    identity,
)
from semishot.training.run_folder import Training

TRAINING = Training.__required_keys__
"""The fields of a file beside results, of how a run or a classifier was trained."""


@dataclass(frozen=True)
class Results:
    files: dict[str, list[Record]] = field(default_factory=dict)
    """Keys are file names, relative to the folder."""
    choices: dict[str, Choice] = field(default_factory=dict)
    """How recipes were chosen: `choice.json`."""
    runs: list[Path] = field(default_factory=list)
    """Run folders, finished or not."""


def read_results(*sources: Path) -> Results:
    """Result files, and all below folders: of published results, of runs, or of `evaluate --json`."""
    results = Results()
    seen: set[Path] = set()
    for source in sources:
        if not source.exists():
            raise InputError(f"no results in {source}: there is no such file or folder")
        for path in [source] if source.is_file() else result_files(source):
            if real_path(path) in seen:  # a file and its folder may both be given
                continue
            seen.add(real_path(path))
            content = read_json(path)
            name = path.name if source.is_file() else path.relative_to(source).as_posix()
            name = path.as_posix() if name in results.files else name  # of another source too
            keys = set(content) if isinstance(content, dict) else set()
            if "variants" in keys:
                results.choices[name] = as_choice(content, path)
            elif "benchmark" not in keys and keys != TRAINING:
                results.files[name] = as_records(content, path)
        for log in sorted(source.rglob("log.jsonl")):  # none below a file
            if (log.parent / "config.json").exists() and real_path(log.parent) not in seen:
                seen.add(real_path(log.parent))
                results.runs.append(log.parent)
    if not any(results.files.values()):
        given = ", ".join(map(str, sources))
        raise InputError(
            f"no results in {given}: give the folder of `reproduce --runs` or `--publish`, or files of "
            "`evaluate --json`"
        )
    return results


def result_files(folder: Path) -> list[Path]:
    """Published files, those of `evaluate --json`, those beside the runs, and each run's `result.json`."""
    published = {*folder.glob("*.json"), *folder.glob("*/*.json")}
    published = {p for p in published if p.name not in ("config.json", "pool.json")}
    return sorted({*published, *folder.glob("*/table5/*.json"), *folder.rglob("result.json")})


def make_sections(results: Results, by_file: bool = False) -> Iterator[tuple[str, Section]]:
    """The paper's tables and figures, then ablations, Table 5, masks, and all other measurements.

    Each comes with the name of its file, or of the first of several.
    """
    tables, figures, others = tables_and_figures(results.files, by_file)
    for file, own in sorted(tables, key=lambda table: order(table[1])):
        with reading(file):
            yield file, table_section(published.table_of(own[0]["dataset"]), own)
    for file, own in figures:
        with reading(file):
            yield file, curves_section(own)
    for name, choice in results.choices.items():
        yield name, choice_section(choice)
    for kind, section_of in OTHER_KINDS.items():
        for name, records in results.files.items():
            with reading(name):
                if chosen := [r for r in records if r["kind"] == kind]:
                    yield name, section_of(chosen)
    if others:
        yield others[0][0], others_section(others)


OTHER_KINDS: dict[str, Callable[[Any], Section]] = {
    "ablation": ablations_section,
    "baseline": table5_section,
    "masks": masks_section,
}
FileRecords = tuple[str, list[AccuracyRecord]]
"""Records of one data set, preset, number of updates and kind of images, and the file of the first."""


def order(records: Sequence[Record]) -> tuple[object, ...]:
    """The paper's data set and presets first; of one preset, the authors' images first."""
    first, table = records[0], published.table_of(records[0]["dataset"])
    dataset, preset = first["dataset"], [*presets.PRESETS].index(first["preset"])
    other = dataset != table.dataset
    return table.name, other, dataset, preset, first["updates"], image_order(first)


def tables_and_figures(
    files: Mapping[str, Sequence[Record]], by_file: bool = False
) -> tuple[list[FileRecords], list[FileRecords], list[tuple[str, AccuracyRecord]]]:
    """Which records belong to a table or a figure of the paper, and which are something else.

    By file, each holds one table or one figure, as `reproduce --publish` writes them. Otherwise, if a record
    was measured twice, for a table and for a figure, the later file's is used.
    """
    tables, figures = list[FileRecords](), list[FileRecords]()
    others: list[tuple[str, AccuracyRecord]] = []

    def kind(pair: tuple[str, AccuracyRecord]) -> tuple[object, ...]:
        name, r = pair
        prepared = r.get("preparation", "")
        return r["dataset"], r["preset"], r["updates"], prepared, name if by_file else ""

    every = ((name, r) for name, own in files.items() for r in own if r["kind"] == "accuracy")
    for pairs in grouped(every, kind).values():
        own = {identity(r): (name, r) for name, r in pairs}
        file, dataset = pairs[0][0], pairs[0][1]["dataset"]
        usual = [r for _, r in own.values() if is_by_its_preset(r)]
        figure = published.table(published.FIGURE_UNLABELED, dataset)
        of_figure = [r for r in usual if is_of_table(r, figure)]
        of_table = [r for r in usual if is_of_table(r, published.table_of(dataset))]
        used = set()
        if len({r["unlabeled"] for r in of_figure}) > 1:
            figures.append((file, of_figure))
            used |= set(map(id, of_figure))
        if of_table and not (by_file and used):
            tables.append((file, of_table))
            used |= set(map(id, of_table))
        others += [pair for pair in own.values() if id(pair[1]) not in used]
    return tables, figures, others


def is_of_table(record: Record, table: published.PaperTable) -> bool:
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
    return record["split"] == "test" and "trained_as" not in record and departed(record) == {}
