"""Published results: `docs/results.md`, its figures, and tables of other pages, from `results/` alone.

In other pages `<!-- table: omniglot/table1-ren2018.json, 1-shot, M = 5 -->` begins a table and
`<!-- /table -->` ends it.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from semishot.data.settings import AUTHORS
from semishot.errors import InputError
from semishot.paper import published
from semishot.report.paper_tables import overview, parts_of, table_grid
from semishot.report.render import as_markdown, grid_as_markdown, write_figure
from semishot.report.sections import make_sections, read_results
from semishot.report.tables import Section
from semishot.system.files import read_text, reading, write_whole
from semishot.training.records import read_records

DRAWINGS, PHOTOGRAPHS = (AUTHORS[name] for name in ("omniglot", "mini-imagenet"))
LEAD = f"""# Results

Generated from the files in `results/` by `semishot results`; do not edit.

Accuracies in %, mean ± standard error over labeled/unlabeled splits (ddof = 1), 600 test episodes per split;
(n): over n splits only; -: not run. The paper's ± is as printed, with ddof = 0 over 10 splits. z is the
difference divided by the error of both, the paper's converted to ddof = 1 (Table 5: as printed). Cells agree
if |z| <= 2; chance exceeds that once in 20 times, more often with 5 splits. The supervised model has one
number for both columns and counts twice. t is of a difference between our own runs, paired by split.

Preset `ren2018` is the paper's recipe; `semishot data prepare` decides which images it sees. The authors'
code has drawings prepared as `{DRAWINGS}` and photographs of the classes `{PHOTOGRAPHS}`."""
BEGINS, ENDS = "<!-- table:", "<!-- /table -->"
MARKED = re.compile(
    rf"^({BEGINS} (?P<file>\S+), (?P<shot>\d+)-shot, M = (?P<unlabeled>\d+) -->\n).*?^{ENDS}$",
    re.MULTILINE | re.DOTALL,
)
MOST_BYTES = 4 * 2**20
"""Of a page."""


def write_results(folder: Path, out: Path, fill: Sequence[Path] = ()) -> None:
    """The page, the figures beside it, and the marked tables of other pages.

    Prints to stderr where a section mixes states of the code.
    """
    if not any(folder.glob("*/*.json")):
        raise InputError(
            f"no result files in {folder}; `semishot reproduce table1 --publish {folder}`"
        )
    made = dict(make_sections(read_results(folder), by_file=True))
    pages = {page: filled_page(page, folder) for page in fill} | {out: as_page(made)}
    for name, section in made.items():
        if section.charts:
            write_figure(section.charts, out.with_name(figure_name(name)))
        if mixed := section.provenance.get("mixed"):
            print(f"mixed in {name}: {mixed}", file=sys.stderr)
    for page, text in pages.items():
        write_whole(page, text)


def as_page(made: dict[str, Section]) -> str:
    """Every published table by result file, with the device it was run on and how to run it again."""
    summary, parts = overview(made.values()), [LEAD]
    if summary.rows:
        parts += ["## Overview", f"{summary.caption}.", grid_as_markdown(summary)]
    parts += [
        as_markdown(section, figure_name(name) if section.charts else "")
        for name, section in made.items()
    ]
    titles = "".join(section.title for section in made.values())
    for table in published.TABLES.values():
        if f"{table.title} (" not in titles:
            parts.append(
                f"## {table.title} ({table.dataset})\n\nNot run. With the data at hand: `semishot data "
                f"prepare {table.dataset} --source FOLDER`, then `semishot reproduce {table.name}`."
            )
    return "\n\n".join(parts) + "\n"


def figure_name(name: str) -> str:
    path = Path(name)
    return f"{path.stem}-{path.parent.name}.svg"


# Tables inside other pages


def filled_page(page: Path, folder: Path) -> str:
    """The text of a page, with its tables as the result files have them."""
    with reading(page):
        text = read_text(page, MOST_BYTES)
    count = len(MARKED.findall(text))
    if not count or count != text.count(BEGINS) or count != text.count(ENDS):
        raise InputError(
            f"{page}: a marked table has a line `{BEGINS} FILE, 1-shot, M = 5 -->` and a line `{ENDS}`; "
            f"{count} have both"
        )
    return MARKED.sub(lambda mark: f"{mark[1]}\n{marked_table(mark, folder)}\n\n{ENDS}", text)


def marked_table(mark: re.Match[str], folder: Path) -> str:
    """The shot and M of a result file that a mark names, as Markdown."""
    path, shot, unlabeled = folder / mark["file"], int(mark["shot"]), int(mark["unlabeled"])
    if not path.is_file():
        raise InputError(f"there is no result file {path}")
    records = read_records(path)
    table = published.table_of(records[0]["dataset"])
    if (shot, unlabeled) not in parts_of(table, records):
        raise InputError(f"{path} has nothing of {shot}-shot, M = {unlabeled}")
    return grid_as_markdown(table_grid(table, records, shot, unlabeled))
