"""Tables inside other pages: what stands between two marks is made from a result file.

`<!-- table: omniglot/table1-ren2018.json, 1-shot, M = 5 -->` begins one, `<!-- /table -->` ends it.
"""

import re
from pathlib import Path

from semishot.errors import InputError
from semishot.paper import published
from semishot.report.grouping import table_of
from semishot.report.rendering import grid_as_markdown
from semishot.report.tables import parts_of, table_grid
from semishot.system.files import read_text, reading
from semishot.training.result_files import read_records

BEGINS, ENDS = "<!-- table:", "<!-- /table -->"
MARKED = re.compile(
    rf"^({BEGINS} (?P<file>\S+), (?P<shot>\d+)-shot, M = (?P<unlabeled>\d+) -->\n).*?^{ENDS}$",
    re.MULTILINE | re.DOTALL,
)
MOST_BYTES = 4 * 2**20
"""Of a page."""


def filled_page(page: Path, folder: Path) -> str:
    """The text of a page, with its tables as the result files have them."""
    with reading(page):
        text = read_text(page, MOST_BYTES)
    found = len(MARKED.findall(text))
    if not found or found != text.count(BEGINS) or found != text.count(ENDS):
        raise InputError(
            f"{page}: a marked table has a line `{BEGINS} FILE, 1-shot, M = 5 -->` and a line `{ENDS}`; "
            f"{found} have both"
        )

    def made(mark: re.Match[str]) -> str:
        shot, unlabeled = int(mark["shot"]), int(mark["unlabeled"])
        table = marked_table(folder / mark["file"], shot, unlabeled)
        return f"{mark[1]}\n{table}\n\n{ENDS}"

    return MARKED.sub(made, text)


def marked_table(path: Path, shot: int, unlabeled: int) -> str:
    """One shot and M of a table, as Markdown."""
    if not path.is_file():
        raise InputError(f"there is no result file {path}")
    records = read_records(path)
    table: published.Table = table_of(records[0]["dataset"])[1]
    if (shot, unlabeled) not in parts_of(table, records):
        raise InputError(f"{path} has nothing of {shot}-shot, M = {unlabeled}")
    return grid_as_markdown(table_grid(table, records, shot, unlabeled))
