"""Watching a fleet train: lines of its log, accuracy on validation episodes, its row, its event file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from semishot.network.protonet import ProtoNet
from semishot.training.fleet_table import Row
from semishot.training.log import append_log
from semishot.training.tensorboard import EventFile
from semishot.training.validation import Validation


@dataclass(frozen=True)
class FleetObserver:
    """The observer of a fleet: see `loop.Observer`."""

    folder: Path
    model: ProtoNet
    row: Row
    validation: Validation | None
    event_file: EventFile | None
    before: int
    """Updates of the classification before the episodes."""

    def begin(self, step: int) -> None:
        if self.row.begun is None or self.row.done != self.before + step:  # else it goes on
            self.row.begin(self.before + step)

    def advance(self, updates: int, loss: float) -> None:
        self.row.advance(updates, loss)

    def line(self, step: int, rate: float, losses: Sequence[float]) -> None:
        """Write a line of the log, at some updates with the accuracy on validation episodes."""
        seen = accuracy = None
        episodes = self.validation
        last = self.before + step == self.row.updates
        if episodes is not None and (step % episodes.every == 0 or last):
            seen = episodes.look(self.model)
            accuracy = seen.accuracy
            self.row.accuracy = sum(accuracy) / len(accuracy)
        line = append_log(self.folder, step, rate, losses, accuracy)
        if self.event_file is not None:
            self.event_file.add_line(line)
            if episodes is not None and seen is not None:
                self.event_file.add_pictures(step, seen, episodes)

    def close(self) -> None:
        if self.event_file is not None:
            self.event_file.close()


@dataclass(frozen=True)
class RowObserver:
    """The observer of the classification before the episodes, which has no log."""

    row: Row

    def begin(self, step: int) -> None:
        self.row.begin(step)

    def advance(self, updates: int, loss: float) -> None:
        self.row.advance(updates, loss)

    def line(self, step: int, rate: float, losses: Sequence[float]) -> None:
        """Nothing: see above."""
