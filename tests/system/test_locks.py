"""Locks: one process at a time; whoever is killed holds nothing, and what it left is swept."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

from semishot.system.files import sweep, whole_folder, write_whole
from semishot.system.locks import Lock

HOLDING = """
import sys
from pathlib import Path
from semishot.system.locks import Lock
with Lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
WRITING = """
import os, sys, time
from pathlib import Path
from semishot.system.files import write_whole

def slowly(descriptor):
    print("half", flush=True)
    time.sleep(100)

os.fsync = slowly
write_whole(Path(sys.argv[1]), "half")
"""


def another_process(code: str, *arguments: object) -> subprocess.Popen:
    """A process that has come as far as its first word."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def kill(process: subprocess.Popen) -> None:
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    process.stdin.close()


def test_a_lock_leaves_nothing(tmp_path):
    with Lock(tmp_path / "new" / ".lock"):
        assert (tmp_path / "new" / ".lock").exists()
    assert list((tmp_path / "new").iterdir()) == []


def test_a_waiting_process_says_so_once_and_comes_next(tmp_path, capsys):
    path = tmp_path / ".lock"
    with another_process(HOLDING, path) as holder:
        lock = Lock(path)
        assert not lock.acquire(announce=False)
        assert capsys.readouterr().err == ""
        assert not lock.acquire()
        assert not lock.acquire()
        holder.stdin.close()
        with lock:
            assert path.exists()
    line = f"waiting for another process, which is working in {tmp_path}\n"
    assert capsys.readouterr().err == line
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path, capsys):
    path = tmp_path / ".lock"
    kill(another_process(HOLDING, path))
    assert path.exists()
    with Lock(path):
        assert capsys.readouterr().err == ""


def test_a_disk_without_locks_is_used_without(tmp_path, monkeypatch):
    def refuse(self: FileLock) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(FileLock, "acquire", refuse)
    with Lock(tmp_path / ".lock"):
        pass


def test_what_a_killed_process_left_is_swept_a_day_later_or_under_a_lock(tmp_path):
    writer = another_process(WRITING, tmp_path / "target")
    (half,) = tmp_path.iterdir()
    write_whole(tmp_path / "target", "whole")
    assert half.exists()
    kill(writer)
    os.utime(half, (0, 0))
    write_whole(tmp_path / "target", "whole")
    assert list(tmp_path.iterdir()) == [tmp_path / "target"]
    (tmp_path / ".pool.12.tmp").mkdir()
    with whole_folder(tmp_path / "pool"):
        pass
    assert sorted(p.name for p in tmp_path.iterdir()) == ["pool", "target"]


def test_only_our_own_litter_is_swept(tmp_path):
    kept = ["a", ".a", ".a.tmp", "a.12.tmp", ".a.b.tmp", ".b.12.tmp", ".a.12.tmp.gz"]
    for name in [*kept, ".a.12.tmp"]:
        (tmp_path / name).touch()
    (tmp_path / ".a.13.tmp").symlink_to(tmp_path / "a")
    sweep(tmp_path, "a", age=0)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*kept, ".a.13.tmp"])


def test_an_old_folder_whose_successor_never_came_is_put_back(tmp_path):
    (tmp_path / ".pool.12.old").mkdir()
    (tmp_path / ".pool.12.old" / "images").touch()
    (tmp_path / ".pool.12.tmp").mkdir()
    sweep(tmp_path, "pool", age=0)
    assert [Path(p).name for p in tmp_path.iterdir()] == ["pool"]
    assert (tmp_path / "pool" / "images").exists()
