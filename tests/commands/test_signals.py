"""A signal ends the process, whatever its threads wait for: one line, and the code of the signal."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

LINE = "semishot: interrupted"
BEGIN = """\
import ctypes, os, sys, threading
del os.environ["SEMISHOT_GRACE"]
from concurrent.futures import ThreadPoolExecutor
from semishot.commands import signals
from semishot.commands.exit_codes import one_line_errors

def wait_in_c():
    "For ever, in a call that does not return when a signal arrives."
    mutex, lock = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex)
    print("waiting", flush=True)
    lock(mutex)

def wait_for_pipe():
    "For ever, as the read of a file on a disk that does not answer."
    print("waiting", flush=True)
    os.read(os.pipe()[0], 1)

signals.GRACE_SECONDS = float(sys.argv[1])
signals.APART_SECONDS = 0.0
signals.end_on_signals()
"""
IN_C = "with one_line_errors():\n    wait_in_c()"
IN_A_POOL = """\
with one_line_errors(), ThreadPoolExecutor(1) as pool:
    pool.submit(wait_for_pipe).result()
"""
AFTER_THE_END = """\
with one_line_errors():
    threading.Thread(target=wait_for_pipe).start()
"""
UNWINDING = """\
with one_line_errors():
    try:
        print("begun", flush=True)
        while not threading.Event().wait(0.05):
            pass
    finally:
        wait_in_c()
"""
WITH_A_WORKER = """\
import multiprocessing, time
with one_line_errors():
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    child.start()
    print(child.pid)
    wait_in_c()
"""
STDERR_IS_FULL = """\
os.set_blocking(2, False)
try:
    while True:
        os.write(2, b"x" * 1024)
except BlockingIOError:
    os.set_blocking(2, True)
with one_line_errors():
    wait_in_c()
"""
SWALLOWED = """\
class Callback:
    def __del__(self):
        os.kill(os.getpid(), int(sys.argv[2]))
        for _ in range(1000):
            pass

with one_line_errors():
    Callback()
    wait_in_c()
"""
IMPORTING = """\
import os, signal, sys

class Finder:
    def find_spec(name, path, target=None):
        if name == "tyro":
            os.kill(os.getpid(), int(sys.argv[2]))

sys.meta_path.insert(0, Finder)
from semishot.commands.main import main
main()
"""


@contextmanager
def child(code: str, grace: float, number: int = 0) -> Iterator[subprocess.Popen[str]]:
    arguments = [sys.executable, "-c", code, str(grace), str(int(number))]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(arguments, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == word:
            return
    pytest.fail(f"it ended: {process.communicate()}")


both = pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])


@both
@pytest.mark.parametrize("body", [IN_C, IN_A_POOL], ids=["in C", "in a pool"])
def test_a_command_that_waits_for_ever_ends(body, number, code):
    with child(BEGIN + body, 0.2) as process:
        until(process, "waiting")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.splitlines()) == (code, "", [LINE])


def test_a_thread_that_outlives_the_command_does_not_keep_the_process():
    """The signal may come before the command has ended, and where the interpreter does not notice it."""
    with child(BEGIN + AFTER_THE_END, 1) as process:
        until(process, "waiting")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()) == (143, [LINE])


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_the_second_ctrl_c_ends_it_at_once(first):
    with child(BEGIN + UNWINDING, 600) as process:
        until(process, "begun")
        process.send_signal(first)
        until(process, "waiting")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()) == (128 + first, [LINE])


def test_ctrl_c_sent_twice_at_once_is_one():
    """By `timeout -s INT`, for example: the end in good order is not disturbed."""
    body = (
        "signals.APART_SECONDS = 600.0\n"
        "with one_line_errors():\n"
        "    try:\n"
        "        os.kill(os.getpid(), 2)\n"
        "    finally:\n"
        "        os.kill(os.getpid(), 2)\n"
        "        print('unwound', flush=True)\n"
    )
    with child(BEGIN + body, 600) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.splitlines()) == (130, "unwound\n", [LINE])


@both
def test_a_signal_inside_an_import_ends_the_process_and_raises_nothing_there(
    number, code, tmp_path
):
    """C++ that begins to load, as torch's, would abort: `terminate called after throwing`."""
    (tmp_path / "loading.py").write_text(
        "import os, sys\n"
        "try:\n"
        "    os.kill(os.getpid(), int(sys.argv[2]))\n"
        "    for _ in range(1000): pass\n"
        "except BaseException: os.abort()\n"
    )
    body = f"sys.path.insert(0, {str(tmp_path)!r})\nwith one_line_errors():\n    import loading\n"
    with child(BEGIN + body, 600, number) as process:
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()) == (code, [LINE])


def test_the_environment_may_give_it_more_time():
    body = UNWINDING.replace("wait_in_c()", "time.sleep(0.3)\n        print('unwound')")
    begin = BEGIN.replace('del os.environ["SEMISHOT_GRACE"]', "import time")
    with child(begin + body, 0) as process:
        until(process, "begun")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (143, "unwound\n")


def test_a_command_that_ends_in_good_order_is_left_to_it():
    body = UNWINDING.replace("wait_in_c()", "print('unwound', flush=True)")
    with child(BEGIN + body, 600) as process:
        until(process, "begun")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.splitlines()) == (143, "unwound\n", [LINE])


def test_no_worker_stays_behind():
    with child(BEGIN + WITH_A_WORKER, 0.2) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        until(process, "waiting")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143
    while is_running(worker):  # the kernel is about to end it
        time.sleep(0.01)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_terminal_that_takes_no_more_does_not_keep_the_process():
    with child(BEGIN + STDERR_IS_FULL, 0.2) as process:
        until(process, "waiting")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143


@both
def test_a_signal_that_the_interpreter_could_not_raise_ends_it_all_the_same(number, code):
    """It would print `Exception ignored in`, and go on."""
    with child(BEGIN + SWALLOWED, 0.2, number) as process:
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()) == (code, [LINE])


@both
def test_a_signal_during_imports_is_one_line(number, code):
    with child(IMPORTING, 600, number) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.splitlines()) == (code, "", [LINE])


def test_an_ignored_ctrl_c_stays_ignored_as_in_a_background_job():
    body = "with one_line_errors():\n    os.kill(os.getpid(), 2)\nos.kill(os.getpid(), 2)"
    with child("import signal; signal.signal(2, signal.SIG_IGN)\n" + BEGIN + body, 0) as process:
        assert process.wait(60) == 0
