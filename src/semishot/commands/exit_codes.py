"""How a command ends: one line on stderr, and an exit code that says why."""

import errno
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from semishot.errors import InputError, Terminated, printable
from semishot.system.interruptions import interrupted_line
from semishot.system.streams import discard, flushed_results, nobody_reads

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
watched = threading.Event()
"""Whether `signals.py` ends this process if the first signal does not."""
last_line, said_last_line = threading.Lock(), threading.Event()
"""For `signals.py`, which ends the process from another thread: the line is written once."""


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn an error or a signal into one line on stderr and an exit code."""
    received: list[int] = []
    try:
        with _raised_signals(received), flushed_results():
            yield
    except (Exception, KeyboardInterrupt) as error:
        if received or isinstance(error, KeyboardInterrupt):  # libraries may convert it
            terminated = signal.SIGTERM in received or isinstance(error, Terminated)
            _end(interrupted_line(), TERMINATED if terminated else INTERRUPTED)
        if isinstance(error, InputError):
            _end(str(error), WRONG_USE)
        if isinstance(error, BrokenPipeError) and nobody_reads(error):
            discard(sys.stderr)
            sys.exit(UNREAD)
        if isinstance(error, OSError):
            _end(_refusal(error), WRONG_USE if error.errno in NO_SUCH_PATH else REFUSED)
        if isinstance(error, MemoryError) or "allocate memory" in str(error):  # torch's message
            _end("not enough memory for what was asked; ask for less at a time", REFUSED)
        raise


@contextmanager
def _raised_signals(received: list[int]) -> Iterator[None]:
    """Raise Ctrl-C and SIGTERM as exceptions, if this is the thread that handles them; note which.

    Not inside an import: libraries in C++ that begin to load abort the process if one is raised there.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if watched.is_set() and len(received) > 1:
            return  # what the first began is not disturbed; the second Ctrl-C ends the process
        outside = before[signal.Signals(number)]
        if callable(outside) and _is_importing(frame):
            outside(number, frame)
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGTERM, handle)
    if before[signal.SIGINT] is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


def one_line(line: str) -> str:
    """The line that a command ends with, whatever characters the names in it contain."""
    shown = printable(line)
    if len(shown) > LONGEST:
        shown = f"{shown[: LONGEST // 2]} … {shown[-LONGEST // 2 :]}"
    return f"semishot: {shown}"


def _end(line: str, code: int) -> NoReturn:
    with last_line:
        try:
            print(one_line(line), file=sys.stderr, flush=True)
        except OSError:  # a full disk, or nobody reads it: the code still says why
            discard(sys.stderr)
        said_last_line.set()
    sys.exit(code)


def _refusal(error: OSError) -> str:
    what = error.strerror or str(error)
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in FULL:
        return f"{where}{what}; make room, and the same command continues where it stopped"
    if error.errno in FORBIDDEN:
        return f"{where}{what}; allow it, or choose another folder"
    return f"{where}{what}"
