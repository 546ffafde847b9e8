"""How a command ends: one line on stderr, an exit code that says why, and streams left in order."""

import errno
import os
import select
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn, TextIO

from semishot.errors import InputError, Terminated, printable
from semishot.system.processes import interrupted_line

LONGEST = 1000
"""The most characters of the line."""
REFUSED, WRONG_USE, INTERRUPTED, UNREAD, TERMINATED = 1, 2, 130, 141, 143
"""An error of the system (disk full, no permission); wrong input; Ctrl-C; nobody reads the output any
more (`| head`), as other tools; SIGTERM."""
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NO_SUCH_PATH = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTEMPTY, errno.EEXIST),
}
"""Errors about a given path, not about the system."""
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
STDOUT = "stdout"
"""The name of the file in an error about it."""


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn an error or a signal into one line on stderr and an exit code."""
    received: list[int] = []
    try:
        with _raised_signals(received), _flushed_results():
            yield
    except (Exception, KeyboardInterrupt) as error:
        if received or isinstance(error, KeyboardInterrupt):  # libraries may convert it
            terminated = signal.SIGTERM in received or isinstance(error, Terminated)
            _end(interrupted_line(), TERMINATED if terminated else INTERRUPTED)
        if isinstance(error, InputError):
            _end(str(error), WRONG_USE)
        if isinstance(error, BrokenPipeError) and (  # not of a pipe to a worker
            error.filename == STDOUT or any(map(_reader_has_gone, (sys.stdout, sys.stderr)))
        ):
            _discard(sys.stderr)
            sys.exit(UNREAD)
        if isinstance(error, OSError):
            _end(_refusal(error), WRONG_USE if error.errno in NO_SUCH_PATH else REFUSED)
        if isinstance(error, sqlite3.OperationalError):
            advice = "make room, or close what uses it, and the same command continues"
            _end(f"labels.sqlite cannot be written ({error}): {advice} where it stopped", REFUSED)
        if isinstance(error, MemoryError) or "allocate memory" in str(error):  # torch's message
            _end("not enough memory for what was asked; ask for less at a time", REFUSED)
        raise


def end_on_signals() -> None:
    """From now on a signal ends this process at once, except while `one_line_errors` raises it."""
    signal.signal(signal.SIGTERM, _end_at_once)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in a background job
        signal.signal(signal.SIGINT, _end_at_once)


@contextmanager
def _raised_signals(received: list[int]) -> Iterator[None]:
    """Raise Ctrl-C and SIGTERM as exceptions, if this is the thread that handles them; note which.

    Not inside an import: libraries in C++ that begin to load abort the process if one is raised there.
    A second Ctrl-C ends the process at once. Nothing is lost by that: files appear whole.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            if number == signal.SIGINT:
                _end_at_once(received[0])
            return
        while frame is not None:
            if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
                _end_at_once(number)
            frame = frame.f_back
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as in a background job
    numbers = (signal.SIGTERM,) if ignored else (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_at_once(number: int, frame: FrameType | None = None) -> NoReturn:
    """End the process without waiting for its threads; its workers end with it."""
    with suppress(OSError):
        os.write(2, f"{_one_line(interrupted_line())}\n".encode())
    os._exit(TERMINATED if number == signal.SIGTERM else INTERRUPTED)


def _one_line(line: str) -> str:
    """The line that a command ends with, whatever characters the names in it contain."""
    shown = printable(line)
    if len(shown) > LONGEST:
        shown = f"{shown[: LONGEST // 2]} … {shown[-LONGEST // 2 :]}"
    return f"semishot: {shown}"


def _end(line: str, code: int) -> NoReturn:
    try:
        print(_one_line(line), file=sys.stderr, flush=True)
    except OSError:  # a full disk, or nobody reads it: the code still says why
        _discard(sys.stderr)
    sys.exit(code)


def _refusal(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    advice = {
        **dict.fromkeys(FULL, "; make room, and the same command continues where it stopped"),
        **dict.fromkeys(FORBIDDEN, "; allow it, or choose another folder"),
    }
    return f"{where}{error.strerror or error}{advice.get(error.errno or 0, '')}"


@contextmanager
def _flushed_results() -> Iterator[None]:
    """Write what is buffered for stdout at the end, so that an error is one of the command."""
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError as error:
            _discard(sys.stdout)
            raise OSError(error.errno, error.strerror, STDOUT) from error


def _discard(stream: TextIO) -> None:
    """What could not be written goes nowhere: the interpreter would complain at its end."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _reader_has_gone(stream: TextIO) -> bool:
    with suppress(OSError, ValueError, AttributeError):  # not a file; Windows, which has no poll
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    return False
