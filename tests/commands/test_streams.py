"""Output that cannot be written: closed, full, or read by nobody."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from semishot.commands.main import main


@contextmanager
def replaced(name: str, file: object) -> Iterator[None]:
    before = getattr(sys, name)
    setattr(sys, name, file)
    try:
        yield
    finally:
        setattr(sys, name, before)


def code_of(*arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


@pytest.fixture
def unread():
    """A pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as file:
        yield file


both = pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["data", "list"]])


@both
@pytest.mark.parametrize("buffered", [True, False])
def test_a_full_disk_behind_stdout_is_one_line(arguments, buffered, capsys):
    with Path("/dev/full").open("w") as stdout, replaced("stdout", stdout):
        stdout.reconfigure(write_through=not buffered)
        assert code_of(*arguments) == 1
    _, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert "No space left on device; make room" in err


@both
def test_a_reader_who_has_gone_ends_a_command_quietly(arguments, unread, capsys):
    with replaced("stdout", unread):
        assert code_of(*arguments) == 141
    assert capsys.readouterr().err == ""
    unread.flush()  # the interpreter's last flush finds nothing wrong


def test_a_broken_pipe_to_something_else_is_an_error_like_others(capsys, monkeypatch):
    def break_off(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("semishot.commands.main.run", break_off)
    assert code_of("data", "list") == 1
    assert capsys.readouterr().err == "semishot: Broken pipe\n"


def test_stderr_that_cannot_be_written_does_not_change_the_code(unread):
    with Path("/dev/full").open("w") as full, replaced("stderr", full):
        assert code_of("data", "verify", "nothing") == 2
    with replaced("stderr", unread):
        assert code_of("data", "verify", "nothing") == 2
