"""Tasks in processes of this machine: all are done, whatever happens to workers and their memory."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from semishot.errors import InputError
from semishot.workers import engine
from semishot.workers.engine import Processes, Task
from support.engine_works import add_up, allocate, complain, die, stay


def task(name, work, *arguments, size=1.0, halves=list) -> Task:
    return Task(name, size, work, lambda: arguments, halves)


def outcomes(tasks, place) -> dict[str, list]:
    said: dict[str, list] = {}
    for news in engine.run(tasks, place):
        for task, value in news:
            said.setdefault(task.name, []).append(value)
    return said


def allocation(terabytes: int) -> Task:
    def halves():
        return [allocation(0), allocation(0)] if terabytes > 1 else []

    return task(f"{terabytes} TiB", allocate, terabytes, halves=halves)


def test_the_largest_begins_first_and_all_that_is_said_of_the_shared_array_comes_back():
    sizes = {"small": (0, 1.0), "large": (4, 3.0), "middle": (8, 2.0)}
    tasks = [task(name, add_up, first, 4, size=size) for name, (first, size) in sizes.items()]
    said = outcomes(tasks, Processes(["cpu"], 1, np.arange(12) ** 2))
    assert said == {name: [i**2 for i in range(k, k + 4)] for name, (k, _) in sizes.items()}
    assert list(said) == ["large", "middle", "small"]


def test_a_lost_worker_is_replaced_and_memory_that_runs_out_cuts_the_task(tmp_path, capsys):
    tasks = [task("fragile", die, tmp_path / "mark", 1), allocation(2)]
    said = outcomes(tasks, Processes(["cpu"], 1))
    assert said == {"fragile": ["begun", "begun", "lived"], "0 TiB": [0, 0]}
    lines = capsys.readouterr().err.splitlines()
    assert "fragile: lost its worker (a process on cpu ended with -9); trying again" in lines
    (cut,) = [line for line in lines if line.startswith("2 TiB: out of memory (")]
    assert cut.endswith("trying again in 2 parts")


def test_an_error_of_the_work_ends_all_and_says_where_it_was():
    place = Processes(["cpu"], 1)
    with pytest.raises(ZeroDivisionError, match="as it was told") as caught:
        outcomes([task("wrong", complain), task("other", add_up, 0, 1)], place)
    assert "in complain" in caught.value.__notes__[0]
    assert not any(worker.process.is_alive() for worker in place.idle)


def test_a_worker_that_is_ended_leaves_no_temporary_folder():
    place = Processes(["cpu"], 1)
    running = engine.run([task("long", stay)], place)
    folders = []
    while not folders:
        folders = [Path(value) for _, value in next(running)]
    assert folders[0].exists()
    running.close()
    assert not folders[0].exists()


def test_what_cannot_be_cut_is_tried_again_and_ends_in_one_line(capsys):
    alone = allocation(1)
    assert engine.again(alone, engine.NoMemory("here"), 1) == [alone]
    assert "1 TiB: out of memory (here); trying again\n" in capsys.readouterr().err
    line = r"1 TiB: out of memory \(here\), 5 times, and it cannot be made smaller"
    with pytest.raises(InputError, match=line):
        engine.again(alone, engine.NoMemory("here"), engine.LOSSES)


def test_a_task_that_takes_worker_after_worker_with_it_is_cut(capsys):
    whole, lost = allocation(2), engine.Lost("killed")
    assert all(engine.again(whole, lost, n) == [whole] for n in range(1, engine.LOSSES))
    assert {part.name for part in engine.again(whole, lost, engine.LOSSES)} == {"0 TiB"}
    assert "2 TiB: lost its worker (killed); trying again in 2 parts" in capsys.readouterr().err


def test_a_worker_ends_with_its_parent_whatever_it_does(tmp_path):
    """A killed parent cannot tell it; this one would not look at its pipe for long."""
    code = (
        "import os\n"
        "from semishot.workers.engine import Worker\n"
        "from support.engine_works import stay\n"
        "if __name__ == '__main__':\n"
        "    worker = Worker.start('cpu', 1, None, os.environ['SCRATCH'])\n"
        "    worker.pipe.send((stay, ()))\n"
        "    worker.pipe.recv()\n"
        "    print(worker.process.pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    env = {**os.environ, "SCRATCH": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=env, check=False
    )
    folder = Path(f"/proc/{int(found.stdout)}")
    while folder.exists() and (folder / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
        time.sleep(0.01)
