"""Every line of docs/guarantees.md names tests, and they are there."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`((?:[a-z]+/)+test_\w+\.py)::(test_\w+)`")


def test_every_test_named_exists():
    named = NAMED.findall(PAGE)
    assert len(named) > 30
    for file, test in named:
        text = (TESTS / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {test}\(", text, re.MULTILINE), f"{file} has no {test}"


def test_every_line_of_a_table_names_a_test():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row.startswith(("| what | ", "| what happens | "))]
    assert len(promises) > 25
    for row in promises:
        assert NAMED.search(row.rstrip("|").rsplit("|", 1)[1]), row
