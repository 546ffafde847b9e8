"""Locks: one process at a time; whoever is killed holds nothing, and what it left is swept."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from semishot.errors import InputError
from semishot.system import locks
from semishot.system.files import sweep, whole_folder, write_whole
from semishot.system.locks import Lock, lock_if_free

HOLDING = """
import sys, time
from pathlib import Path
from semishot.system.locks import Lock
with Lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
WRITING = """
import sys, time
from pathlib import Path
from semishot.system.files import whole_folder, write_whole_with

def slowly(file):
    file.write(b"half")
    print("half", flush=True)
    time.sleep(100)

if sys.argv[2] == "file":
    write_whole_with(Path(sys.argv[1]), slowly)
else:
    with whole_folder(Path(sys.argv[1])) as folder:
        slowly((folder / "inside").open("wb"))
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
    assert process.stdout is not None
    process.stdout.close()
    process.stdin.close()


def test_a_lock_leaves_nothing(tmp_path):
    with Lock(tmp_path / "new" / ".lock"):
        assert (tmp_path / "new" / ".lock").exists()
    assert list((tmp_path / "new").iterdir()) == []


def test_who_waits_says_once_for_whom_and_comes_next(tmp_path, capsys):
    path = tmp_path / ".lock"
    with another_process(HOLDING, path) as holder:
        lock = Lock(path)
        while not lock.announced:
            assert not lock.acquire()
        assert not lock.acquire()
        holder.stdin.close()
        with lock:
            assert path.exists()
        said = capsys.readouterr().err
        assert said.startswith(f"waiting for process {holder.pid} on ")
        assert said.endswith(f", which is working in {tmp_path}\n")
        assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "process 7 on deck"])
def test_a_holder_is_given_a_moment_to_write_its_name(tmp_path, capsys, monkeypatch, name):
    monkeypatch.setattr(locks, "PAUSE", 0)
    with (tmp_path / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        lock = Lock(tmp_path / ".lock")
        assert not lock.acquire()
        assert capsys.readouterr().err == ""
        held.write(name)
        held.flush()
        while not lock.announced:
            assert not lock.acquire()
    who = name or "another process"
    assert capsys.readouterr().err == f"waiting for {who}, which is working in {tmp_path}\n"


def test_the_lock_of_a_killed_process_is_no_obstacle(tmp_path, capsys):
    path = tmp_path / ".lock"
    kill(another_process(HOLDING, path))
    assert path.exists()
    assert Lock(path).acquire()
    assert capsys.readouterr().err == ""


def test_a_lock_file_removed_while_one_waits_is_made_anew(tmp_path):
    """Else two processes could hold the same lock, each on its own file."""
    path = tmp_path / ".lock"
    first, second, third = Lock(path), Lock(path), Lock(path)
    assert first.acquire()
    assert not second.acquire()
    first.__exit__(None, None, None)
    assert second.acquire()
    assert not third.acquire()


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.ENOLCK])
def test_a_disk_without_locks_is_used_without(tmp_path, monkeypatch, error):
    def refuse(place: int, kind: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with Lock(tmp_path / ".lock"):
        pass
    write_whole(tmp_path / "a", "whole")
    (tmp_path / ".a.1.tmp").touch()
    sweep(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".a.1.tmp", "a"]


def test_any_other_refusal_of_a_lock_is_an_error(tmp_path, monkeypatch):
    def refuse(place: int, kind: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        Lock(tmp_path / ".lock").acquire()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_left_half_done_is_swept_and_not_before(tmp_path, kind):
    target = tmp_path / "target"
    writer = another_process(WRITING, target, kind)
    (half,) = tmp_path.iterdir()
    assert half.name == f".target.{writer.pid}.tmp"
    with lock_if_free(half) as left:
        assert not left
    sweep(tmp_path)
    assert half.exists()
    kill(writer)
    if kind == "file":
        write_whole(target, "whole")
    else:
        with whole_folder(target) as folder:
            (folder / "inside").write_text("whole")
    assert list(tmp_path.iterdir()) == [target]


def test_only_our_own_litter_is_swept(tmp_path):
    kept = ["a", ".a", ".a.tmp", "a.12.tmp", ".a.b.tmp", ".b.12.tmp", ".a.12.tmp.gz"]
    for name in [*kept, ".a.12.tmp"]:
        (tmp_path / name).touch()
    sweep(tmp_path, "a")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(kept)


def test_an_old_folder_whose_successor_never_came_is_put_back(tmp_path):
    (tmp_path / ".pool.12.old").mkdir()
    (tmp_path / ".pool.12.old" / "images").touch()
    (tmp_path / ".pool.12.tmp").mkdir()
    sweep(tmp_path, "pool")
    assert [p.name for p in tmp_path.iterdir()] == ["pool"]
    assert (tmp_path / "pool" / "images").exists()


def test_links_are_neither_swept_nor_followed(tmp_path):
    (tmp_path / "precious").write_text("precious")
    for name in (".a.12.tmp", ".lock"):
        (tmp_path / name).symlink_to(tmp_path / "precious")
    sweep(tmp_path)
    with pytest.raises(OSError, match="symbolic links"):
        Lock(tmp_path / ".lock").acquire()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".a.12.tmp", ".lock", "precious"]
    assert (tmp_path / "precious").read_text() == "precious"


def test_gone_while_looking_is_not_abandoned(tmp_path):
    with lock_if_free(tmp_path / "gone") as left:
        assert not left


def test_a_writer_waits_while_another_process_looks_whether_its_file_is_litter(tmp_path):
    half = tmp_path / f".it.{os.getpid()}.tmp"
    half.touch()
    with lock_if_free(half) as left, ThreadPoolExecutor() as threads:
        assert left
        writing = threads.submit(write_whole, tmp_path / "it", b"it")
        with pytest.raises(TimeoutError):
            writing.result(0.2)
        half.unlink()  # as litter
    writing.result(10)
    assert (tmp_path / "it").read_bytes() == b"it"


@pytest.mark.parametrize("kind", ["second name", "pipe"])
def test_a_lock_file_that_is_another_file_is_refused_and_not_written(tmp_path, kind):
    path, precious = tmp_path / ".lock", tmp_path / "precious"
    precious.write_text("precious")
    os.link(precious, path) if kind == "second name" else os.mkfifo(path)
    with pytest.raises(InputError, match=r"\.lock is not a regular file or has a second name"):
        Lock(path).acquire()
    assert precious.read_text() == "precious"
    assert path.exists()
