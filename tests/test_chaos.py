"""A short `make chaos`: real commands killed at random instants end as if nothing had happened."""

import re
import subprocess
import sys
from pathlib import Path

CHAOS = Path(__file__).with_name("chaos.py")


def test_killed_commands_leave_what_undisturbed_ones_leave():
    command = [sys.executable, str(CHAOS), "--kills", "8", "--lanes", "1"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    survived = re.findall(r"^(.+): (\d+) kills survived", found.stdout, re.MULTILINE)
    assert [name for name, _ in survived] == [
        *("train", "reproduce", "reproduce table5", "data prepare"),
        *("classify", "classify --apply move", "export"),
    ]
    assert all(int(kills) >= 2 - (name == "export") for name, kills in survived)
