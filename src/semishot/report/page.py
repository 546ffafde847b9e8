"""Result files -> one self-contained HTML page: tables, charts, episodes, how to run them again."""

import sys
from collections.abc import Sequence
from pathlib import Path

from semishot.errors import InputError, check_number
from semishot.report import charts, render
from semishot.report.episode_gallery import draw_episodes
from semishot.report.paper_tables import overview
from semishot.report.pictures import PICTURE_STYLE
from semishot.report.provenance import day_of
from semishot.report.render import CHART_STYLE, FOLDER, PAGE_STYLE
from semishot.report.sections import Results, make_sections, read_results
from semishot.system.files import reading, write_whole

MOST_EPISODES = 100
MOST_CURVES = 24
"""Fleets whose learning curves are shown: a page stays below 5 MB."""


def write_report(
    source: Path | Sequence[Path], out: Path, root: Path | None = None, episodes: int = 2
) -> None:
    """Write the page from result files, and from those below folders.

    Episodes are drawn if there is a model and its data are prepared; with 0 of them, torch is not needed.
    """
    check_number("--episodes", episodes, 0, MOST_EPISODES)
    if out.is_dir():
        raise InputError(f"cannot write {out}: it is a folder")
    sources = [source] if isinstance(source, Path) else source
    write_whole(out, as_html(read_results(*sources), root, episodes))


def report_on_runs(runs: Path, root: Path | None = None) -> None:
    """Write the page beside the runs and print its path; damage in an old run is not an error."""
    out = runs / "report.html"
    try:
        write_report(runs, out, root)
        print(f"report: {out}", file=sys.stderr)
    except (InputError, OSError) as error:
        print(f"no report: {error}", file=sys.stderr)


def as_html(results: Results, root: Path | None, episodes: int) -> str:
    drawn, left_out = draw_episodes(results, root, episodes) if episodes else ([], [])
    with reading(f"one of the files {', '.join(list(results.files)[:3])}"):
        made = [section for _, section in make_sections(results)]
        curves = [charts.learning_curves(folder) for folder in results.runs[:MOST_CURVES]]
        return render.render(
            FOLDER / "page.html",
            [CHART_STYLE, PICTURE_STYLE, PAGE_STYLE],
            FOLDER / "sort.js",
            lead=lead(results),
            overview=overview(made),
            sections=made,
            curves=[curve for curve in curves if curve],
            curves_left_out=max(0, len(results.runs) - MOST_CURVES),
            episodes=drawn,
            left_out=left_out,
            render=render,
            charts=charts,
        )


def lead(results: Results) -> str:
    records = [r for own in results.files.values() for r in own]
    datasets = ", ".join(sorted({r["dataset"] for r in records}))
    devices = " and ".join(sorted({r["device"] for r in records}))
    newest = day_of(max(r["date"] for r in records))
    return f"{len(records):,} records of {datasets}, measured on {devices}; the newest of {newest}."
