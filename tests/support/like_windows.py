"""The command `semishot` without what Windows lacks: `python -m support.like_windows label PILE`.

Our modules get other `os`, `signal` and `sys`; other packages have code of their own for Windows.
"""

import builtins
import errno
import os
import signal
import sys
from types import ModuleType
from typing import Any, NoReturn

MISSING_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty"}
LACKING = """
O_NOFOLLOW O_NONBLOCK O_DIRECTORY O_CLOEXEC fork getuid geteuid chown fchmod fchown lchown mkfifo
statvfs killpg getpgid setsid getloadavg sched_getaffinity posix_fallocate posix_fadvise sysconf wait4
waitid SIGKILL SIGHUP SIGPIPE SIGALRM SIGUSR1 setitimer pthread_sigmask
"""
MISSING_NAMES = LACKING.split()
real_import = builtins.__import__


class StandIn(ModuleType):
    """A module of Python as it is on Windows."""

    def __init__(self, module: ModuleType, **other: Any) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(module=module, **other)

    def __getattr__(self, name: str) -> Any:
        if name in MISSING_NAMES:
            raise AttributeError(f"Windows has no {name}")
        return getattr(self.module, name)


def no_links(*paths: Any, **options: Any) -> NoReturn:
    """As on a disk without hard links."""
    raise OSError(errno.EPERM, "no hard links here")


STAND_INS = {
    "os": StandIn(os, link=no_links),
    "signal": StandIn(signal),
    "sys": StandIn(sys, platform="win32"),
}


def import_as_on_windows(name: str, where: Any = None, *more: Any, **named: Any) -> Any:
    if not (where or {}).get("__name__", "").startswith("semishot"):
        return real_import(name, where, *more, **named)
    if name.partition(".")[0] in MISSING_MODULES:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return STAND_INS.get(name) or real_import(name, where, *more, **named)


if __name__ == "__main__":
    builtins.__import__ = import_as_on_windows
    from semishot.commands.main import main

    main(sys.argv[1:])
