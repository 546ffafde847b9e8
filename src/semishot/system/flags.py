"""Flags that the settings of several commands share, each with its help. Nothing here imports torch."""

from pathlib import Path
from typing import Annotated

import tyro

Address = Annotated[
    str | None,
    tyro.conf.arg(
        help="The Ray cluster's address, such as 10.0.0.1:6379; else $RAY_ADDRESS, else a new one here."
    ),
]
DataRoot = Annotated[
    Path | None,
    tyro.conf.arg(help="Where prepared data are; else $SEMISHOT_DATA, else the cache folder."),
]
Device = Annotated[str, tyro.conf.arg(help="auto, cpu, cuda or cuda:N.")]
