"""The child of a case: what it may do, how long and with how much memory, and who talks to it."""

import contextlib
import faulthandler
import os
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support.label_over_http import connected, first_images
from support.privileges import without_root

SECONDS = 20.0
MOST_BYTES = 2**30
"""Of memory beyond what the interpreter had before."""
MOST_WRITTEN = 2**30
PATIENCE = 5.0
"""Seconds in which a process that is not waiting for ever does some work."""
GROWS_FOR, PIECE = 2**26, 2**18
"""Bytes that a growing file gets, and how many at a time."""


def confine(case: Path, powers: bool) -> None:
    """The child can reach only its own folder by default names, and write no large file."""
    os.setsid()
    os.environ.update(
        HOME=str(case / "home"), XDG_DATA_HOME=str(case / "home"), TMPDIR=str(case / "tmp")
    )
    for name in ("XDG_CACHE_HOME", "SEMISHOT_DATA"):
        os.environ.pop(name, None)
    tempfile.tempdir = None
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_WRITTEN, MOST_WRITTEN))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.register(signal.SIGUSR1, file=2)
    if not powers:
        without_root()


@dataclass
class Limits:
    """SECONDS: by the clock for a process that waits, of work for one that a busy machine holds up."""

    begun: float = field(default_factory=time.monotonic)
    worked: float = 0.0
    """Seconds of work when it was last seen to work."""
    seen: float = field(default_factory=time.monotonic)

    def exceeded(self, process: int) -> bool:
        now, work = time.monotonic(), seconds_of_work(process)
        if work > self.worked + 0.05:
            self.worked, self.seen = work, now
        idle = now - self.seen > PATIENCE
        return now - self.begun > SECONDS and (idle or work > SECONDS)


@dataclass
class Watched:
    """A child, the memory it takes, and an end after SECONDS."""

    child: int
    taken: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def until_ended(self) -> int | None:
        """Its exit code; None if it was killed, for it took too much memory or did not end."""
        before = resident(os.getpid())
        limits = Limits()
        try:
            while True:
                ended, status, used = os.wait4(self.child, os.WNOHANG)
                if ended:
                    self.taken = max(self.taken, used.ru_maxrss * 1024 - before)
                    return os.waitstatus_to_exitcode(status)
                self.taken = max(self.taken, resident(self.child) - before)
                if self.taken > MOST_BYTES or limits.exceeded(self.child):
                    os.kill(self.child, signal.SIGUSR1)  # where it is: see `confine`
                    time.sleep(0.2)
                    os.kill(self.child, signal.SIGKILL)
                    os.waitpid(self.child, 0)
                    return None
                time.sleep(0.01)
        finally:
            self.ended.set()
            with contextlib.suppress(ProcessLookupError, PermissionError):  # its workers
                os.killpg(self.child, signal.SIGKILL)

    def alive(self) -> bool:
        return not self.ended.is_set()


def seconds_of_work(process: int) -> float:
    """By the process and the children it has waited for."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def resident(process: int) -> int:
    """The bytes of memory of a process, 0 if it has just ended."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * resource.getpagesize()


def converse(case: Path, watched: Watched, problems: list[str]) -> None:
    """Give `label` one answer, ask for what a page asks for, and end it."""
    try:
        client = connected(Path(f"{case}.out"), watched.alive)
        if client is None:
            return
        images = first_images(client, watched.alive)
        bodies: list[tuple[str, object]] = [
            ("/answer", {"kind": "new", "name": "seen", "images": images[:1]}),
            *[(f"/{what}/{image}", None) for what in ("thumb", "large") for image in images[:2]],
            ("/table/labels.csv", None),
            ("/plan?how=move", None),
        ]
        for path, body in bodies:
            status, _, content = client.ask(path, body)
            if status >= 500 and status != 503:
                problems.append(f"Traceback of {path}: status {status} {content[:200]!r}\n")
    except (OSError, ValueError, KeyError, AssertionError) as error:
        if watched.alive():
            problems.append(f"{type(error).__name__} in the conversation: {error}\n")
    finally:
        if watched.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(watched.child, signal.SIGTERM)


@contextlib.contextmanager
def growing(path: Path | None) -> Iterator[None]:
    """Meanwhile another process appends to the file, up to a bound."""
    if path is None:
        yield
        return
    done = threading.Event()

    def grow() -> None:
        piece = (path.read_bytes() or b"\n")[:PIECE]
        with path.open("ab") as file:
            while not done.wait(0.002) and file.tell() < GROWS_FOR:
                file.write(piece * max(1, PIECE // len(piece)))
                file.flush()

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
