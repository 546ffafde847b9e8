"""Event files for TensorBoard in a run folder: curves, mask values, and an episode with predictions.

The curves are those of `log.jsonl`. A resumed training adds a file, and TensorBoard hides what a killed
process wrote after the checkpoint.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.data.episodes import EpisodeShape
from semishot.errors import needing_extra
from semishot.training.config import FleetConfig, Member
from semishot.training.run_folder import LogLine, read_log
from semishot.training.validation import Seen, Validation

Bytes = NDArray[np.uint8]
FOLDER = "tensorboard"
"""In a run folder."""
GREEN, RED, GRAY = (0, 158, 115), (213, 94, 0), (111, 111, 111)
"""Colors: of a class, or right; a distractor, or wrong; given. Safe for all kinds of color vision."""
FRAME, GAP = 2, 12


def summary_writer() -> Any:
    """The class that writes event files, or an error that names the package to install."""
    with needing_extra("--tensorboard"):
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter


def has_events(folder: Path) -> bool:
    """Whether a run folder has event files."""
    return any((folder / FOLDER).glob("events.out.tfevents.*"))


def announce(folder: Path) -> None:
    """Raise an error early if the package is missing; else print the command that shows the files."""
    summary_writer()
    print(f"to follow it: tensorboard --logdir {folder}", file=sys.stderr)


class EventFile:
    """The events of a fleet from update `step` on."""

    def __init__(self, folder: Path, config: FleetConfig, step: int) -> None:
        begun = has_events(folder)
        self.writer = summary_writer()(folder / FOLDER, purge_step=step + 1)
        self.config, self.runs = config, run_names(config.members)
        for line in [] if begun else read_log(folder):  # it was trained without event files so far
            self.add_line(line)

    def add_line(self, line: LogLine) -> None:
        for tag, value in curves(line, self.runs):
            self.writer.add_scalar(tag, value, line["step"])
        self.writer.flush()  # the updates of a checkpoint must survive a kill

    def add_pictures(self, step: int, seen: Seen, validation: Validation) -> None:
        """Each Masked run's mask values, and the first run of each method at the first episode."""
        of_classes = validation.shape.way * validation.shape.unlabeled
        for run, masks in seen.masks.items():
            for kind, part in (
                ("of_a_class", masks[:, :of_classes]),
                ("distractor", masks[:, of_classes:]),
            ):
                if part.numel():
                    self.writer.add_histogram(f"mask/{self.runs[run]}/{kind}", part, step)
        images = validation.pixels[validation.places[0]].cpu().numpy()
        first = {
            member.model: run for run, member in reversed(list(enumerate(self.config.members)))
        }
        for model, run in first.items():
            picture = draw(images, validation.shape, seen.predicted[run].numpy())
            self.writer.add_image(f"episode/{model.replace(':', '.')}", picture, step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


def run_names(members: Sequence[Member]) -> list[str]:
    """A name for each run, in characters that TensorBoard accepts."""
    return [
        "-".join(
            [
                m.model.replace(":", "."),
                *(f"{k}{v}" for k, v in m.options.items()),
                f"seed{m.split_seed}",
            ]
        )
        for m in members
    ]


def curves(line: LogLine, runs: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Each number of a line of the log by its tag, and means over the runs."""
    yield "learning_rate", line["learning_rate"]
    for name, values in (("loss", line["loss"]), ("accuracy", line.get("accuracy"))):
        if values:
            yield f"{name}/mean", sum(values) / len(values)
            yield from ((f"{name}/{run}", value) for run, value in zip(runs, values, strict=True))


def draw(images: Bytes, shape: EpisodeShape, predicted: NDArray[np.int64]) -> Bytes:
    """An episode (B, C, H, W) as one image (3, height, width): a row per class, distractors last.

    From the left: support in gray frames; unlabeled, green if of a class and red if a distractor;
    query, green if its class was predicted and red if another was.
    """
    pixels = images if images.shape[1] == 3 else 255 - images.repeat(3, 1)  # ink on paper
    height, width = (side + 2 * FRAME for side in pixels.shape[2:])
    k, m, q = shape.shot, shape.unlabeled, shape.query
    canvas = np.full(
        (3, (shape.way + shape.distractors) * height, (k + m + q) * width + 2 * GAP), 255, np.uint8
    )
    right = predicted == np.arange(len(predicted)) // q  # (Q,)
    of_class = np.arange(shape.sizes[1]) < shape.way * m  # (U,)
    parts = np.split(pixels, np.cumsum(shape.sizes)[:2])
    colors_of_parts = (
        [GRAY] * shape.sizes[0],
        *([GREEN if g else RED for g in good] for good in (of_class, right)),
    )
    left = 0
    for part, colors, across in zip(parts, colors_of_parts, (k, m, q), strict=True):
        for i, (image, color) in enumerate(zip(part, colors, strict=True)):
            y, x = i // across * height, left + i % across * width
            canvas[:, y : y + height, x : x + width] = np.array(color)[:, None, None]
            canvas[:, y + FRAME : y + height - FRAME, x + FRAME : x + width - FRAME] = image
        left += across * width + GAP
    return canvas
