"""How a request becomes flags, and what only commands ask: tyro lists these dataclasses last."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import tyro

T = TypeVar("T")

Flags = Annotated[T, tyro.conf.arg(name="")]
"""`request: Flags[TrainRequest]`: each field of the dataclass is a flag of the command."""
Json = Annotated[bool, tyro.conf.arg(name="json", help="Print JSON.")]
Picture = Annotated[Path, tyro.conf.arg(help="The picture, an .svg.")]
Tensorboard = Annotated[
    bool, tyro.conf.arg(help="Also write event files for TensorBoard to the run folders.")
]


@dataclass(frozen=True)
class Output:
    """Where the records of a command go."""

    publish: Path | None = None
    """Add the records to the result files in this folder, for `semishot results`."""
    as_json: Json = False


@dataclass(frozen=True)
class TrainingOutput(Output):
    """Of a command that trains fleets."""

    tensorboard: Tensorboard = False
