"""Output that cannot be written: closed, full, or read by nobody."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from semishot.commands.main import main

OCCUPIED = """\
import os, sys
from semishot.commands.exit_codes import occupy_descriptors
occupy_descriptors()
with open(sys.argv[1], "w") as table:
    os.write(2, b"a warning of a library in C\\n")
    print("a result", flush=True)
    print("a warning", file=sys.stderr)
    sys.stdin.read()
    sys.exit(table.fileno() < 3)
"""


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


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_no_file_takes_the_place_of_a_closed_stream(closed, tmp_path):
    """`2>&-` would put the warnings of libraries into the table of predictions."""
    table = tmp_path / "table.csv"
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", OCCUPIED, str(table)]
    found = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    assert found.returncode == 0
    assert table.read_text() == ""
