"""Tables inside other pages are made from result files by `semishot results --fill`."""

from pathlib import Path

import pytest

from semishot.commands.main import main
from semishot.errors import InputError
from semishot.report import marked_tables
from semishot.training.result_files import publish
from support.records import record

REPOSITORY = Path(__file__).parents[2]
FILE = "glyphs/table1-demo.json"
MARK = f"<!-- table: {FILE}, 1-shot, M = 5 -->"
TABLE = """| model | no distractors | w/ distractors |
| --- | ---: | ---: |
| Supervised | - | - |
| Semi-Supervised Inference | - | - |
| Soft k-Means | - | - |
| Soft k-Means + Cluster | - | - |
| Masked Soft k-Means | - | 80.00 ± 10.00 |"""
FILLED = f"Before.\n\n{MARK}\n\n{TABLE}\n\n<!-- /table -->\n\nAfter.\n"


@pytest.fixture
def folder(tmp_path):
    own = [
        record(dataset="glyphs", preset="demo", split_seed=seed, accuracy=accuracy)
        for seed, accuracy in enumerate((0.7, 0.9))
    ]
    publish(own, tmp_path / "results" / FILE)
    return tmp_path / "results"


def test_a_page_is_filled_and_filled_again_it_is_the_same(folder, tmp_path, capsys):
    page, out = tmp_path / "page.md", tmp_path / "results.md"
    page.write_text(f"Before.\n\n{MARK}\nold words\n<!-- /table -->\n\nAfter.\n", encoding="utf-8")
    for _ in range(2):
        main(["results", "--folder", str(folder), "--out", str(out), "--fill", str(page)])
        assert page.read_text(encoding="utf-8") == FILLED
        assert capsys.readouterr().out == f"{out}\n{page}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no mark", r"page\.md: a marked table has a line .* 0 have both"),
        (f"{MARK}\n{MARK}\n<!-- /table -->\n", "1 have both"),
        (f"{MARK}\n", "0 have both"),
        (FILLED.replace("demo", "other"), r"there is no result file .*table1-other\.json"),
        (FILLED.replace("M = 5", "M = 10"), r"table1-demo\.json has nothing of 1-shot, M = 10"),
    ],
)
def test_what_cannot_be_filled_is_said_before_anything_is_written(folder, tmp_path, text, message):
    page, out = tmp_path / "page.md", tmp_path / "results.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        marked_tables.filled_page(page, folder)
    with pytest.raises(SystemExit):
        main(["results", "--folder", str(folder), "--out", str(out), "--fill", str(page)])
    assert page.read_text(encoding="utf-8") == text
    assert not out.exists()


def test_the_marked_tables_of_the_documents_are_up_to_date():
    """Otherwise: `semishot results --fill README.md docs/index.md docs/reproduce.md`."""
    pages = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    marked = [page for page in pages if marked_tables.BEGINS in page.read_text(encoding="utf-8")]
    assert [page.name for page in marked] == ["README.md", "index.md", "reproduce.md"]
    for page in marked:
        made = marked_tables.filled_page(page, REPOSITORY / "results")
        assert made == page.read_text(encoding="utf-8"), page
