"""The fleets in training, on stderr: a live table on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table

from semishot.system.progress import SECONDS_BETWEEN_LINES
from semishot.training.config import FleetConfig

DASH = "—"
SOUND = 0.05
"""The share of the work that tells how long the rest takes: the fleets that come first have the smallest
updates, which make the fewest images a second."""


@dataclass
class Row:
    """The progress of one fleet; `training` keeps it up to date."""

    name: str
    updates: int
    images: int
    """Images encoded in an update, over all runs: the weight of an update among several fleets."""
    done: int = 0
    skipped: int = 0
    """Updates done by an earlier process, which do not count in the rate."""
    loss: float | None = None
    """The mean over the runs; so is the accuracy."""
    accuracy: float | None = None
    begun: float | None = None
    latest: float = 0.0
    """When the last updates were done."""
    testing: bool = False
    """Whether a worker tests it now."""

    def begin(self, step: int) -> None:
        self.done = self.skipped = step
        self.begun = self.latest = time.monotonic()

    def advance(self, updates: int, loss: float) -> None:
        self.done += updates
        self.loss = loss
        self.latest = time.monotonic()

    @property
    def rate(self) -> float:
        """Updates per second, up to the last ones; 0 while there are none."""
        if self.begun is None or self.done == self.skipped:
            return 0.0
        return (self.done - self.skipped) / max(self.latest - self.begun, 1e-9)

    def cells(self) -> tuple[str, str, str, str, str, str]:
        """The cells of its row; a dash means that a number is not known yet."""
        left = "waiting" if self.begun is None else DASH
        if self.done == self.updates:
            left = "testing" if self.testing else "done"
        elif self.rate:
            left = clock((self.updates - self.done) / self.rate)
        return (
            self.name,
            f"{self.done:,} / {self.updates:,}",
            DASH if self.loss is None else f"{self.loss:.3f}",
            DASH if self.accuracy is None else f"{100 * self.accuracy:.1f} %",
            f"{self.rate:,.{0 if self.rate >= 10 else 1}f}" if self.rate else DASH,
            left,
        )


def row_of(config: FleetConfig) -> Row:
    models = list(dict.fromkeys(member.model for member in config.members))
    runs, shape = len(config.members), config.shape
    who = models[0] if len(models) == 1 else f"{len(models)} methods"
    episode = f"{shape.way}-way {shape.shot}-shot M{shape.unlabeled} H{shape.distractors}"
    name = f"{who}, {runs} run{'s' if runs > 1 else ''}, {episode}"
    first, updates = config.recipe.first, config.recipe.updates
    if first is None:
        return Row(name, updates, runs * shape.images)
    images = first.updates * first.batch * first.copies + updates * shape.images
    total = first.updates + updates
    return Row(f"{name}, classes first", total, runs * images // total)


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class FleetTable:
    """`tell` may be called often: it prints only from time to time, and not on a terminal."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows, self.console = rows, Console(stderr=True)
        self.begun = self.last_line = time.monotonic()

    def whole(self) -> str:
        """The progress of all fleets, in images: their updates differ in size."""
        total = sum(row.updates * row.images for row in self.rows)
        skipped = sum(row.skipped * row.images for row in self.rows)
        done = sum(row.done * row.images for row in self.rows)
        latest = max((row.latest for row in self.rows), default=0.0)
        rate = (done - skipped) / max(latest - self.begun, 1e-9)
        share = f"training: {done / max(total, 1):.0%}"
        if not rate:
            return share
        known = (done - skipped) / max(total - skipped, 1) >= SOUND
        left = f", {clock((total - done) / rate)} left" if known else ""
        return f"{share}, {rate:,.0f} images/s{left}"

    def tell(self) -> None:
        now = time.monotonic()
        if self.console.is_terminal or now - self.last_line < SECONDS_BETWEEN_LINES:
            return
        self.last_line = now
        print(self.whole(), file=sys.stderr)
        for row in self.rows:
            if row.testing or (row.rate and row.done < row.updates):
                name, done, loss, accuracy, rate, left = row.cells()
                left += "" if row.testing else " left"
                line = (
                    f"{done} updates, loss {loss}, validation {accuracy}, {rate} updates/s, {left}"
                )
                print(f"  {name}: {line}", file=sys.stderr)
        sys.stderr.flush()

    def __rich__(self) -> Table:
        table = Table("fleet", title=self.whole(), title_justify="left", title_style="bold")
        for heading in ("updates", "loss", "validation", "updates/s", "time left"):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(*row.cells(), style="dim" if row.done == row.updates else "")
        return table


@contextmanager
def fleet_table(rows: Sequence[Row]) -> Iterator[FleetTable]:
    """On a terminal the table is redrawn four times a second, and removed when the block ends."""
    table = FleetTable(rows)
    live = Live(table, console=table.console, transient=True)
    with live if table.console.is_terminal else nullcontext():
        yield table
