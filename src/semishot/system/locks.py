"""Locks between processes: held by one at a time, and released when it ends, however it ends."""

import errno
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

PAUSE = 0.02
"""Seconds between two attempts at a lock that another process holds."""
NO_LOCKS_HERE = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
"""Errors of network disks that do not support locks: nothing is locked there."""


class Lock:
    """A lock file; it exists while a process holds it. One left by a killed process is taken over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.held = self.announced = False
        self._lock = FileLock(path, blocking=False, thread_local=False)

    def acquire(self, *, announce: bool = True) -> bool:
        """Try once. If another process holds it, print that once, wait a moment and return False."""
        if self.held:
            return True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire()
        except Timeout:
            if announce and not self.announced:
                self.announced = True
                where = self.path.parent
                print(f"waiting for another process, which is working in {where}", file=sys.stderr)
            time.sleep(PAUSE)
            return False
        except OSError as error:
            if error.errno not in NO_LOCKS_HERE:
                raise
        self.held = True
        return True

    def __enter__(self) -> Self:
        while not self.acquire():
            pass
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):  # Windows removes it when it is released
            self.path.unlink()  # first: once released, it may be another process's
        self._lock.release()
        self.held = False
