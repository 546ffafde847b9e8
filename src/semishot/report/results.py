"""Published results: `docs/results.md` and its pictures, from the files under `results/` alone."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

from semishot.data.settings import AUTHORS
from semishot.errors import InputError
from semishot.paper import presets, published
from semishot.report import plots
from semishot.report.ablation_tables import ablations_section, choice_section
from semishot.report.baseline_tables import table5_section
from semishot.report.curves import curves_section
from semishot.report.image_preparations import rank
from semishot.report.marked_tables import filled_page
from semishot.report.mask_tables import masks_section
from semishot.report.rendering import as_markdown, grid_as_markdown
from semishot.report.section import Section
from semishot.report.table_sections import against, overview, table_section
from semishot.system.files import reading, write_whole
from semishot.training.recipe_choices import as_choice
from semishot.training.records import MaskRecord, Record
from semishot.training.result_files import identity, read_records, read_result_file

LEAD = """# Results

Generated from the files in `results/` by `semishot results`; do not edit.

Accuracies in %, mean ± standard error over labeled/unlabeled splits (ddof = 1), 600 test episodes per split.
The paper's ± is as printed: the deviation with ddof = 0 divided by the square root of 10 splits. z is the
difference divided by the error of both, the paper's converted to ddof = 1. A cell agrees with the paper's if
|z| <= 2, and is above or below it otherwise; of 20 cells without any difference, about one exceeds 2 by
chance. The supervised model has one number for both columns and is counted in both. t belongs to a difference
between our own runs, paired split by split."""
DRAWINGS, PHOTOGRAPHS = "omniglot", "mini-imagenet"
PREPARED = {
    DRAWINGS: f"""Preset `ren2018` is the paper's recipe; `semishot data prepare omniglot` decides
which images it sees. Tables of `{AUTHORS[DRAWINGS].name}` are on images prepared as in the authors' code:
these are the reproduction and come first. The usual preparation is the default because accuracies are higher
on its images; its table says by how much.""",
    PHOTOGRAPHS: f"""Tables of `{AUTHORS[PHOTOGRAPHS].name}` are on the classes of miniImageNet that the first
