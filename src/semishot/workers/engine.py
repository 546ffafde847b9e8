"""Independent tasks on several devices: largest first, retried if a worker dies, split to save memory.

This file has the rules, and workers on this machine; `ray_cluster.py` has workers on many machines.
"""

import multiprocessing
import os
import platform
import signal
import sys
import tempfile
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

import torch
from numpy.typing import NDArray

from semishot.errors import InputError
from semishot.system.files import read_regular, write_whole
from semishot.system.npy import file_of, map_array, write_array
from semishot.system.processes import end_with_parent, keep_freed_memory
from semishot.training.run_folder import (
    CONFIG_FILE,
    LOCK_FILE,
    LOG_FILE,
    MODEL_FILE,
    STATE_FILE,
    TRAINING_FILE,
)

POLL_SECONDS = 0.25
LOSSES = 5
"""A task that has lost this many workers is split in two: a killed process cannot report why."""
Array = NDArray[Any]
Files = dict[str, bytes]
"""A folder as bytes, by relative path."""
ORDER = (CONFIG_FILE, LOG_FILE, TRAINING_FILE, STATE_FILE, MODEL_FILE, "result.json")
"""The order in which files are written: if interrupted at any point, the folder can be resumed."""
MOST_BYTES = 2**34
"""Of a file."""


@dataclass(frozen=True, eq=False)
class Task:
    """A piece of work that does not depend on others."""

    name: str
    size: float
    """Larger tasks start first."""
    work: Callable[..., Iterator[Any]]
    """Called as `work(shared, device, *arguments())` in a worker, which imports it by name."""
    arguments: Callable[[], tuple[Any, ...]]
    """Called in this process before every attempt, so that the next can resume from the last checkpoint."""
    halves: Callable[[], list["Task"]]
    """Smaller tasks to replace it; none if it cannot be split."""


@dataclass(frozen=True)
class Yielded:
    """A value that the work yielded."""

    value: Any


@dataclass(frozen=True)
class Done:
    """The work has finished."""


@dataclass(frozen=True)
class Lost:
    """Its worker died."""

    why: str


@dataclass(frozen=True)
class NoMemory:
    why: str


@dataclass(frozen=True)
class Failed:
    """An error in the work itself: trying again would not help."""

    error: Exception


Message = Yielded | Done | Lost | NoMemory | Failed


class Place(Protocol):
    """Where tasks run."""

    def submit(self, task: Task) -> None: ...

    def poll(self, seconds: float) -> list[tuple[Task, Message]]:
        """The messages of the tasks; an empty list if none arrive in this time."""

    def close(self) -> None: ...


def run(tasks: Iterable[Task], place: Place) -> Generator[list[tuple[Task, Any]]]:
    """Run all tasks to the end and yield the values they yield, or an empty list while there are none."""
    losses: Counter[Task] = Counter()
    running: set[Task] = set()

    def begin(some: Iterable[Task]) -> None:
        for task in sorted(some, key=lambda task: -task.size):
            running.add(task)
            place.submit(task)

    try:
        begin(tasks)
        while running:
            news = place.poll(POLL_SECONDS)
            yield [(task, message.value) for task, message in news if isinstance(message, Yielded)]
            # now the caller has saved the values, which may hold a checkpoint
            for task, message in news:
                if isinstance(message, Failed):
                    raise message.error
                if not isinstance(message, Yielded):
                    running.discard(task)
                if isinstance(message, Lost | NoMemory):
                    losses[task] += 1
                    begin(again(task, message, losses[task]))
    finally:
        place.close()


def again(task: Task, message: Lost | NoMemory, losses: int) -> list[Task]:
    """What to run after a task has failed: itself, or its halves."""
    what = f"{task.name}: {'out of memory' if isinstance(message, NoMemory) else 'lost its worker'}"
    what += f" ({message.why})"
    smaller = task.halves() if isinstance(message, NoMemory) or losses >= LOSSES else []
    if smaller:
        warn(f"{what}; trying again in {len(smaller)} parts")
        return smaller
    if losses >= LOSSES:
        raise InputError(
            f"{what}, {losses} times, and it cannot be made smaller; it needs workers with more memory"
        )
    warn(f"{what}; trying again")  # other processes may have taken the memory
    return [task]


