"""The fleets in training are told on stderr: a live table on a terminal, lines now and then elsewhere."""

import re

import pytest
from rich.console import Console

from semishot.data.episodes import EpisodeShape
from semishot.system.progress import SECONDS_BETWEEN_LINES
from semishot.training import fleet_log as module
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.training.fleet_log import DASH, FleetTable, Row, fleet_table, row_of


@pytest.fixture
def now(monkeypatch):
    """A clock that only moves when told to."""
    held = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: held[0])
    return held


@pytest.fixture
def terminal(monkeypatch):
    wide = {"force_terminal": True, "width": 110, "color_system": None}
    monkeypatch.setattr(module, "Console", lambda **more: Console(**wide, **more))


def cells(row: Row) -> dict[str, str]:
    names = ("name", "updates", "loss", "validation", "rate", "left")
    return dict(zip(names, row.cells(), strict=True))


def test_a_row_is_named_after_its_methods_runs_and_episode():
    shape, recipe = EpisodeShape(way=4, shot=2, unlabeled=3, distractors=6), Recipe(updates=70)
    members = (Member("soft_kmeans", 0), Member("masked_soft_kmeans", 0), Member("soft_kmeans", 1))
    row = row_of(FleetConfig("d", "f", "p", recipe, shape, members))
    assert (row.name, row.updates) == ("2 methods, 3 runs, 4-way 2-shot M3 H6", 70)
    alone = row_of(FleetConfig("d", "f", "p", recipe, shape, members[:1]))
    assert alone.name == "soft_kmeans, 1 run, 4-way 2-shot M3 H6"
    assert row.images == 3 * alone.images == 3 * (4 * 2 + (4 + 6) * 3 + 4 * 1)


def test_rate_and_time_left_are_of_this_process_and_stay_once_it_is_done(now):
    row = Row("fleet", 1000, 1)
    row.begin(400)
    now[0] += 10
    row.advance(200, 0.5)
    assert (row.done, row.skipped, row.rate) == (600, 400, 20)
    assert cells(row)["left"] == "0:20"
    now[0] += 10
    row.advance(400, 0.25)
    now[0] += 1000  # while others train
    assert cells(row) == {
        "name": "fleet",
        "updates": "1,000 / 1,000",
        "loss": "0.250",
        "validation": DASH,
        "rate": "30",
        "left": "done",
    }
    row.testing = True  # by a worker
    assert cells(row)["left"] == "testing"


def test_lines_tell_the_whole_and_each_fleet_at_work_now_and_then(now, capsys):
    """The whole is counted in images: an update of the second fleet weighs three of the first."""
    rows = [Row("small", 100, 10), Row("large", 100, 30), Row("later", 100, 10)]
    with fleet_table(rows) as table:
        for row in rows[:2]:
            row.begin(0)
        table.tell()
        now[0] += SECONDS_BETWEEN_LINES
        rows[0].advance(100, 0.5)
        rows[1].advance(20, 0.75)
        rows[1].accuracy = 0.5
        table.tell()
        table.tell()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "training: 32%, 160 images/s, 0:21 left",
        "  large: 20 / 100 updates, loss 0.750, validation 50.0 %, 2.0 updates/s, 0:40 left",
    ]


def test_there_is_no_time_left_of_the_whole_until_it_is_known(now):
    """By the small updates of its first fleet, a demo of minutes was said to take hours."""
    rows = [Row("small", 100, 10), Row("large", 100, 1000)]
    table = FleetTable(rows)
    rows[0].begin(0)
    now[0] += 10
    rows[0].advance(50, 0.5)
    assert table.whole() == "training: 0%, 50 images/s"
    rows[1].begin(0)
    now[0] += 10
    rows[1].advance(10, 0.5)
    assert table.whole() == "training: 10%, 525 images/s, 2:52 left"


@pytest.mark.usefixtures("terminal")
def test_a_terminal_gets_a_table_that_leaves_when_done(capsys):
    rows = [Row("first fleet", 100, 10), Row("second fleet", 100, 10)]
    with fleet_table(rows) as table:
        rows[0].begin(0)
        rows[0].advance(50, 0.5)
        table.tell()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("\x1b[2K")  # its last act is to wipe the lines it stood on
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", err)
    for words in ("training: 25%", "first fleet", "50 / 100", "0.500", "waiting", "validation"):
        assert words in shown
