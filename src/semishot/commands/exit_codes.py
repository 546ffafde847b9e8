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

LONGEST = 1000
"""The most characters of the line."""
INTERRUPTED_LINE = "interrupted; the same command continues from the last checkpoint"
REFUSED, WRONG_USE, INTERRUPTED, TERMINATED = 1, 2, 130, 143
"""An error of the system (disk full, no permission); wrong input; Ctrl-C; SIGTERM."""
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NO_SUCH_PATH = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTEMPTY, errno.EEXIST),
}
"""Errors about a given path, not about the system."""
FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn an error or a signal into one line on stderr and an exit code."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    if in_main_thread:
        signal.signal(signal.SIGTERM, handle)
        if before[signal.SIGINT] is signal.default_int_handler:  # and not ignored
            signal.signal(signal.SIGINT, handle)
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if received or isinstance(error, KeyboardInterrupt):  # libraries may convert it
            terminated = signal.SIGTERM in received or isinstance(error, Terminated)
            _end(INTERRUPTED_LINE, TERMINATED if terminated else INTERRUPTED)
        if isinstance(error, InputError):
            _end(str(error), WRONG_USE)
        if isinstance(error, OSError):
            _end(_refusal(error), WRONG_USE if error.errno in NO_SUCH_PATH else REFUSED)
        if isinstance(error, MemoryError) or "allocate memory" in str(error):  # torch's message
            _end("not enough memory for what was asked; ask for less at a time", REFUSED)
        raise
    finally:
        if in_main_thread:
            for number, handler in before.items():
                signal.signal(number, handler)


def _end(line: str, code: int) -> NoReturn:
    """Exit with one line, whatever characters the names in it contain."""
    shown = printable(line)
    if len(shown) > LONGEST:
        shown = f"{shown[: LONGEST // 2]} … {shown[-LONGEST // 2 :]}"
    print(f"semishot: {shown}", file=sys.stderr)
    sys.exit(code)


def _refusal(error: OSError) -> str:
    what = error.strerror or str(error)
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in FULL:
        return f"{where}{what}; make room, and the same command continues where it stopped"
    if error.errno in FORBIDDEN:
        return f"{where}{what}; allow it, or choose another folder"
    return f"{where}{what}"
