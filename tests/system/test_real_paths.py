"""Where paths lead."""

import re
from pathlib import Path

from semishot.system.real_paths import real_path

PACKAGE = Path(__file__).parents[2] / "src" / "semishot"


def test_links_that_lead_in_a_circle_have_a_path_all_the_same(tmp_path):
    """`Path.resolve` ended commands in a traceback: RuntimeError, until Python 3.12."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "c").symlink_to(tmp_path / "folder")
    assert real_path(tmp_path / "a" / "x").is_absolute()
    assert real_path(tmp_path / "c" / "x") == tmp_path.resolve() / "folder" / "x"


def test_no_module_resolves_paths_by_itself():
    using = [p for p in PACKAGE.rglob("*.py") if re.search(r"\.resolve\(\)", p.read_text())]
    assert using == []
