"""Published results: `docs/results.md` and its pictures, from the files under `results/` alone."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from semishot.errors import InputError
from semishot.paper import published
from semishot.report import plots
from semishot.report.ablation_tables import ablations_section, choice_section
from semishot.report.baseline_tables import table5_section
from semishot.report.curves import curves_section
from semishot.report.mask_tables import masks_section
from semishot.report.rendering import as_markdown
from semishot.report.section import Section
from semishot.report.table_sections import table_section
from semishot.system.files import write_whole
from semishot.system.open_files import reading
from semishot.training.records import (
    MaskRecord,
    Record,
    as_choice,
    identity,
    read_records,
    read_result_file,
)

LEAD = """# Results

Generated from the files in `results/` by `semishot results`; do not edit.

Accuracies in %, mean ± standard error over labeled/unlabeled splits (ddof = 1), 600 test episodes per split.
The paper's ± is as printed: the deviation with ddof = 0 over the square root of 10 splits. z is a difference
over the errors of both sides, the paper's with ddof = 1 too: a cell agrees with the paper's where |z| <= 2,
and is above or below it otherwise. t is of a difference between our own splits, paired split by split."""


def write_results(folder: Path, out: Path) -> None:
    """The page, and the pictures beside it. Prints to stderr where a section mixes states of the code."""
    made = sections(folder)
    text = as_page(made, folder)
    for path in figures(folder):
        with reading(path):
            plots.accuracy_over_unlabeled(read_records(path), out.with_name(picture_name(path)))
    for path in mask_figures(folder):
        with reading(path):
            plots.draw_masks(mask_records(path), out.with_name(picture_name(path)))
    write_whole(out, text)
    for shown in made:
        for line in shown.section.provenance.mixed if shown.section else ():
            print(f"mixed in {shown.name}: {line}", file=sys.stderr)
    old = [shown.name for shown in made if shown.section and shown.section.provenance.is_old]
    if old:
        print(
            f"measured before records named their code and data: {', '.join(old)}",
            file=sys.stderr,
        )


@dataclass(frozen=True)
class Shown:
    """A part of the page: a section from a file, or a text where there is no file."""

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
    return "\n\n".join([LEAD, *(shown.text for shown in made)]) + "\n"


def sections(folder: Path) -> list[Shown]:
    """The parts of the page, in its order."""
    found: list[Shown] = []
    in_tables: list[Record] = []

    def show(path: Path, section: Section, above: str = "", below: str = "") -> None:
        found.append(Shown(path.relative_to(folder).as_posix(), section, above, below))

    for name, table in published.TABLES.items():
        paths = sorted(folder.glob(f"*/{name}-*.json"))
        for path in paths:
            with reading(path):
                records = read_records(path)
                in_tables += records
                show(path, table_section(name, table, records))
        if not paths:
            found.append(Shown(name, None, below=not_run(name, table)))
    for path in figures(folder):
        with reading(path):
            records = read_records(path)
            section = curves_section(records)
            section = replace(
                section, findings=[*section.findings, *measured_twice(records, in_tables)]
            )
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
