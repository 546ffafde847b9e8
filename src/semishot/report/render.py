"""Renders sections as text, Markdown and HTML; a page of HTML loads nothing else."""

import base64
import hashlib
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from semishot import __version__
from semishot.errors import InputError
from semishot.report import charts
from semishot.report.charts import Chart
from semishot.report.tables import Grid, GridCell, Number, Section
from semishot.system.files import own_text, write_whole

FOLDER = Path(__file__).parent
PAGE_STYLE, CHART_STYLE = FOLDER / "page.css", FOLDER / "chart.css"
"""The styles that all pages, and all charts, share."""
GAP = 20
"""Between the charts of a figure."""
MISSING = "-"
ORIGIN = ("device", "code and data", "date")
"""What Markdown shows of a section's provenance."""


def shown(cell: GridCell) -> str:
    """The text of a cell."""
    if cell is None:
        return MISSING
    if not isinstance(cell, Number):
        return str(cell)
    sign, before = "+" if cell.form == "difference" else "", "± " if cell.form == "error" else ""
    error = "" if cell.error is None else f" ± {cell.error:.{cell.decimals}f}"
    ratio = "" if cell.ratio is None else f"{cell.statistic} {cell.ratio:+.1f}"
    notes = ", ".join(note for note in (cell.note, ratio) if note)
    note = f" ({notes})" if notes else ""
    return f"{before}{cell.value:{sign},.{cell.decimals}f}{error}{note}"


# Text


def as_text(section: Section) -> str:
    """Captions, grids and findings, for a terminal."""
    parts = [section.title.replace("`", ""), section.note]
    for grid in section.grids:
        parts += [grid.caption, grid_as_text(grid)]
    return "\n\n".join(part for part in (*parts, section.finding, mixture(section)) if part)


def grid_as_text(grid: Grid) -> str:
    """Columns aligned: words to the left, numbers to the right."""
    lines = [grid.header, *([shown(cell) for cell in row] for row in grid.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = [grid.has_words(column) for column in range(len(widths))]

    def line(cells: list[str]) -> str:
        sized = zip(cells, widths, left, strict=True)
        return "  ".join(c.ljust(w) if words else c.rjust(w) for c, w, words in sized).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(lines[0]), rule, *map(line, lines[1:])])


# Markdown


def as_markdown(section: Section, picture: str = "") -> str:
    """A section; the picture is a file beside the page."""
    parts = [f"## {section.title}", section.note]
    parts += [f"![{section.title.replace('`', '')}]({picture})"] if picture else []
    for grid in section.grids:
        parts += [grid.caption and f"{grid.caption}:", grid_as_markdown(grid)]
    known = [section.provenance[name] for name in ORIGIN if name in section.provenance]
    again = ", then ".join(f"`{command}`" for command in section.commands)
    parts += [section.finding, mixture(section), f"{'; '.join(known)}. Run again: {again}."]
    return "\n\n".join(part for part in parts if part)


def grid_as_markdown(grid: Grid) -> str:
    rule = ["---" if grid.has_words(i) else "---:" for i in range(len(grid.header))]
    lines = [grid.header, rule, *([shown(cell) for cell in row] for row in grid.rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def mixture(section: Section) -> str:
    """Says if the records are not of one state of code, data and devices."""
    mixed = section.provenance.get("mixed")
    return f"Mixed: {mixed}." if mixed else ""


# HTML


def render(
    template: Path, styles: Sequence[Path], script: Path | None = None, **values: Any
) -> str:
    """Every value is escaped, and only these styles and this script may run."""
    environment = Environment(
        loader=FileSystemLoader(template.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = with_code
    css = Markup("").join(Markup(own_text(style)) for style in styles)
    run = Markup(own_text(script)) if script else Markup("")
    hashes = {"css_hash": digest(css), "script_hash": digest(run)}
    page = environment.get_template(template.name)
    return page.render(css=css, script=run, version=__version__, **hashes, **values)


def write_figure(drawn: Sequence[Chart], out: Path) -> None:
    """Charts in one SVG, two in a row."""
    across, down = charts.WIDTH + GAP, max(chart.height for chart in drawn) + GAP
    figure = {
        "width": min(2, len(drawn)) * across + GAP,
        "height": ceil(len(drawn) / 2) * down + GAP,
        "placed": [
            (chart, GAP + index % 2 * across, GAP + index // 2 * down)
            for index, chart in enumerate(drawn)
        ],
    }
    write_svg(render(FOLDER / "chart.svg", [CHART_STYLE], figure=figure, charts=charts), out)


def write_svg(text: str, out: Path) -> None:
    if out.suffix.lower() != ".svg":
        raise InputError(
            f"cannot draw to {out.name!r}: pictures are SVG, the name must end in .svg"
        )
    write_whole(out, text.lstrip())


def digest(text: str) -> str:
    """The hash of a style or script in the content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def with_code(text: str) -> Markup:
    """Escaped, with text in backquotes as code."""
    parts = [escape(part) for part in text.split("`")]
    marked = [Markup("<code>") + p + Markup("</code>") if i % 2 else p for i, p in enumerate(parts)]
    return Markup("").join(marked)
