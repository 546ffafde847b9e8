"""How a fleet's training goes: on stderr, in `log.jsonl` and TensorBoard; accuracy on validation episodes."""

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from semishot.data.episodes import EpisodeShape, check_enough
from semishot.data.pool import ImagePool
from semishot.data.splits import ClassImages, all_labeled
from semishot.errors import InputError, needing_extra
from semishot.network.protonet import ProtoNet
from semishot.system.progress import SECONDS_BETWEEN_LINES
from semishot.training.config import FleetConfig, Member
from semishot.training.evaluation import embed_classes, episode_accuracies
from semishot.training.examples import EpisodeStreams, streams_of
from semishot.training.run_folder import LogLine, append_log, read_log

TIMES = 10
"""The most validations in a training."""
SHARE = 0.05
"""The most images embedded for validation, as a share of those trained on. Without a backward pass they
take a third of that share of the time, and far less in a training of full length."""
CLASSES, IMAGES = 20, 15
"""Validation classes, and images of each; more only if an episode needs more."""
EPISODES, QUERY = 20, 5
AT_ONCE = 50
"""Images embedded at a time, or as many as in an update: few enough to fit, enough to be fast."""
EVENTS = "tensorboard"
"""The folder of event files in a run folder."""
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


class FleetLog:
    """Where the lines of a fleet's log go: its `log.jsonl`, its row, its event file."""

    def __init__(self, folder: Path, model: ProtoNet, row: Row) -> None:
        self.folder, self.model, self.row = folder, model, row
        self.validation: Validation | None = None
        self.events: EventFile | None = None

    def write(self, step: int, rate: float, losses: Sequence[float]) -> None:
        """A line, at some updates with the accuracy on validation episodes."""
        accuracy, episodes = None, self.validation
        if episodes is not None and (
            step % episodes.every == 0 or self.row.done == self.row.updates
        ):
            accuracy = episodes.accuracies(self.model)
            self.row.accuracy = sum(accuracy) / len(accuracy)
        line = append_log(self.folder, step, rate, losses, accuracy)
        if self.events is not None:
            self.events.add_line(line)

    def close(self) -> None:
        if self.events is not None:
            self.events.close()


@dataclass(frozen=True)
class Validation:
    """The same episodes each time and for every run, shaped as in training except for the queries, and with
    fewer classes if there are not as many."""

    pool: ImagePool
    images: ClassImages
    streams: EpisodeStreams
    every: int
    """Updates from one validation to the next; the last update has one too."""
    at_once: int

    def accuracies(self, model: ProtoNet) -> list[float]:
        """Of each run, with the moving averages, as at test. The model is unchanged, and nothing is drawn
        from the streams of training."""
        training = model.training
        embeddings = embed_classes(model, self.pool, self.images, batch=self.at_once)
        accuracies = episode_accuracies(model, embeddings, self.streams, EPISODES)  # (R, E)
        model.train(training)
        shares: list[float] = accuracies.mean(1).tolist()
        return shares


def of_classes(shape: EpisodeShape, count: int) -> EpisodeShape:
    """With at most so many classes, in about the same proportion; two are the least to tell apart."""
    wanted = shape.way + shape.distractors
    if count >= wanted or count < 2:
        return shape
    way = max(2, shape.way * count // wanted)
    return replace(shape, way=way, distractors=count - way if shape.distractors else 0)


def fixed_episodes(config: FleetConfig, pool: ImagePool, every: int) -> Validation | None:
    """The validation episodes of a training whose log has a line every `every` updates; None, with a
    warning, if the pool has too few images. Classes are drawn across groups, even if training is within one.
    """
    shape = replace(config.shape, query=QUERY, within_group=False)
    try:
        classes = pool.of_split("val")
        shape = of_classes(shape, len(classes))
        count = min(len(classes), max(CLASSES, shape.way + shape.distractors))
        most = max(IMAGES, shape.shot + shape.unlabeled + shape.query)
        spread = [classes[i] for i in np.linspace(0, len(classes) - 1, count).astype(int)]
        images = all_labeled([replace(c, count=min(c.count, most)) for c in spread])
        check_enough(images, shape, advice="the training is not affected")
    except InputError as error:
        print(f"no accuracy on validation episodes while training: {error}", file=sys.stderr)
        return None
    streams = streams_of(images, [0] * len(config.members), shape, "validation while training")
    used = len(np.unique(streams.draw(0, EPISODES)))
    seldom = max(config.recipe.updates / TIMES, used / (SHARE * config.shape.images))
    at_once = max(config.shape.images, AT_ONCE)
    return Validation(pool, images, streams, every * ceil(seldom / every), at_once)


def summary_writer() -> Any:
    """The class that writes event files, or an error that names the package to install."""
    with needing_extra("--tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter


def announce(folder: Path) -> None:
    """Raise an error early if the package is missing; else print the command that shows the files."""
    summary_writer()
    print(f"to follow it: tensorboard --logdir {folder}", file=sys.stderr)


class EventFile:
    """The curves of `log.jsonl` as TensorBoard reads them, written anew when a training is resumed."""

    def __init__(self, folder: Path, config: FleetConfig) -> None:
        shutil.rmtree(folder / EVENTS, ignore_errors=True)
        self.writer = summary_writer()(folder / EVENTS)
        self.runs = [run_name(member) for member in config.members]
        for line in read_log(folder):
            self.add_line(line)

    def add_line(self, line: LogLine) -> None:
        for tag, value in self.curves(line):
            self.writer.add_scalar(tag, value, line["step"])
        self.writer.flush()  # the updates of a checkpoint must survive a kill

    def curves(self, line: LogLine) -> Iterator[tuple[str, float]]:
        """Each number of a line by its tag, and means over the runs."""
        yield "learning_rate", line["learning_rate"]
        for name, values in (("loss", line["loss"]), ("accuracy", line.get("accuracy"))):
            if values:
                yield f"{name}/mean", sum(values) / len(values)
                yield from ((f"{name}/{r}", v) for r, v in zip(self.runs, values, strict=True))

    def close(self) -> None:
        self.writer.close()


def run_name(member: Member) -> str:
    """In characters that TensorBoard accepts."""
    options = [f"{name}{value}" for name, value in member.options.items()]
    return "-".join([member.model.replace(":", "."), *options, f"seed{member.split_seed}"])
