"""Processes: what an interruption leaves, workers that end with their parent, memory that is kept."""

import os
import sys
import threading

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
_left: list[str] = []


def note_left(what: str) -> None:
    """From now on this is what an interruption leaves, and how to go on."""
    _left[:] = [what]


def interrupted_line() -> str:
    """`interrupted`, and what was noted last."""
    return "; ".join(["interrupted", *filter(None, _left)])


def end_with_parent() -> None:
    """In a worker: end when the parent has ended, killed perhaps, and nobody waits for the work."""
    import multiprocessing

    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def keep_freed_memory() -> None:
    """Reuse freed memory, so that the kernel need not clear it again: the demo takes a quarter less time.

    Call it in a command, not in a library. It does nothing unless malloc is glibc's.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
