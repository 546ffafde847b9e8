"""Ctrl-C and SIGTERM end the process, whatever its threads wait for.

Python runs handlers of signals in the main thread, between two of its instructions. That may be never: if it
waits for a disk that does not answer, or for a thread that does. The number of a signal is written to a pipe
at once, and a thread of its own waits there.
"""

import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from semishot.commands.exit_codes import (
    INTERRUPTED,
    TERMINATED,
    last_line,
    one_line,
    said_last_line,
    watched,
)
from semishot.system.interruptions import interrupted_line

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

GRACE_SECONDS = 6.0
"""What a command may take to end in good order, unless $SEMISHOT_GRACE says more: on a machine that is
busy with other things, for example. Nothing is lost if it takes longer: see `make chaos`."""
APART_SECONDS = 0.5
"""Ctrl-C in less time is the same one: `timeout` sends it to a process and then to its group."""
SHOW_CURSOR = b"\x1b[?25h"


def end_on_signals() -> None:
    """From now on a signal ends this process: at once where nothing handles it in good order.

    That is before a command begins and after it has ended. While it runs, `one_line_errors` raises an
    exception; the process ends after GRACE_SECONDS, or at the second Ctrl-C, if that has not ended it.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        return
    signal.signal(signal.SIGTERM, _end_at_once)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in a background job
        signal.signal(signal.SIGINT, _end_at_once)
    watched.set()
    sys.unraisablehook = _say_unless_interrupted
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    told = os.environ.get("SEMISHOT_GRACE", "")
    arguments = reader, float(told) if told.isdecimal() else GRACE_SECONDS
    threading.Thread(target=_wait_for_signals, args=arguments, name="signals", daemon=True).start()


def _end_at_once(number: int, frame: FrameType | None) -> NoReturn:
    _end_process({number})


def _wait_for_signals(reader: int, grace: float) -> None:
    received: set[int] = set()
    first = 0.0
    while True:
        left = first + grace - time.monotonic() if received else None
        if not select.select([reader], [], [], left and max(left, 0.0))[0]:
            _end_process(received)
        number, now = os.read(reader, 1)[0], time.monotonic()
        if number == signal.SIGINT and received and now > first + APART_SECONDS:
            _end_process(received)
        if number in (signal.SIGINT, signal.SIGTERM):
            first = first if received else now
            received.add(number)


def _end_process(received: set[int]) -> NoReturn:
    """Say the line, unless the main thread has, and end: without locks that another thread may hold."""
    if last_line.acquire(timeout=1.0) and not said_last_line.is_set():  # not released: one line
        _write_to_stderr(f"{one_line(interrupted_line())}\n".encode())
    _kill_children()
    os._exit(TERMINATED if signal.SIGTERM in received else INTERRUPTED)


def _write_to_stderr(line: bytes) -> None:
    """Without waiting: the terminal or the pipe may have stopped."""
    with suppress(OSError, ValueError):
        if select.select([], [2], [], 0.0)[1]:
            os.write(2, (b"\n" + SHOW_CURSOR if os.isatty(2) else b"") + line)


def _kill_children() -> None:
    """Workers end with their parent by themselves, but one that computes may take a while to notice."""
    if "multiprocessing" in sys.modules:
        import multiprocessing

        with suppress(Exception):  # the main thread may be starting one
            for child in multiprocessing.active_children():
                child.kill()


def _say_unless_interrupted(what: "UnraisableHookArgs") -> None:
    """Ctrl-C in a callback of the interpreter cannot be raised: no traceback, the process will end."""
    if not issubclass(what.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(what)
