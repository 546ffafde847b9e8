"""What the tests of the engines let workers do: importable there by name."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from semishot.paper import on_workers


def add_up(shared: np.ndarray, device: str, first: int, count: int) -> Iterator[int]:
    """The sum of a part of the shared array, a word at a time."""
    for place in range(first, first + count):
        yield int(shared[place])


def stay(shared: None, device: str) -> Iterator[str]:
    """The name of a temporary folder, in which it then works for long."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder
        time.sleep(1000)


def allocate(shared: None, device: str, terabytes: int) -> Iterator[int]:
    """More than any machine has, unless it is none."""
    torch.empty(terabytes * 2**40, dtype=torch.uint8)
    yield terabytes


def die(shared: None, device: str, mark: Path, times: int) -> Iterator[str]:
    """Kill the worker as long as the mark has fewer letters."""
    deaths = len(mark.read_text()) if mark.exists() else 0
    yield "begun"
    if deaths < times:
        mark.write_text("x" * (deaths + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    yield "lived"


def complain(shared: None, device: str) -> Iterator[None]:
    yield None
    raise ZeroDivisionError("as it was told")


def tight_fleet(images, device, work) -> Iterator[object]:
    """A fleet on a machine with room for one run: more of them want more than any machine has."""
    torch.empty((len(work.fleet.config.members) - 1) * 2**40, dtype=torch.uint8)
    yield from on_workers.work_on_fleet(images, device, work)
