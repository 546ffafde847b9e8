"""A sample of the hostile trees of `make chaos`: every kind of node in every place where a command looks."""

import re
import subprocess
import sys

import pytest

from support.hostile_nodes import NODES
from support.hostile_places import PLACES, RUNS
from support.hostile_trees import chosen, combinations

COMMAND = [sys.executable, "-m", "support.hostile_trees", "--lanes", "1"]
QUICK = ("table", "features", "undo", "predict", "predict-cached")
"""Commands that are over soon."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def played(*options: str) -> str:
    found = subprocess.run([*COMMAND, *options], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_commands_end_by_themselves_and_change_nothing_that_is_not_theirs():
    said = played("--cases", "20", "--seed", "0", "--commands", *QUICK)
    assert re.search(r"^0 of 20 failed", said, re.MULTILINE)


@pytest.mark.slow
def test_so_do_all_commands():
    said = played("--cases", "150", "--seed", "1")
    assert re.search(r"^0 of 150 failed", said, re.MULTILINE)


def test_every_node_place_and_command_is_there_and_a_seed_draws_the_same():
    every = combinations()
    assert len(every) > 5000
    assert {case.command for case in every} == RUNS.keys()
    assert {case.place for case in every} == PLACES.keys()
    drawn = chosen(2400, 0)
    assert drawn == chosen(2400, 0)
    assert len({*drawn}) == 2400
    assert {case.node for case in drawn} == {case.node for case in every} <= NODES.keys()
    assert {(c.place, c.command) for c in drawn} == {(c.place, c.command) for c in every}
