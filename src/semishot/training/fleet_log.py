"""The log of a fleet in training: losses, accuracy on fixed validation episodes, TensorBoard's curves.

The curves are those of `log.jsonl`. A resumed training adds an event file, and TensorBoard hides what a
killed process wrote after the checkpoint.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from semishot.data.episodes import EpisodeShape, check_enough
from semishot.data.pool import ImagePool
from semishot.data.splits import ClassImages, all_labeled
from semishot.errors import InputError, needing_extra
from semishot.network.protonet import ProtoNet
from semishot.training.config import FleetConfig, Member
from semishot.training.evaluation import embed_classes, episode_accuracies
from semishot.training.examples import EpisodeStreams, streams_of
from semishot.training.fleet_table import Row
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


def has_events(folder: Path) -> bool:
    """Whether a run folder has event files."""
    return any((folder / EVENTS).glob("events.out.tfevents.*"))


def announce(folder: Path) -> None:
    """Raise an error early if the package is missing; else print the command that shows the files."""
    summary_writer()
    print(f"to follow it: tensorboard --logdir {folder}", file=sys.stderr)


class EventFile:
    """The curves of a fleet from update `step` on."""

    def __init__(self, folder: Path, config: FleetConfig, step: int) -> None:
        begun = has_events(folder)
        self.writer = summary_writer()(folder / EVENTS, purge_step=step + 1)
        self.runs = [run_name(member) for member in config.members]
        for line in [] if begun else read_log(folder):  # it was trained without event files so far
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
