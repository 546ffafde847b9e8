"""Renders sections as text and as Markdown, and cells for the HTML template."""

from itertools import chain

from semishot.report.section import NOT_NAMED, Cell, Grid, Number, Provenance, Section

MISSING = "-"


def shown(cell: Cell) -> str:
    """The text of a cell."""
    if cell is None:
        return MISSING
    if not isinstance(cell, Number):
        return str(cell)
    sign, before = "+" if cell.form == "difference" else "", "± " if cell.form == "error" else ""
    error = "" if cell.error is None else f" ± {cell.error:.{cell.decimals}f}"
    ratios = [
        f"{name} {value:+.1f}"
        for name, value in (("z", cell.z), ("t", cell.t))
        if value is not None
    ]
    notes = [*([cell.note] if cell.note else []), *ratios]
    note = f" ({', '.join(notes)})" if notes else ""
    return f"{before}{cell.value:{sign},.{cell.decimals}f}{error}{note}"


# HTML


def rank(cell: Cell) -> float | str:
    """The sort key: the number that is shown; empty if nothing was measured."""
    if isinstance(cell, Number):
        return round(float(cell.value), cell.decimals)
    return float(cell) if isinstance(cell, int) else cell or ""


def tone(cell: Cell) -> str:
    """`above` or `below`, for a difference that is more than chance; one without z or t has no mark."""
    if not isinstance(cell, Number) or cell.form != "difference":
        return ""
    ratio = cell.z if cell.z is not None else cell.t
    if ratio is None or abs(ratio) <= cell.needed:
        return ""
    return "below" if cell.value < 0 else "above"


def paragraphs(section: Section) -> list[str]:
    """What HTML shows above the tables."""
    words = [
        section.aim,
        section.images,
        *section.conclusions,
        *section.about,
        section.about_charts,
    ]
    return [text for text in words if text]


# Text


def as_text(section: Section) -> str:
    """Headings, grids and findings, for a terminal."""
    parts = chain.from_iterable((grid.heading, grid_as_text(grid)) for grid in section.grids)
    said = [*section.conclusions, section.images, *mixture(section.provenance)]
    said = [line for line in said if line]
    return "\n\n".join(part for part in (*parts, "\n".join(said)) if part)


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


def as_markdown(section: Section, above: str = "", below: str = "") -> str:
    """A section, with a picture above its tables or at its end."""
    title = f"## {section.title}{section.detail}"
    parts = [title, section.aim, section.images, *section.about, above]
    for grid in section.grids:
        parts += [f"{grid.caption}:" if grid.captioned else "", grid_as_markdown(grid)]
    parts += section.conclusions
    parts += (
        [] if section.is_complete else ["Cells marked - and shots not shown have not been run."]
    )
    parts += mixture(section.provenance)
    # a column of splits is more informative than their seeds
    by_row = any("splits" in grid.header for grid in section.grids)
    parts += [origin(section, not by_row), below]
    return "\n\n".join(part for part in parts if part)


def grid_as_markdown(grid: Grid) -> str:
    rule = ["---" if grid.has_words(i) else "---:" for i in range(len(grid.header))]
    lines = [grid.header, rule, *([shown(cell) for cell in row] for row in grid.rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def mixture(provenance: Provenance) -> list[str]:
    """Says if the records are not of one state, or do not name it."""
    said = [f"Mixed: {line}." for line in provenance.mixed]
    if provenance.is_old:
        said.append("Code and data are " + NOT_NAMED + ".")
    return said


def origin(section: Section, with_seeds: bool) -> str:
    """In one line, with the commands that prepare its images and measure it again."""
    provenance = section.provenance
    seeds = sorted(provenance.split_seeds) if with_seeds else []
    parts = [f"Split seeds {seeds[0]} to {seeds[-1]}"] if seeds else []
    parts += [", ".join(sorted(provenance.devices)), "; ".join(provenance.versions)]
    parts += [provenance.code] if provenance.code else []
    commands = [command for command in (section.prepare, section.commands[0][1]) if command]
    again = ", then ".join(f"`{command}`" for command in commands)
    return "; ".join([*parts, ", ".join(sorted(provenance.dates))]) + f". To run it again: {again}."
