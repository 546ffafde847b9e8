"""Progress on stderr: a bar with rate and time left on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.status import Status

T = TypeVar("T")
SECONDS_BETWEEN_LINES = 10.0


class Seconds:
    """Seconds by part, added up over threads."""

    def __init__(self) -> None:
        self.of: dict[str, float] = {}
        self.lock = threading.Lock()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            with self.lock:
                self.of[name] = self.of.get(name, 0.0) + time.perf_counter() - begun


class Meter:
    """Counts work done; call `advance` as often as you like.

    Rate and time left do without the first piece of work: what is loaded or compiled for it would make them
    look like hours. So there are none until there is a second piece.
    """

    def __init__(self, label: str, total: int, unit: str = "") -> None:
        self.label, self.total, self.unit, self.done = label, total, unit, 0
        self.seconds = Seconds()
        self.warm: tuple[int, float] | None = None  # what was done with the first piece, and when
        self.last_line = time.monotonic()
        self.bar: Progress | None = None
        console = Console(stderr=True)
        self.silent = console.is_terminal and parent_process() is not None  # a table is shown
        if console.is_terminal and not self.silent:
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
            rate = TextColumn("{task.fields[rate]}", style="dim")
            self.bar = Progress(
                *columns, rate, TimeRemainingColumn(), console=console, transient=True
            )
            self.task = self.bar.add_task(label, total=total, rate="")
            self.bar.start()

    def skip(self, amount: int) -> None:
        """Count work that an earlier run has done, before any other."""
        self.done += amount
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done)

    def advance(self, amount: int = 1, note: str = "") -> None:
        self.done += amount
        now = time.monotonic()
        if self.warm is None:
            self.warm = self.done, now
        done, first = self.warm
        rate = (self.done - done) / max(now - first, 1e-9)
        speed = f"{rate:,.0f} {self.unit}/s" if rate else ""
        if self.bar is not None:
            about = f"{self.label} {note}".strip()
            self.bar.update(self.task, completed=self.done, description=about, rate=speed)
        elif not self.silent and now - self.last_line >= SECONDS_BETWEEN_LINES:
            self.last_line = now
            parts = [f"{self.label}: {self.done / self.total:.0%}"]
            if rate:
                parts += [speed, f"{(self.total - self.done) / rate:.0f} s left"]
            print(f"{', '.join(parts)} {note}".rstrip(), file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()


@contextmanager
def meter(label: str, total: int, unit: str = "") -> Iterator[Meter]:
    opened = Meter(label, total, unit)
    try:
        yield opened
    finally:
        opened.close()


def doing(label: str) -> Status:
    """Show on a terminal what takes a while and cannot be counted: `with doing("reading"):`."""
    return Console(stderr=True).status(label, spinner="line")


def track(items: Iterable[T], label: str, total: int) -> Iterator[T]:
    """Yield `items`, showing how many of `total` are done."""
    with meter(label, total) as opened:
        for item in items:
            yield item
            opened.advance()