def warn(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def run_in_worker(
    work: Callable[..., Iterator[Any]],
    shared: Array | None,
    device: str,
    arguments: tuple[Any, ...],
) -> Iterator[Message]:
    """In a worker: run the work, and distinguish lack of memory from other errors."""
    keep_freed_memory()
    try:
        for value in work(shared, device, *arguments):
            yield Yielded(value)
    except (MemoryError, RuntimeError) as error:
        words = str(error) or type(error).__name__
        ours = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not ours and "can't allocate memory" not in words:  # torch's message on a CPU
            raise
        yield NoMemory(f"{platform.node()}: {words.splitlines()[0]}")


class Processes:
    """Workers on this machine, one for each device; `cpu` may occur several times."""

    def __init__(self, devices: Sequence[str], threads: int, shared: Array | None = None) -> None:
        self.threads = threads
        self.folder = tempfile.TemporaryDirectory(prefix="semishot-")
        self.shared = None if shared is None else array_file(shared, Path(self.folder.name))
        self.waiting: deque[Task] = deque()
        self.idle = [self._start(device) for device in devices]
        self.busy: dict[Connection, tuple[Worker, Task]] = {}

    def _start(self, device: str) -> "Worker":
        return Worker.start(device, self.threads, self.shared, self.folder.name)

    def submit(self, task: Task) -> None:
        self.waiting.append(task)

    def poll(self, seconds: float) -> list[tuple[Task, Message]]:
        while self.waiting and self.idle:
            worker, task = self.idle.pop(), self.waiting.popleft()
            self.busy[worker.pipe] = worker, task
            with suppress(OSError):  # if it has died, the next poll reports it
                worker.pipe.send((task.work, task.arguments()))
        news: list[tuple[Task, Message]] = []
        for pipe in wait(list(self.busy), seconds):
            assert isinstance(pipe, Connection)
            worker, task = self.busy[pipe]
            message = receive(worker)
            news.append((task, message))
            if not isinstance(message, Yielded):
                del self.busy[pipe]
                if not isinstance(message, Done):  # this frees the device's memory
                    worker.end()
                    worker = self._start(worker.device)
                self.idle.append(worker)
        return news

    def close(self) -> None:
        for worker in [*self.idle, *(worker for worker, _ in self.busy.values())]:
            worker.end()
        self.folder.cleanup()


@dataclass(frozen=True)
class Worker:
    process: BaseProcess
    pipe: Connection
    device: str

    @classmethod
    def start(cls, device: str, threads: int, shared: Path | None, scratch: str) -> "Worker":
        context = multiprocessing.get_context("spawn")  # a fork would copy torch's threads
        here, there = context.Pipe()
        arguments = there, device, threads, shared, scratch
        process = context.Process(target=serve, args=arguments, daemon=True)
        process.start()
        there.close()  # so that the pipe closes when it dies
        return cls(process, here, device)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def receive(worker: Worker) -> Message:
    try:
        message: Message = worker.pipe.recv()
        return message
    except (EOFError, OSError):
        worker.process.join()
        return Lost(f"a process on {worker.device} ended with {worker.process.exitcode}")


def serve(pipe: Connection, device: str, threads: int, shared: Path | None, scratch: str) -> None:
    """The main function of a worker: receive work, send its messages, until the pipe is closed.

    Its temporary files are in `scratch`, which the parent removes: a killed worker cannot.
    """
    end_with_parent()
    tempfile.tempdir = scratch
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    torch.set_num_threads(threads)
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    array = None if shared is None else map_array(shared)
    try:
        while True:
            work, arguments = pipe.recv()
            try:
                for message in run_in_worker(work, array, device, arguments):
                    pipe.send(message)
                pipe.send(Done())
            except Exception as error:
                error.add_note(f"in a worker on {device}:\n{traceback.format_exc()}")
                pipe.send(Failed(error))
    except (EOFError, OSError):  # the parent has ended
        os._exit(1)


def array_file(array: Array, folder: Path) -> Path:
    """The file of a memory map, or a new one: workers map it instead of holding copies."""
    if (file := file_of(array)) is not None:
        return file
    write_array(folder / "shared.npy", array)
    return folder / "shared.npy"


def pack(folder: Path) -> Files:
    """The files of a folder, without locks, to be sent to a worker or back without a shared disk."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".tmp")
    return {
        path.relative_to(folder).as_posix(): read_regular(path, MOST_BYTES)
        for path in paths
        if not path.name.endswith(LOCK_FILE)
    }


def unpack(files: Files, folder: Path) -> None:
    """Write the files in the order of `ORDER`; older checkpoints and event files are deleted."""
    for name in sorted(files, key=lambda name: ORDER.index(name) if name in ORDER else -1):
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"a worker sent a file named {name!r}, which is outside its folder")
        write_whole(path, files[name])
    for old in (*folder.rglob(STATE_FILE), *folder.glob("tensorboard/*")):
        if old.relative_to(folder).as_posix() not in files:
            old.unlink(missing_ok=True)
