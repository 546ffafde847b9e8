"""A short `make chaos`: real commands killed at random instants end as if nothing had happened."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

CHAOS = Path(__file__).parents[1] / "support" / "chaos.py"


COMPUTING = ("train", "reproduce", "reproduce table5", "classify", "classify --apply move")


def survived(*options: str) -> dict[str, int]:
    """The kills each command survived."""
    command = [sys.executable, str(CHAOS), *options]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    counts = re.findall(r"^(.+): (\d+) kills survived", found.stdout, re.MULTILINE)
    return {name: int(kills) for name, kills in counts}


def test_killed_commands_leave_what_undisturbed_ones_leave():
    few = ("reproduce", "classify --apply move")
    kills = survived("--kills", "3", "--lanes", "1", "--only", *few)
    assert kills.keys() == {*few}
    assert min(kills.values()) >= 1


@pytest.mark.slow
def test_every_command_survives_kills():
    kills = survived("--kills", "12", "--lanes", "1")
    others = {"classify --apply move again", "classify --apply copy", "classify --apply link"}
    assert kills.keys() == {*COMPUTING, *others, "data prepare", "export"}
    assert min(kills.values()) >= 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_killed_on_a_gpu_they_leave_the_same_bits_too():
    kills = survived("--device", "cuda", "--kills", "10", "--only", *COMPUTING)
    assert kills.keys() == {*COMPUTING}
    assert min(kills.values()) >= 2