version of the authors' code tested on, the usual validation classes: these are the reproduction and come
first.""",
}
"""Said where there are tables of images that were not prepared as usual."""


def write_results(folder: Path, out: Path, fill: Sequence[Path] = ()) -> None:
    """The page, the pictures beside it, and the marked tables of other pages.

    Prints to stderr where a section mixes states of the code.
    """
    made = sections(folder)
    pages = {page: filled_page(page, folder) for page in fill} | {out: as_page(made, folder)}
    for path in figures(folder):
        with reading(path):
            plots.accuracy_over_unlabeled(read_records(path), out.with_name(picture_name(path)))
    for path in mask_figures(folder):
        with reading(path):
            plots.draw_masks(mask_records(path), out.with_name(picture_name(path)))
    for page, text in pages.items():
        write_whole(page, text)
    for shown in made:
        for line in shown.section.provenance.mixed if shown.section else ():
            print(f"mixed in {shown.name}: {line}", file=sys.stderr)
    old = [shown.name for shown in made if shown.section and shown.section.provenance.is_old]
    if old:
        line = f"measured before records named their code and data: {', '.join(old)}"
        print(line, file=sys.stderr)


@dataclass(frozen=True)
class Shown:
    """A section of the page, made from a result file, or the text that says how to make one."""

    name: str
    section: Section | None
    above: str = ""
    below: str = ""

    @property
    def text(self) -> str:
        return as_markdown(self.section, self.above, self.below) if self.section else self.below


def results_markdown(folder: Path) -> str:
    """Every published table, with the device it was run on and how to run it again."""
    return as_page(sections(folder), folder)


def as_page(made: Sequence[Shown], folder: Path) -> str:
    if not any(folder.glob("*/*.json")):
        raise InputError(
            f"no result files in {folder}; `semishot reproduce table1 --publish {folder}`"
        )
    held = [shown.section for shown in made if shown.section]
    summary, parts = overview(held), [LEAD]
    for dataset, said in PREPARED.items():
        if any(f" prepare {dataset} " in section.prepare for section in held):
            parts.append(said)
    if summary.rows:
        parts += ["## Overview", f"{summary.caption}.", grid_as_markdown(summary)]
    return "\n\n".join([*parts, *(shown.text for shown in made)]) + "\n"


def sections(folder: Path) -> list[Shown]:
    """The parts of the page, in its order."""
    found: list[Shown] = []
    in_tables: list[Record] = []

    def show(path: Path, section: Section, above: str = "", below: str = "") -> None:
        found.append(Shown(path.relative_to(folder).as_posix(), section, above, below))

    for name, table in published.TABLES.items():
        held = tables_in_order(folder, name, table)
        for path, section in table_sections_of(name, table, held):
            show(path, section)
        if not held:
            found.append(Shown(name, None, below=not_run(name, table)))
        in_tables += [record for _, records in held for record in records]
    for path in figures(folder):
        with reading(path):
            records = read_records(path)
            section = also(curves_section(records), measured_twice(records, in_tables))
            show(path, section, f"![{section.title}]({picture_name(path)})")
    for path in sorted(folder.glob("*/choice*.json")):
        show(path, choice_section(as_choice(read_result_file(path), path)))
    for path in sorted(folder.glob("*/ablations*.json")):
        with reading(path):
            ablations = [r for r in read_records(path) if r["kind"] == "ablation"]
            show(path, ablations_section(ablations))
    for path in sorted(folder.glob("*/table5*.json")):
        with reading(path):
            baselines = [r for r in read_records(path) if r["kind"] == "baseline"]
            show(path, table5_section(baselines))
    for path in mask_figures(folder):
        with reading(path):
            picture = f"![Mask values ({path.parent.name})]({picture_name(path)})"
            show(path, masks_section(mask_records(path)), below=picture)
    return found


def table_sections_of(
    name: str, table: published.Table, held: Sequence[tuple[Path, list[Record]]]
) -> Iterator[tuple[Path, Section]]:
    """A section for each file; the usual images are compared with the authors', and the schedule of the text
    with that of the code, which come first."""
    earlier: dict[tuple[str, str, int, str], list[Record]] = {}
    for path, records in held:
        with reading(path):
            section, dataset = table_section(name, table, records), records[0]["dataset"]
            (preset, updates), images = settings_of(records), records[0].get("preparation", "")
            authors = None
            if dataset == DRAWINGS:  # swapped lists of photographs have other test classes
                authors = earlier.get((dataset, preset, updates, AUTHORS[dataset].name))
            code = earlier.get((dataset, "ren2018", updates, images))
            if authors and not section.prepare:
                section = also(section, against("the authors' images", table, records, authors))
            if code and preset == "ren2018-text":
                section = also(section, against("the schedule of the code", table, records, code))
            earlier[dataset, preset, updates, images] = records
        yield path, section


def also(section: Section, said: Sequence[str]) -> Section:
    """The section with more findings."""
    return replace(section, findings=[*section.findings, *said])


def tables_in_order(
    folder: Path, name: str, table: published.Table
) -> list[tuple[Path, list[Record]]]:
    """The paper's data set and presets first; of one preset, the authors' images first."""
    known, found = [*presets.PRESETS], []
    for path in sorted(folder.glob(f"*/{name}-*.json")):
        with reading(path):
            records = read_records(path)
            preset, dataset = records[0]["preset"], records[0]["dataset"]
            place = known.index(preset) if preset in known else len(known)
            order = dataset != table.dataset, dataset, place, rank(records[0])
            found.append((order, path, records))
    return [(path, records) for _, path, records in sorted(found, key=itemgetter(0))]


def settings_of(records: Sequence[Record]) -> tuple[str, int]:
    return records[0]["preset"], records[0]["updates"]


def measured_twice(records: Sequence[Record], in_tables: Sequence[Record]) -> list[str]:
    """Says how far cells of a figure differ from the same cells of a table, if other runs measured them."""
    held = {identity(record): record["accuracy"] for record in in_tables}
    gaps: dict[tuple[str, int, int, int], list[float]] = {}
    for r in records:
        if identity(r) in held:
            cell = r["model"], r["shot"], r["unlabeled"], r["distractors"]
            gaps.setdefault(cell, []).append(100 * (r["accuracy"] - held[identity(r)]))
    most = max((abs(sum(gap) / len(gap)) for gap in gaps.values()), default=0.0)
    if most < 0.005:
        return []
    return [
        f"{len(gaps)} cells here are in a table above too, from other runs of the same settings: the means "
        f"differ by up to {most:.2f} points."
    ]


def not_run(name: str, table: published.Table) -> str:
    return (
        f"## {table.title} ({table.dataset})\n\nThis table has not been run. With the data at hand: "
        f"`semishot data prepare {table.dataset} --source FOLDER`, then `semishot reproduce {name}`."
    )


def figures(folder: Path) -> list[Path]:
    """The result files that become a figure of the page."""
    return sorted(folder.glob(f"*/{published.FIGURE_UNLABELED}-*.json"))


def mask_figures(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/figure-masks*.json"))


def mask_records(path: Path) -> list[MaskRecord]:
    return [r for r in read_records(path) if r["kind"] == "masks"]


def picture_name(path: Path) -> str:
    return f"{path.stem}-{path.parent.name}.png"
