"""Keeping freed memory: an update on the CPU uses the same large blocks every time."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h


def keep_freed_memory() -> None:
    """Spare the kernel clearing memory for every large tensor; it saves a quarter of the demo's time.

    Call it in the command, not in a library. It does nothing where malloc is not that of glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
