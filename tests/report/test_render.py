"""One section, three renderers: text, Markdown, and what HTML colors."""

import pytest

from semishot.report import render
from semishot.report.tables import Grid, Number, Section

GRID = Grid(
    "caption", ["model", "a", "long header"], [["x", Number(12.5), 1], ["longer", Number(3), None]]
)


@pytest.mark.parametrize(
    ("cell", "text", "tone"),
    [
        ("words", "words", ""),
        ("", "", ""),
        (None, "-", ""),
        (12345, "12345", ""),
        (Number(97.1256), "97.13", ""),
        (Number(97.1256, 0.0449), "97.13 ± 0.04", ""),
        (Number(97.1256, 0.1, note="3"), "97.13 ± 0.10 (3)", ""),
        (Number(10, decimals=0, note="of 12"), "10 (of 12)", ""),
        (Number(20_000, decimals=0), "20,000", ""),
        (Number(0.95861, 0.00071, decimals=4), "0.9586 ± 0.0007", ""),
        (Number(0.31, form="error"), "± 0.31", ""),
        (Number(0.2, form="difference"), "+0.20", ""),
        (Number(0.2, form="difference", ratio=2.1), "+0.20 (z +2.1)", "above"),
        (
            Number(-0.001, form="difference", ratio=-2.1, statistic="t", needed=2),
            "-0.00 (t -2.1)",
            "below",
        ),
        (
            Number(-0.2, form="difference", ratio=-2.1, statistic="t", needed=4.3),
            "-0.20 (t -2.1)",
            "",
        ),
        (Number(-1.5, 0.25, form="difference"), "-1.50 ± 0.25", ""),
        (
            Number(-2, form="difference", note="low", ratio=-1.2, statistic="t"),
            "-2.00 (low, t -1.2)",
            "",
        ),
    ],
)
def test_a_cell_is_shown_and_colored(cell, text, tone):
    assert render.shown(cell) == text
    assert getattr(cell, "tone", "") == tone


def test_text_has_words_to_the_left_and_numbers_to_the_right():
    assert render.grid_as_text(GRID).splitlines() == [
        "model       a  long header",
        "------  -----  -----------",
        "x       12.50            1",
        "longer   3.00            -",
    ]


def test_a_section_is_title_notes_captioned_grids_findings_and_origin():
    facts = {"split seeds": "Split seeds 0 to 2", "recipe": "good", "device": "a; b", "mixed": "x"}
    commands = ["semishot data prepare", "semishot again"]
    section = Section("`Title`", [GRID], facts, commands, "Note.", "Found.")
    text, table = render.grid_as_text(GRID), render.grid_as_markdown(GRID)
    parts = ["Title", "Note.", "caption", text, "Found.", "Mixed: x."]
    assert render.as_text(section) == "\n\n".join(parts)
    origin = "a; b. Run again: `semishot data prepare`, then `semishot again`."
    parts = ["## `Title`", "Note.", "![Title](a.svg)", "caption:", table, "Found.", "Mixed: x."]
    assert render.as_markdown(section, "a.svg") == "\n\n".join([*parts, origin])
