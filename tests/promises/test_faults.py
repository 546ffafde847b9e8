"""A full disk, a second process: one line, an exit code, nothing lost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="module")
def faults(tmp_path_factory) -> dict[str, dict]:
    """What `faults.py` found, all faults in one process."""
    work = tmp_path_factory.mktemp("faults")
    command = [sys.executable, str(SUPPORT / "faults.py"), str(work)]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(found.stdout)


def lines(said: str) -> list[str]:
    """What a command said, but for the table it announces and where its report lies."""
    return [line for line in said.splitlines() if not line.startswith(("glyphs:", "report:"))]


REFUSED = {
    "train": "state.pt: File too large; make room, ",
    "data prepare": "images.npy: File too large; make room, ",
    "classify": "labels.sqlite cannot be written (disk I/O error): make room, ",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_a_full_disk_is_one_line_and_the_next_run_goes_on(faults, name):
    found = faults[f"full disk: {name}"]
    assert found["code"] == 1
    (line,) = lines(found["said"])
    assert line.startswith("semishot: ")
    assert REFUSED[name] in line
    assert line.endswith("and the same command continues where it stopped")
    features = "out/embeddings/"  # small enough to be kept
    assert {Path(path).name for path in found["left"] if not path.startswith(features)} <= {
        *("config.json", "log.jsonl", "training.json"),  # of a training that has begun
        *("images.npy", "pool.json"),  # of the older pool
        *("labels.sqlite", "labels.sqlite-shm", "labels.sqlite-wal"),  # without an answer
    }
    assert found["differs"] == []


@pytest.mark.parametrize("name", ["train", "reproduce", "data prepare", "classify"])
@pytest.mark.slow
def test_of_two_processes_in_one_folder_one_waits_and_says_so(faults, name):
    found = faults[f"together: {name}"]
    assert found["code"] == 0
    assert found["differs"] == []
    assert not [path for path in found["left"] if path.endswith((".tmp", ".lock"))]
    waited = [line for said in found["said"] for line in lines(said)]
    assert waited
    assert all(line.startswith("waiting for another process, which is ") for line in waited)


@pytest.mark.slow
def test_of_two_processes_that_move_a_pile_one_sorts_it_again_without_a_change(faults):
    """After it has waited; or it is told that the pile has gone while it listed it."""
    found = faults["together: classify --apply move"]
    assert found["code"] in (0, 2)
    assert not [path for path in found["left"] if path.endswith((".tmp", ".lock", ".npy"))]
    assert set(found["differs"]) <= {"(stdout)"}
