"""Progress on stderr: a bar with rate and time left on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

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
    """Counts work done; call `advance` as often as you like."""

    def __init__(self, label: str, total: int, unit: str = "") -> None:
        self.label, self.total, self.unit, self.done = label, total, unit, 0
        self.seconds = Seconds()
        self.skipped = 0  # done by an earlier run: not counted in the rate
        self.console = Console(stderr=True)
        self.begun = self.last_line = time.monotonic()
        self.bar: Progress | None = None
        if self.console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
            rate = TextColumn("{task.fields[rate]}", style="dim")
            self.bar = Progress(
                *columns, rate, TimeRemainingColumn(), console=self.console, transient=True
            )
            self.task = self.bar.add_task(label, total=total, rate="")
            self.bar.start()

    def skip(self, amount: int) -> None:
        """Count work that an earlier run has done."""
        self.skipped += amount
        self.advance(amount)

    def advance(self, amount: int = 1, note: str = "") -> None:
        self.done += amount
        now = time.monotonic()
        rate = (self.done - self.skipped) / max(now - self.begun, 1e-9)
        if self.bar is not None:
            about = f"{self.label} {note}".strip()
            speed = f"{rate:,.0f} {self.unit}/s"
            self.bar.update(self.task, completed=self.done, description=about, rate=speed)
        elif now - self.last_line >= SECONDS_BETWEEN_LINES and rate > 0:
            self.last_line = now
            share, left = self.done / self.total, (self.total - self.done) / rate
            line = f"{self.label}: {share:.0%}, {rate:,.0f} {self.unit}/s, {left:.0f} s left {note}"
            print(line.rstrip(), file=sys.stderr, flush=True)

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        if self.bar is not None:
            self.bar.print(line, markup=False, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)

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


@contextmanager
def doing(label: str) -> Iterator[None]:
    """Show on a terminal what takes a while and cannot be counted."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(label, spinner="line"):
        yield


def track(items: Iterable[T], label: str, total: int) -> Iterator[T]:
    """Yield `items`, showing how many of `total` are done."""
    with meter(label, total) as opened:
        for item in items:
            yield item
            opened.advance()
