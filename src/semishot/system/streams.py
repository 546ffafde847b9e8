"""stdin, stdout and stderr: never closed, and a failed write is noticed before the interpreter ends."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

STDOUT = "stdout"
"""The name of the file in an error about it."""


def occupy_descriptors() -> None:
    """Open as /dev/null what the shell has closed (`2>&-`): the next file opened would take its place.

    What libraries print to descriptor 2 would end in that file, a table of predictions for instance.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            os.set_inheritable(opened, True)
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


@contextmanager
def flushed_results() -> Iterator[None]:
    """Write what is buffered for stdout at the end, so that an error is one of the command."""
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError as error:
            discard(sys.stdout)
            raise OSError(error.errno, error.strerror, STDOUT) from error


def discard(stream: TextIO) -> None:
    """What could not be written goes nowhere: the interpreter would complain at its end."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def nobody_reads(error: BrokenPipeError) -> bool:
    """Whether this is about stdout or stderr, as in `| head`, and not about a pipe to a worker."""
    return error.filename == STDOUT or any(map(_reader_has_gone, (sys.stdout, sys.stderr)))


def _reader_has_gone(stream: TextIO) -> bool:
    if not hasattr(select, "poll"):  # Windows
        return False
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # not a file, in tests
        return False
    poll = select.poll()
    poll.register(number, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
