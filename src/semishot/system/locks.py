"""Locks between processes: held by one at a time, and given up when it ends, however it ends."""

import errno
import os
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from semishot.errors import InputError, printable

if sys.platform != "win32":
    import fcntl

MOST_SAID = 200
"""Characters of a lock file that are shown."""
PAUSE = 0.02
"""Seconds between two attempts at a lock that another process holds."""
NAMELESS = 50
"""Attempts after which a holder that has not written its name will not: its disk may be full."""
NO_LOCKS_HERE = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
"""What some network disks answer: there, as on Windows, nothing is locked."""

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""A link in a folder from elsewhere must not lead us into writing another file."""


class Lock:
    """A lock file, there only while a process holds it or after one was killed: that is no obstacle."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place: int | None = None
        self.told = False
        self.looks = 0

    def taken(self) -> bool:
        """Try; if another process holds it, say so once, wait a moment and answer False."""
        if self.place is not None:
            return True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.place = lock_file(self.path)
        if self.place is None:
            self._tell()
            time.sleep(PAUSE)
            return False
        with suppress(OSError):  # a full disk: only those who wait would like to know
            os.ftruncate(self.place, 0)
            os.write(self.place, f"process {os.getpid()} on {socket.gethostname()}".encode())
        return True

    def _tell(self) -> None:
        if self.told:
            return
        self.looks += 1
        try:
            with self.path.open(encoding="utf-8", errors="replace") as file:
                said = file.read(MOST_SAID)
        except OSError:  # it has just ended
            return
        if said or self.looks > NAMELESS:
            holder = printable(said) or "another process"
            print(f"waiting for {holder}, which is at work in {self.path.parent}", file=sys.stderr)
            self.told = True

    def __enter__(self) -> Self:
        while not self.taken():
            pass
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.place is not None
        self.path.unlink(missing_ok=True)  # before the lock goes: after it, it may be another's
        os.close(self.place)
        self.place = None


def lock_file(path: Path) -> int | None:
    """A file that this process alone has open and locked, made if need be; None if another has it."""
    while True:
        place = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o666)
        about = os.fstat(place)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
            os.close(place)
            raise InputError(
                f"{path} is no regular file or has a second name, and would be written: remove it"
            )
        if not lock(place):
            os.close(place)
            return None
        if os.fstat(place).st_nlink:
            return place
        os.close(place)  # whoever held it has removed it


def lock(place: int) -> bool:
    """Lock an open file or folder until it is closed; False if another process has."""
    if sys.platform != "win32":
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in NO_LOCKS_HERE:
                raise
    return True


@contextmanager
def abandoned(path: Path) -> Iterator[bool]:
    """Whether the process that made this file or folder, and locked it, has ended.

    If so it is locked here for the length of the block: nobody may take the name up meanwhile.
    """
    try:
        place = os.open(path, os.O_RDONLY)
    except OSError:
        yield False
        return
    try:
        yield _free(place)
    finally:
        os.close(place)


def _free(place: int) -> bool:
    """Lock an open file; False if another process has, or if nobody can."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
