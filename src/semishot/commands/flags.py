"""Flags that several commands share, each with its help, and how a request becomes flags."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import tyro

T = TypeVar("T")

Flags = Annotated[T, tyro.conf.arg(name="")]
"""`request: Flags[TrainRequest]`: each field of the dataclass is a flag of the command."""
DataRoot = Annotated[
    Path | None,
    tyro.conf.arg(help="Where prepared data are; else $SEMISHOT_DATA, else the cache folder."),
]
Device = Annotated[str, tyro.conf.arg(help="auto, cpu, cuda or cuda:N.")]
Json = Annotated[bool, tyro.conf.arg(name="json", help="Print JSON.")]
Picture = Annotated[Path, tyro.conf.arg(help="The picture: .png, .pdf or .svg.")]
Tensorboard = Annotated[
    bool, tyro.conf.arg(help="Leave event files in the run folders too, for TensorBoard.")
]


@dataclass(frozen=True)
class Output:
    """Where the records of a command go."""

    publish: Path | None = None
    """Add the records to the result files in this folder, for `semishot results`."""
    as_json: Json = False
