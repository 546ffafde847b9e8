"""A read that the kernel does not finish is given up, and a signal ends the waiting for it at once."""

import errno
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from semishot.system import deadlines, open_files
from semishot.system.deadlines import within_deadline
from semishot.system.open_files import open_regular, read_regular


@pytest.fixture
def stalled(monkeypatch):
    """Reading from disk blocks until the test ends; what was read then is set."""
    goes_on, begun, closed = threading.Event(), threading.Event(), threading.Event()
    read, close = os.read, os.close

    def blocked(descriptor: int, size: int) -> bytes:
        begun.set()
        goes_on.wait()
        return read(descriptor, size)

    def recorded(descriptor: int) -> None:
        close(descriptor)
        closed.set()

    monkeypatch.setattr(open_files, "NO_WAIT", None)
    monkeypatch.setattr(open_files.os, "read", blocked)
    monkeypatch.setattr(open_files.os, "close", recorded)
    yield goes_on, begun, closed
    goes_on.set()


def test_a_disk_that_does_not_answer_is_given_up_and_its_file_is_named(
    tmp_path, monkeypatch, stalled
):
    goes_on, _, closed = stalled
    path = tmp_path / "picture.png"
    path.write_bytes(b"12345")
    with open_regular(path) as file:
        monkeypatch.setattr(deadlines, "READ_SECONDS", 0.01)  # to open it takes its time
        with pytest.raises(TimeoutError) as caught:
            file.read()
    assert (caught.value.errno, caught.value.filename) == (errno.ETIMEDOUT, str(path))
    assert "the disk does not answer" in str(caught.value)
    assert not closed.is_set(), (
        "another file would get its number while the thread may read from it"
    )
    goes_on.set()
    assert closed.wait(60)


def test_a_long_read_has_more_time_by_its_size(monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(deadlines, "READ_SECONDS", 0.0)
    assert within_deadline(lambda: ended.wait(0.05), "it", lambda: 600 * deadlines.SLOWEST) is False
    with pytest.raises(TimeoutError):
        within_deadline(ended.wait, "it", lambda: 0)
    ended.set()


@contextmanager
def ctrl_c_when(begun: threading.Event) -> Iterator[None]:
    main = threading.main_thread().ident
    assert main is not None

    def press() -> None:
        begun.wait()
        signal.pthread_kill(main, signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    pressing.join()


def test_a_signal_ends_the_waiting(tmp_path, stalled):
    path = tmp_path / "picture.png"
    path.write_bytes(b"12345")
    with open_regular(path) as file, ctrl_c_when(stalled[1]):
        file.read()


def test_what_was_opened_too_late_is_closed():
    begun, goes_on, closed = threading.Event(), threading.Event(), threading.Event()
    found = []

    def late() -> str:
        begun.set()
        goes_on.wait()
        return "opened"

    def undo(what: str) -> None:
        found.append(what)
        closed.set()

    with ctrl_c_when(begun):
        within_deadline(late, "it", undo=undo)
    assert not found
    goes_on.set()
    assert closed.wait(60)
    assert found == ["opened"]


def test_threads_are_used_again(tmp_path):
    path = tmp_path / "note"
    path.write_bytes(b"1")
    read_regular(path, 1)
    before = threading.active_count()
    for _ in range(100):
        read_regular(path, 1)
    assert threading.active_count() == before


def test_errors_are_those_of_the_work(tmp_path):
    for _ in range(2):
        with pytest.raises(FileNotFoundError) as caught:
            read_regular(tmp_path / "absent", 1)
        assert caught.value.filename == str(tmp_path / "absent")


def test_without_more_threads_it_is_read_all_the_same(tmp_path, monkeypatch):
    path = tmp_path / "note"
    path.write_bytes(b"12345")

    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(deadlines, "_idle", [])
    monkeypatch.setattr(threading.Thread, "start", refused)
    assert read_regular(path, 5) == b"12345"


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_copy_of_the_process_has_threads_of_its_own(tmp_path):
    path = tmp_path / "note"
    path.write_bytes(b"12345")
    read_regular(path, 5)
    child = os.fork()
    if child == 0:
        os._exit(0 if read_regular(path, 5) == b"12345" else 1)
    assert os.waitpid(child, 0)[1] == 0
