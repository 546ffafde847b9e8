"""Independent tasks on several devices: largest first, again when a worker is lost, cut when memory ran out.

Here are the rules and the processes of this machine; `ray_cluster.py` is the same for many machines.
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

import numpy as np
import torch
from numpy.typing import NDArray

from semishot.errors import InputError
from semishot.system.memory import keep_freed_memory

POLL_SECONDS = 0.25
LOSSES = 5
"""A task that took so many workers with it is cut in two: a killed process need not say why."""
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Task:
    """A piece of work that knows nothing of the others."""

    name: str
    size: float
    """Larger ones begin first."""
    work: Callable[..., Iterator[Any]]
    """`work(shared, device, *arguments())` in a worker, which imports it by its name."""
    arguments: Callable[[], tuple[Any, ...]]
    """Called here before every attempt, so that the next can begin where the last was heard of."""
    halves: Callable[[], list["Task"]]
    """Smaller tasks in its place; none if it cannot be cut."""


@dataclass(frozen=True)
class Said:
    """Something that the work yielded."""

    value: Any


@dataclass(frozen=True)
class Done:
    """The work has come to its end."""


@dataclass(frozen=True)
class Lost:
    """Its worker is no more."""

    why: str


@dataclass(frozen=True)
class NoMemory:
    why: str


@dataclass(frozen=True)
class Failed:
    """An error of the work itself: trying again would not help."""

    error: Exception


Outcome = Said | Done | Lost | NoMemory | Failed


class Place(Protocol):
    """Where tasks run."""

    def submit(self, task: Task) -> None: ...

    def poll(self, seconds: float) -> list[tuple[Task, Outcome]]:
        """What has happened; an empty list if nothing did for so long."""

    def close(self) -> None: ...


def run(tasks: Iterable[Task], place: Place) -> Generator[list[tuple[Task, Any]]]:
    """Run all tasks and yield what they say, and now and then nothing, until the last has ended."""
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
            yield [(task, told.value) for task, told in news if isinstance(told, Said)]
            for task, told in news:  # after the caller has seen to it: it may hold a checkpoint
                if isinstance(told, Failed):
                    raise told.error
                if not isinstance(told, Said):
                    running.discard(task)
                if isinstance(told, Lost | NoMemory):
                    losses[task] += 1
                    begin(again(task, told, losses[task]))
    finally:
        place.close()


def again(task: Task, told: Lost | NoMemory, losses: int) -> list[Task]:
    """What to run after a task has failed: itself, or its halves."""
    what = f"{task.name}: {'out of memory' if isinstance(told, NoMemory) else 'lost its worker'}"
    what += f" ({told.why})"
    smaller = task.halves() if isinstance(told, NoMemory) or losses >= LOSSES else []
    if smaller:
        say(f"{what}; trying again in {len(smaller)} parts")
        return smaller
    if losses >= LOSSES:
        raise InputError(
            f"{what}, {losses} times, and it cannot be made smaller; it needs workers with more memory"
        )
    say(f"{what}; trying again")  # what a machine lacks, others on it may have taken
    return [task]


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def attend(
    work: Callable[..., Iterator[Any]],
    shared: Array | None,
    device: str,
    arguments: tuple[Any, ...],
) -> Iterator[Outcome]:
    """In a worker: the work, with memory that ran out told apart from other errors."""
    keep_freed_memory()
    try:
        for value in work(shared, device, *arguments):
            yield Said(value)
    except (MemoryError, RuntimeError) as error:
        words = str(error) or type(error).__name__
        ours = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not ours and "can't allocate memory" not in words:  # how torch says it of a CPU's
            raise
        yield NoMemory(f"{platform.node()}: {words.splitlines()[0]}")


class Processes:
    """Workers on this machine, one for each device; `cpu` may be there several times."""

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

    def poll(self, seconds: float) -> list[tuple[Task, Outcome]]:
        while self.waiting and self.idle:
            worker, task = self.idle.pop(), self.waiting.popleft()
            self.busy[worker.pipe] = worker, task
            with suppress(OSError):  # if it has died: that is heard in a moment
                worker.pipe.send((task.work, task.arguments()))
        news: list[tuple[Task, Outcome]] = []
        for pipe in wait(list(self.busy), seconds):
            assert isinstance(pipe, Connection)
            worker, task = self.busy[pipe]
            told = hear(worker)
            news.append((task, told))
            if not isinstance(told, Said):
                del self.busy[pipe]
                if not isinstance(told, Done):  # what it holds of the device's memory goes with it
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
        there.close()  # so that its death is the end of the pipe
        return cls(process, here, device)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def hear(worker: Worker) -> Outcome:
    try:
        told: Outcome = worker.pipe.recv()
        return told
    except (EOFError, OSError):
        worker.process.join()
        return Lost(f"a process on {worker.device} ended with {worker.process.exitcode}")


def serve(pipe: Connection, device: str, threads: int, shared: Path | None, scratch: str) -> None:
    """A worker's life: take work, tell what it says, until the pipe ends.

    Its temporary files lie in `scratch`, which the parent removes: a killed worker cannot.
    """
    tempfile.tempdir = scratch
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    torch.set_num_threads(threads)
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    array = None if shared is None else np.load(shared, mmap_mode="r", allow_pickle=False)
    try:
        while True:
            work, arguments = pipe.recv()
            try:
                for told in attend(work, array, device, arguments):
                    pipe.send(told)
                pipe.send(Done())
            except Exception as error:
                error.add_note(f"in a worker on {device}:\n{traceback.format_exc()}")
                pipe.send(Failed(error))
    except (EOFError, OSError):  # the parent has gone
        os._exit(1)


def array_file(array: Array, folder: Path) -> Path:
    """The file behind a memory map, or a new one: workers map it and none holds a copy."""
    if isinstance(array, np.memmap) and str(array.filename).endswith(".npy"):
        return Path(str(array.filename))
    np.save(folder / "shared.npy", array)
    return folder / "shared.npy"
