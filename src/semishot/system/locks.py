"""Locks between processes: held by one at a time, and released when it ends, however it ends."""

import errno
import os
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from semishot.errors import InputError, printable
from semishot.system.open_files import FLAGS, NO_FOLLOW, open_regular

if sys.platform != "win32":
    import fcntl

MOST_SHOWN = 200
"""How many characters of a lock file are shown."""
PAUSE = 0.02
"""Seconds between two attempts at a lock that another process holds."""
MOST_ATTEMPTS = 50
"""Attempts after which the holder probably cannot write its name: its disk may be full."""
NO_LOCKS_HERE = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}
"""Errors of network disks that do not support locks. There, as on Windows, nothing is locked."""


class Lock:
    """A lock file; it exists while a process holds it. One left by a killed process is taken over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor: int | None = None
        self.announced = False
        self.attempts = 0

    def acquire(self) -> bool:
        """Try once. If another process holds it, print that once, wait a moment and return False."""
        if self.descriptor is not None:
            return True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.descriptor = lock_file(self.path)
        if self.descriptor is None:
            self._announce()
            time.sleep(PAUSE)
            return False
        name_holder(self.descriptor)
        return True

    def _announce(self) -> None:
        if self.announced:
            return
        self.attempts += 1
        try:
            holder = holder_of(self.path)
        except OSError:  # it has just ended
            return
        if holder or self.attempts > MOST_ATTEMPTS:
            shown = printable(holder) or "another process"
            print(f"waiting for {shown}, which is working in {self.path.parent}", file=sys.stderr)
            self.announced = True

    def __enter__(self) -> Self:
        while not self.acquire():
            pass
        return self

    def __exit__(self, *error: object) -> None:
        assert self.descriptor is not None
        self.path.unlink(missing_ok=True)  # first: once released, it may be another process's
        os.close(self.descriptor)
        self.descriptor = None


def name_holder(descriptor: int) -> None:
    """Write into a lock file which process holds it."""
    with suppress(OSError):  # on a full disk: the name is only shown to waiting processes
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())


def holder_of(path: Path) -> str:
    """What a lock file says about the process that holds it."""
    with open_regular(path) as file:
        return file.read(4 * MOST_SHOWN).decode(errors="replace")[:MOST_SHOWN]


def lock_file(path: Path) -> int | None:
    """Open and lock a file, created if needed; None if another process has locked it."""
    while True:
        descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
        if not lock(descriptor):
            os.close(descriptor)
            return None
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # its previous holder has removed it


def open_own(path: Path, access: int) -> int:
    """Open a file to be written; `access` is of os.open.

    A link or a second name in a folder received from others must not redirect our writes to another file.
    """
    descriptor = os.open(path, access | NO_FOLLOW | FLAGS, 0o666)
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
        os.close(descriptor)
        raise InputError(
            f"{path} is not a regular file or has a second name, and would be written to: remove it"
        )
    return descriptor


def lock(descriptor: int) -> bool:
    """Lock an open file or folder until it is closed; False if another process has locked it."""
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in NO_LOCKS_HERE:
                raise
    return True


@contextmanager
def lock_if_free(path: Path) -> Iterator[bool]:
    """Lock a file or folder for the block; False if it is gone or the process that locked it still runs.

    False, too, for anything that semishot does not create: a link, a pipe, a device.
    """
    try:
        mode = path.lstat().st_mode  # opening a device may have an effect
        descriptor = os.open(path, os.O_RDONLY | NO_FOLLOW | FLAGS) if _ours(mode) else None
    except OSError:
        descriptor = None
    if descriptor is None:
        yield False
        return
    try:
        yield _ours(os.fstat(descriptor).st_mode) and _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _ours(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _try_lock(descriptor: int) -> bool:
    """Lock an open file; False if another process has locked it, or if locks do not work here."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
