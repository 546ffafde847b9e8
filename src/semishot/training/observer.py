"""Following a training: lines of its log, accuracy on validation episodes, its row, its event file."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from semishot.data.pool import ImagePool
from semishot.network.protonet import ProtoNet
from semishot.training.config import FleetConfig
from semishot.training.fleet_table import Row
from semishot.training.log import append_log
from semishot.training.tensorboard import Board
from semishot.training.validation import Validation, fixed_episodes


@dataclass(frozen=True)
class Follower:
    """Looks at a fleet and changes nothing about it."""

    folder: Path
    updates: int
    row: Row
    validation: Validation | None
    board: Board | None

    def line(self, step: int, rate: float, losses: Sequence[float], model: ProtoNet) -> None:
        """A line of the log, every so often with the accuracy on validation episodes."""
        seen = accuracy = None
        episodes = self.validation
        if episodes is not None and (step % episodes.every == 0 or step == self.updates):
            seen = episodes.look(model)
            accuracy = seen.accuracy
            self.row.accuracy = sum(accuracy) / len(accuracy)
        line = append_log(self.folder, step, rate, losses, accuracy)
        if self.board is not None:
            self.board.add_line(line)
            if episodes is not None and seen is not None:
                self.board.add_pictures(step, seen, episodes)


@contextmanager
def following(
    config: FleetConfig,
    pool: ImagePool,
    folder: Path,
    device: torch.device,
    row: Row,
    step: int,
    between_lines: int,
    tensorboard: bool,
) -> Iterator[Follower]:
    """Of a fleet that is at update `step` and has a line in its log after every so many."""
    row.begin(step)
    episodes = fixed_episodes(config, pool, device, between_lines)
    board = Board(folder, config, step) if tensorboard else None
    try:
        yield Follower(folder, config.recipe.updates, row, episodes, board)
    finally:
        if board is not None:
            board.close()
