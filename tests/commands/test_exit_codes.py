"""Every way a command ends is one line on stderr and an exit code."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from semishot.commands.exit_codes import one_line_errors
from semishot.errors import InputError, Terminated
from semishot.system.processes import note_left

FULL = OSError(errno.ENOSPC, "No space left on device", "runs/state.pt")
READ_ONLY = OSError(errno.EROFS, "Read-only file system", "runs")
NO_MEMORY = RuntimeError(
    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("no data"), 2, "no data"),
        (KeyboardInterrupt(), 130, "interrupted; what is left"),
        (Terminated(), 143, "interrupted; what is left"),
        (
            FULL,
            1,
            "runs/state.pt: No space left on device; make room, and the same command continues",
        ),
        (READ_ONLY, 1, "runs: Read-only file system; allow it, or choose another folder"),
        (OSError(errno.EIO, "Input/output error"), 1, "Input/output error"),
        (NO_MEMORY, 1, "not enough memory for what was asked; ask for less at a time"),
        (OSError("15 requested and 2 written"), 1, "15 requested and 2 written"),
    ],
)
def test_what_ends_a_command_is_one_line_and_a_code(error, code, line, capsys):
    note_left("what is left")
    with pytest.raises(SystemExit) as ended, one_line_errors():
        raise error
    assert ended.value.code == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"semishot: {line}")


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), one_line_errors():
        raise ZeroDivisionError


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("wrapped", [ZeroDivisionError, InputError, KeyboardInterrupt])
def test_a_signal_that_a_library_turned_into_its_own_error_is_still_one(number, code, wrapped):
    with pytest.raises(SystemExit) as ended, one_line_errors():
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            raise wrapped from None
    assert ended.value.code == code


# Signals to a process

LINE = "semishot: interrupted"
BEGIN = """\
import os, signal, sys, time
from semishot.commands.exit_codes import end_on_signals, one_line_errors

end_on_signals()
"""
UNWINDING = """\
with one_line_errors():
    try:
        print("begun", flush=True)
        time.sleep(600)
    finally:
        print("unwinding", flush=True)
        {}
"""


@contextmanager
def child(code: str, number: int = 0) -> Iterator[subprocess.Popen[str]]:
    arguments = [sys.executable, "-c", code, str(int(number))]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(arguments, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline().strip() == word


both = pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])


@both
def test_a_command_ends_in_good_order(number, code):
    with child(BEGIN + UNWINDING.format("print('unwound')")) as process:
        until(process, "begun")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.splitlines()) == (code, "unwinding\nunwound\n", [LINE])


@both
def test_the_second_ctrl_c_ends_it_at_once(number, code):
    with child(BEGIN + UNWINDING.format("time.sleep(600)")) as process:
        until(process, "begun")
        process.send_signal(number)
        until(process, "unwinding")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()) == (code, [LINE])


@both
def test_a_signal_in_an_import_where_none_can_be_raised_ends_the_process(number, code, tmp_path):
    """C++ that begins to load, as torch's, would abort: `terminate called after throwing`."""
    (tmp_path / "loading.py").write_text(
        "import os, sys\n"
        "try:\n"
        "    os.kill(os.getpid(), int(sys.argv[1]))\n"
        "    for _ in range(1000): pass\n"
        "except BaseException: os.abort()\n"
    )
    script = f"sys.path.insert(0, {str(tmp_path)!r})\nwith one_line_errors():\n    import loading\n"
    with child(BEGIN + script, number=number) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.splitlines()) == (code, "", [LINE])


def test_an_ignored_ctrl_c_stays_ignored_as_in_a_background_job():
    body = "with one_line_errors():\n    os.kill(os.getpid(), 2)\nos.kill(os.getpid(), 2)"
    with child("import signal; signal.signal(2, signal.SIG_IGN)\n" + BEGIN + body) as process:
        assert process.wait(60) == 0
