"""Every way a command ends is one line on stderr and an exit code."""

import errno
import os
import signal
import threading

import pytest

from semishot.commands.exit_codes import one_line_errors
from semishot.errors import InputError, Terminated
from semishot.system.interruptions import note_left


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", "runs/state.pt")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("no data"), 2, "no data"),
        (KeyboardInterrupt(), 130, "interrupted; what is left"),
        (Terminated(), 143, "interrupted; what is left"),
        (
            full(),
            1,
            "runs/state.pt: No space left on device; make room, and the same command continues where "
            "it stopped",
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "runs"),
            1,
            "runs: Read-only file system; allow it, or choose another folder",
        ),
        (OSError(errno.EIO, "Input/output error"), 1, "Input/output error"),
        (
            RuntimeError(
                "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
            ),
            1,
            "not enough memory for what was asked; ask for less at a time",
        ),
        (OSError("15 requested and 2 written"), 1, "15 requested and 2 written"),
    ],
)
def test_what_ends_a_command_is_one_line_and_a_code(error, code, line, capsys):
    note_left("what is left")
    with pytest.raises(SystemExit) as ended, one_line_errors():
        raise error
    assert ended.value.code == code
    assert capsys.readouterr() == ("", f"semishot: {line}\n")


def test_a_bug_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), one_line_errors():
        raise ZeroDivisionError


def test_sigterm_is_heard_within_and_as_before_after():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, one_line_errors():
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("wrapped", [ZeroDivisionError, InputError, KeyboardInterrupt])
def test_a_signal_that_a_library_turned_into_its_own_error_is_still_one(number, code, wrapped):
    with pytest.raises(SystemExit) as ended, one_line_errors():
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            raise wrapped from None
    assert ended.value.code == code


def test_an_ignored_ctrl_c_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with one_line_errors():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_in_another_thread_signals_are_left_alone():
    codes = []

    def work() -> None:
        try:
            with one_line_errors():
                raise full()
        except SystemExit as ended:
            codes.append(ended.code)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert codes == [1]
