"""What a door is, and what may come of pushing something through it: it works, or it is refused."""

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import FrameType

from mutations import Mutation, damaged

from semishot.errors import InputError

SECONDS = 20
"""Of one case: more is a hang."""
ROOM = 2**31
"""Bytes of memory beyond what was taken before: more is a bomb."""
LONGEST = 2000
"""Characters of a message."""
MANY = 50


class FindingError(Exception):
    """Neither worked nor refused."""


class HangError(BaseException):
    """Raised by the alarm; no `except Exception` may swallow it."""


def as_it_is(data: bytes) -> bytes:
    return data


@dataclass(frozen=True)
class Door:
    """A way in: valid files, and what reads them."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    enter: Callable[[bytes, Path], object]
    """Takes the content and an empty folder to put it in."""
    mutate: Mutation = damaged
    mend: Callable[[bytes], bytes] = as_it_is
    """Make checksums right again, so that damage gets past them."""

    def odd(self, rng: Random) -> bytes:
        """A valid file, changed; mended more often than not."""
        seeds = self.seeds()
        data = self.mutate(rng.choice(seeds), rng, seeds)
        return self.mend(data) if rng.random() < 0.7 else data


def push(door: Door, data: bytes) -> str:
    """`worked` or `refused`; a FindingError for all else."""
    scratch = Path(tempfile.mkdtemp(prefix="semishot-fuzz-"))
    try:
        with alarm():
            door.enter(data, scratch)
        return "worked"
    except InputError as error:
        check_refusal(error)
        return "refused"
    except HangError as error:
        raise FindingError(f"no end after {SECONDS} seconds") from error
    except Exception as error:
        raise FindingError(f"{type(error).__name__}: {error}"[:LONGEST]) from error
    finally:
        try:
            check_left_behind(scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def check_refusal(error: InputError) -> None:
    """One line, not too long, and not for want of memory."""
    if not str(error).strip():
        raise FindingError("an empty message")
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            raise FindingError(f"takes more than {ROOM:,} bytes of memory: {error}") from error
        cause = cause.__cause__ or cause.__context__


def check_left_behind(scratch: Path) -> None:
    left = [p for p in scratch.rglob("*") if p.suffix in (".tmp", ".part", ".old")]
    if left:
        raise FindingError(f"left half-written: {left[0].name}")


@contextmanager
def alarm() -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
