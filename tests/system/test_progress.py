"""Progress goes to stderr: a bar on a terminal, lines with rate and time left elsewhere."""

import re

import pytest
from rich.console import Console

from semishot.system import progress
from semishot.system.progress import Meter, meter


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when told to."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_lines_tell_share_rate_and_time_left_now_and_then(clock, capsys):
    """Rate and time left are of this process: what an earlier run had done is no part of them."""
    opened = Meter("work", 100, "images")
    opened.skip(40)
    clock[0] += progress.SECONDS_BETWEEN_LINES / 2
    opened.advance(5)
    clock[0] += progress.SECONDS_BETWEEN_LINES / 2
    opened.advance(5, "loss 0.5")
    opened.advance(5)
    out, err = capsys.readouterr()
    rate = 10 / progress.SECONDS_BETWEEN_LINES
    assert out == ""
    (line,) = err.splitlines()
    assert line == f"work: 50%, {rate:,.0f} images/s, {50 / rate:.0f} s left loss 0.5"


def test_there_is_no_time_left_until_it_is_known(clock, capsys):
    """What is loaded for the first images was counted: a minute of work was hours at first."""
    opened = Meter("work", 1000, "images")
    clock[0] += progress.SECONDS_BETWEEN_LINES
    opened.advance(1)
    clock[0] += progress.SECONDS_BETWEEN_LINES
    opened.advance(100)
    lines = capsys.readouterr().err.splitlines()
    rate = 100 / progress.SECONDS_BETWEEN_LINES
    assert lines == ["work: 0%", f"work: 10%, {rate:,.0f} images/s, {899 / rate:.0f} s left"]


def test_a_terminal_gets_a_bar_that_leaves_when_done(monkeypatch, capsys):
    monkeypatch.setattr(
        progress, "Console", lambda **more: Console(force_terminal=True, width=120, **more)
    )
    with meter("work", 4, "images") as opened:
        opened.advance(2, "loss 0.5")
        assert opened.bar is not None
        opened.bar.refresh()
        assert opened.bar.tasks[0].completed == 2
    out, err = capsys.readouterr()
    assert out == ""
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", err)
    assert "work loss 0.5" in shown
    assert "50%" in shown
    assert opened.bar.finished or not opened.bar.live.is_started
