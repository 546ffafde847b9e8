"""Result files -> one self-contained HTML page: tables, charts, episodes, how to run them again."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from semishot.errors import InputError, check_number
from semishot.report import charts, rendering, svg
from semishot.report.ablation_tables import ablations_section, choice_section
from semishot.report.baseline_tables import table5_section
from semishot.report.curves import curves_section
from semishot.report.gallery import draw_episodes
from semishot.report.grouping import group, others_section
from semishot.report.mask_tables import masks_section
from semishot.report.provenance import day_of
from semishot.report.reading import Results, read_results
from semishot.report.section import Section
from semishot.report.table_sections import overview, table_section
from semishot.report.template import FOLDER, PAGE_STYLE, render
from semishot.system.files import reading, write_whole

MOST_EPISODES = 100
MOST_CURVES = 24
"""Fleets whose learning curves are shown: a page stays below 5 MB."""


def write_report(
    source: Path | Sequence[Path], out: Path, root: Path | None = None, episodes: int = 2
) -> None:
    """Write the page from result files, and from those below folders.

    Episodes are drawn if there is a model and its data are prepared; with 0 of them, torch is not loaded.
    """
    check_number("--episodes", episodes, 0, MOST_EPISODES)
    if out.is_dir():
        raise InputError(f"cannot write {out}: it is a folder")
    sources = [source] if isinstance(source, Path) else source
    text = as_html(read_results(*sources), root, episodes)
    write_whole(out, text)


def report_on_runs(runs: Path, root: Path | None = None) -> None:
    """Write the page beside the runs and print its path; damage in an old run is not an error."""
    out = runs / "report.html"
    try:
        write_report(runs, out, root)
        print(f"report: {out}", file=sys.stderr)
    except (InputError, OSError) as error:
        print(f"no report: {error}", file=sys.stderr)


def as_html(found: Results, root: Path | None, episodes: int) -> str:
    drawn, left_out = draw_episodes(found, root, episodes) if episodes else ([], [])
    with reading(f"one of the files {', '.join(list(found.files)[:3])}"):
        made = list(make_sections(found))
        curves = [charts.learning_curves(folder) for folder in found.runs[:MOST_CURVES]]
        return render(
            FOLDER / "page.html",
            [PAGE_STYLE],
            FOLDER / "sort.js",
            lead=lead(found),
            overview=overview(made),
            sections=made,
            curves=[curve for curve in curves if curve],
            curves_left_out=max(0, len(found.runs) - MOST_CURVES),
            episodes=drawn,
            left_out=left_out,
            rendering=rendering,
            svg=svg,
        )


def make_sections(found: Results) -> Iterator[Section]:
    """The paper's tables and figures, then ablations, then all other measurements."""
    grouped = group(found.files)
    for each in grouped.tables:
        yield table_section(each.name, each.table, each.records)
    for each in grouped.figures:
        yield curves_section(each.records)
    for name, baselines in grouped.baselines.items():
        with reading(name):
            yield table5_section(baselines)
    for name, masks in grouped.masks.items():
        with reading(name):
            yield masks_section(masks)
    for name, ablations in grouped.ablations.items():
        with reading(name):
            yield ablations_section(ablations)
    for choice in found.choices:
        yield choice_section(choice)
    if grouped.others:
        yield others_section(grouped.others)


def lead(found: Results) -> str:
    records = [r for own in found.files.values() for r in own]
    datasets = ", ".join(sorted({r["dataset"] for r in records}))
    devices = " and ".join(sorted({r["device"] for r in records}))
    newest = day_of(max(r["date"] for r in records))
    return f"{len(records):,} records of {datasets}, measured on {devices}; the newest of {newest}."
