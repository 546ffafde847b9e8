"""One section, three renderers: text, Markdown, and what HTML sorts and colors by."""

from dataclasses import replace

import pytest

from semishot.report import rendering
from semishot.report.section import Grid, Number, Provenance, Section

PROVENANCE = Provenance(
    ["b", "a"], ["torch 1"], ["2026-11-16", "2026-11-15"], [0, 2, 1], [("recipe", "good")], "3 s"
)
GRID = Grid(
    "caption", ["model", "a", "long header"], [["x", Number(12.5), 1], ["longer", Number(3), None]]
)


@pytest.mark.parametrize(
    ("cell", "text", "rank", "tone"),
    [
        ("words", "words", "words", ""),
        ("", "", "", ""),
        (None, "-", "", ""),
        (12345, "12345", 12345.0, ""),
        (Number(97.1256), "97.13", 97.13, ""),
        (Number(97.1256, 0.0449), "97.13 ± 0.04", 97.13, ""),
        (Number(97.1256, 0.1, note="3"), "97.13 ± 0.10 (3)", 97.13, ""),
        (Number(10, decimals=0, note="of 12"), "10 (of 12)", 10.0, ""),
        (Number(20_000, decimals=0), "20,000", 20_000.0, ""),
        (Number(0.95861, 0.00071, decimals=4), "0.9586 ± 0.0007", 0.9586, ""),
        (Number(0.31, form="error"), "± 0.31", 0.31, ""),
        (Number(0.2, form="difference"), "+0.20", 0.2, ""),
        (Number(0.2, form="difference", z=2.1), "+0.20 (z +2.1)", 0.2, "above"),
        (Number(-0.001, form="difference", t=-2.1), "-0.00 (t -2.1)", 0.0, "below"),
        (Number(-0.2, form="difference", t=-2.1, needed=4.3), "-0.20 (t -2.1)", -0.2, ""),
        (Number(-1.5, 0.25, form="difference"), "-1.50 ± 0.25", -1.5, ""),
        (Number(-2, form="difference", note="low", t=-1.2), "-2.00 (low, t -1.2)", -2.0, ""),
    ],
)
def test_a_cell_is_shown_sorted_and_colored(cell, text, rank, tone):
    assert rendering.shown(cell) == text
    assert rendering.rank(cell) == rank
    assert rendering.tone(cell) == tone


def test_a_column_has_words_numbers_or_nothing():
    grid = Grid("", ["a", "b", "c", "d"], [["x", "", None, ""], ["y", Number(1), None, 3]])
    assert [grid.has_words(i) for i in range(4)] == [True, False, False, False]
    assert [grid.has_numbers(i) for i in range(4)] == [False, True, False, True]


def test_text_has_words_to_the_left_and_numbers_to_the_right():
    assert rendering.grid_as_text(GRID).splitlines() == [
        "model       a  long header",
        "------  -----  -----------",
        "x       12.50            1",
        "longer   3.00            -",
    ]


def test_markdown_has_a_rule_that_aligns_numbers_to_the_right():
    assert rendering.grid_as_markdown(GRID).splitlines() == [
        "| model | a | long header |",
        "| --- | ---: | ---: |",
        "| x | 12.50 | 1 |",
        "| longer | 3.00 | - |",
    ]


def section(**changes) -> Section:
    grids = changes.pop("grids", [GRID])
    return Section("Title", grids, PROVENANCE, [("all of it", "semishot again")], **changes)


def test_text_is_headings_grids_and_findings():
    table = rendering.grid_as_text(GRID)
    assert rendering.as_text(section()) == table
    headed = Grid(GRID.caption, GRID.header, GRID.rows, heading="Heading")
    said = section(grids=[headed, GRID], findings=["One.", "Two."], comparison="Compared.")
    assert rendering.as_text(said) == f"Heading\n\n{table}\n\n{table}\n\nCompared.\nOne.\nTwo."


def test_markdown_is_title_words_tables_conclusions_and_origin():
    table = rendering.grid_as_markdown(GRID)
    origin = "Split seeds 0 to 2; a, b; torch 1; 2026-11-15, 2026-11-16. To run it again: `semishot again`."
    assert rendering.as_markdown(section()) == f"## Title\n\n{table}\n\n{origin}"
    captioned = Grid(GRID.caption, GRID.header, GRID.rows, captioned=True)
    words = section(
        grids=[captioned],
        detail=", in detail",
        aim="Aim.",
        about=["About.", "More."],
        findings=["Found."],
        is_complete=False,
        about_charts="Not shown.",
    )
    missing = "Cells marked - and shots not shown have not been run."
    parts = ["## Title, in detail", "Aim.", "About.", "More.", "![above]", "caption:", table]
    parts += ["Found.", missing, origin, "![below]"]
    assert rendering.as_markdown(words, "![above]", "![below]") == "\n\n".join(parts)


def test_a_table_with_a_column_of_splits_does_not_name_the_seeds():
    splits = Grid("", ["model", "splits"], [["x", 3]])
    assert "Split seeds" not in rendering.as_markdown(section(grids=[splits]))


def test_a_comparison_with_the_paper_comes_before_findings():
    both = section(aim="Aim.", comparison="Above.", findings=["Found."], about=["About."])
    assert rendering.paragraphs(both) == ["Aim.", "Above.", "Found.", "About."]
    found = section(findings=["Found."], about=["About."], about_charts="Charts.")
    assert rendering.paragraphs(found) == ["Found.", "About.", "Charts."]


def test_a_mixture_is_said_in_text_and_in_markdown_and_what_names_no_code_too():
    mixed = replace(PROVENANCE, mixed=["code a (2 records) and b (1 records)"], code="code a and b")
    said = replace(section(), provenance=mixed)
    line = "Mixed: code a (2 records) and b (1 records)."
    assert rendering.as_text(said).endswith(f"\n\n{line}")
    assert f"\n\n{line}\n\nSplit seeds" in rendering.as_markdown(said)
    assert "; torch 1; code a and b; 2026" in rendering.as_markdown(said)
    assert ("mixed", mixed.mixed[0]) in mixed.pairs
    old = replace(section(), provenance=replace(PROVENANCE, is_old=True))
    line = "Code and data are not named: measured before records had them."
    assert rendering.as_text(old).endswith(line)
    assert line in rendering.as_markdown(old)


def test_settings_are_what_is_known():
    names = ["split seeds", "recipe", "device", "versions", "date", "wall time"]
    assert [name for name, _ in PROVENANCE.pairs] == names
    assert PROVENANCE.pairs[0] == ("split seeds", "0, 2, 1")
    assert Provenance(["d"], ["v"], ["t"]).pairs == [
        ("device", "d"),
        ("versions", "v"),
        ("date", "t"),
    ]
