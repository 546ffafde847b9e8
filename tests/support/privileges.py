"""What a child of a test may still do: root without its powers, as a user has none."""

import ctypes
import os
import sys

CAPABILITIES = 0x20080522
"""Linux's version 3 of them."""
NO_NEW_PRIVILEGES = 38
"""Linux's PR_SET_NO_NEW_PRIVS: programs that it starts do not get them back."""


def without_root() -> None:
    """Root may read and write anything; give that up, and keep the files."""
    if sys.platform == "linux" and os.geteuid() == 0:
        system = ctypes.CDLL(None)
        header = (ctypes.c_uint32 * 2)(CAPABILITIES, 0)
        assert system.capset(header, (ctypes.c_uint32 * 6)()) == 0
        assert system.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
