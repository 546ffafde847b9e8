"""Work that the kernel may never finish, such as a read from a stalled disk: waited for up to a deadline.

The work is done by a thread that can be left behind, since nothing ends a blocked system call. The
waiting thread can be interrupted by a signal at any time. Threads are reused: handing work over
takes some ten microseconds.
"""

import errno
import os
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
READ_SECONDS = 60.0
"""How long a read may take before the disk counts as stalled."""
SLICE = 0.5
"""Seconds to wait at a time: a signal that comes just before the waiting begins does not end it."""
SLOWEST = 2**20
"""Bytes per second that a disk must deliver: a long read has more time."""


def within_deadline(
    work: Callable[[], T],
    name: object,
    size: Callable[[], int] = int,
    undo: Callable[[T], object] | None = None,
) -> T:
    """The result of `work`, which reads `name`; OSError(ETIMEDOUT) if the disk does not answer.

    size: the bytes to read, as far as known: a long read has more time. If nobody waits any longer when
    `work` ends, `undo` gets its result, to close what it opened.
    """
    job = _Job(work, undo)
    try:
        worker = _idle.pop() if _idle else _Worker()
    except IndexError:  # another thread was faster
        worker = _Worker()
    except RuntimeError:  # no more threads
        return work()
    worker.begin(job)
    try:
        begun = time.monotonic()
        while not job.ended.acquire(timeout=SLICE):
            if time.monotonic() - begun > READ_SECONDS + size() / SLOWEST:
                raise OSError(errno.ETIMEDOUT, "the disk does not answer", str(name))
    except BaseException:  # a signal, too
        job.leave()
        raise
    return job.outcome()


class _Job(Generic[T]):
    """Work, then its result or its error."""

    def __init__(self, work: Callable[[], T], undo: Callable[[T], object] | None) -> None:
        self.work, self.undo = work, undo
        self.results: list[T] = []
        self.error: BaseException | None = None
        self.ended = threading.Lock()
        self.ended.acquire()
        self.first = [True]  # popped by the first of two: who ends it, who leaves it

    def run(self) -> None:
        try:
            self.results.append(self.work())
        except BaseException as error:
            self.error = error
        if not self._is_first():
            self._discard()

    def leave(self) -> None:
        if not self._is_first():
            self._discard()

    def outcome(self) -> T:
        try:
            if self.error is not None:
                raise self.error
            return self.results[0]
        finally:
            del self  # the error refers to this frame

    def _is_first(self) -> bool:
        try:
            return self.first.pop()
        except IndexError:
            return False

    def _discard(self) -> None:
        if self.undo is not None and self.results:
            self.undo(self.results[0])


class _Worker:
    """A thread that does one job at a time, and waits for the next."""

    def __init__(self) -> None:
        self.wake = threading.Lock()
        self.wake.acquire()
        self.job: _Job[object] | None = None
        threading.Thread(target=self._work, name="semishot reads", daemon=True).start()

    def begin(self, job: _Job[T]) -> None:
        self.job = job  # type: ignore[assignment]
        self.wake.release()

    def _work(self) -> None:
        while True:
            self.wake.acquire()
            job, self.job = self.job, None
            assert job is not None
            job.run()
            _idle.append(self)
            job.ended.release()
            del job


_idle: list[_Worker] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # threads do not survive a fork
