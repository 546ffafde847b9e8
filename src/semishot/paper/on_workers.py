"""The fleets of a table on several devices or machines: what a worker is sent, and what comes back.

A fleet trains and is measured in a folder of the worker's own. Its checkpoints, and in the end all of its
folder, come back as bytes: no disk is shared. So a lost machine costs what it did since the last.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from semishot.data.pool import ImageClass, ImagePool
from semishot.paper.plan import Job, configs_of, run_folder
from semishot.paper.reproduce import RunJobs, check_jobs, collect, lacking, measure
from semishot.system.devices import pick_device
from semishot.system.locks import Lock
from semishot.training.checkpoints import LOCK, MODEL, STATE
from semishot.training.config import FleetConfig
from semishot.training.fleet_table import Row, fleet_table, row_of
from semishot.training.fleets import load_model
from semishot.training.loop import images_on, training
from semishot.training.records import Record, records_so_far
from semishot.training.tensorboard import announce
from semishot.workers.engine import Array, Task, run
from semishot.workers.folder_bytes import Files, pack, unpack
from semishot.workers.places import OpenPlace, place_of

CHECKPOINT_SECONDS = 60.0
"""A checkpoint of 30 runs is 40 MB, and there may be many workers."""
PROGRESS_SECONDS = 1.0


class Progress(NamedTuple):
    skipped: int
    done: int
    loss: float | None
    accuracy: float | None


def choose(
    engine: Literal["local", "ray"] | None, address: str | None, device: str
) -> tuple[torch.device, RunJobs | None]:
    """The device of this process, and what runs the jobs; None is this process itself."""
    several = device == "auto" and torch.cuda.device_count() > 1
    open_place = place_of("local" if engine is None and several else engine, address, device)
    if open_place is None:
        return pick_device(device), None
    return torch.device("cpu"), partial(run_jobs, open_place)


def run_jobs(
    open_place: OpenPlace,
    jobs: list[Job],
    pool: ImagePool,
    runs: Path,
    device: torch.device,
    tensorboard: bool,
) -> list[Record]:
    """As `reproduce.run_jobs`, elsewhere: train and measure what is missing, return every record."""
    check_jobs(jobs, pool, runs)
    if tensorboard:
        announce(runs)
    with ExitStack() as locks:
        table = Fleets(pool, runs, tensorboard, jobs, locks)
        unfinished = [config for config in configs_of(jobs) if not table.finished(config)]
        if unfinished:
            place = open_place(pool.images, len(unfinished))
            tasks = [table.task(config) for config in unfinished]
            with fleet_table(table.rows) as shown, closing(run(tasks, place)) as running:
                for news in running:
                    for task, value in news:
                        table.receive(task, value)
                    shown.tell()
    return collect(table.jobs, pool, runs, device, 0.0)


@dataclass
class Fleets:
    """The table's fleets as seen from here."""

    pool: ImagePool
    runs: Path
    tensorboard: bool
    jobs: list[Job]
    locks: ExitStack
    """Of the fleets' folders, until all are done."""
    rows: list[Row] = field(default_factory=list)
    of_task: dict[Task, tuple[FleetConfig, Row]] = field(default_factory=dict)

    def finished(self, config: FleetConfig) -> bool:
        """Trained and measured, and both are on this disk."""
        folder = run_folder(self.runs, config)
        held = records_so_far(folder / "result.json")
        return (folder / MODEL).exists() and not any(
            lacking(held, job) for job in self.jobs if job.config == config
        )

    def task(self, config: FleetConfig) -> Task:
        row = row_of(config)
        folder = run_folder(self.runs, config)
        self.locks.enter_context(Lock(folder / LOCK))
        about = self.pool.name, self.pool.classes

        def arguments() -> tuple[Any, ...]:
            jobs = [job for job in self.jobs if job.config == config]
            return about, jobs, pack(folder), self.tensorboard, CHECKPOINT_SECONDS

        size = row.updates * row.images
        task = Task(row.name, size, work_on_fleet, arguments, lambda: self.halves(task))
        self.rows.append(row)
        self.of_task[task] = config, row
        return task

    def halves(self, task: Task) -> list[Task]:
        """Two fleets instead of one; its own checkpoint is of no use to them."""
        config, row = self.of_task[task]
        folder, middle = run_folder(self.runs, config), (len(config.members) + 1) // 2
        if len(config.members) == 1 or (folder / MODEL).exists():
            return []
        shutil.rmtree(folder, ignore_errors=True)
        self.rows.remove(row)
        parts = [
            replace(config, members=members)
            for members in (config.members[:middle], config.members[middle:])
        ]
        mine = [job for job in self.jobs if job.config == config]
        self.jobs = [job for job in self.jobs if job.config != config]
        self.jobs += [
            replace(job, config=part, members=part.members) for part in parts for job in mine
        ]
        return [self.task(part) for part in parts]

    def receive(self, task: Task, value: Progress | Files) -> None:
        config, row = self.of_task[task]
        if isinstance(value, dict):
            unpack(value, run_folder(self.runs, config))
            return
        if row.begun is None or value.done < row.done:  # the first word, or of a second attempt
            row.begin(value.skipped)
        row.done, row.loss, row.accuracy = value.done, value.loss, value.accuracy
        row.latest = time.monotonic()


def work_on_fleet(
    images: Array,
    device_name: str,
    about: tuple[str, tuple[ImageClass, ...]],
    jobs: list[Job],
    files: Files,
    tensorboard: bool,
    checkpoint_seconds: float,
) -> Iterator[Progress | Files]:
    """In a worker: train a fleet and measure it; how far it is, its checkpoints, its folder."""
    config, device = jobs[0].config, torch.device(device_name)
    pool = ImagePool(about[0], images, about[1])
    with tempfile.TemporaryDirectory(prefix="semishot-") as temporary:
        folder = Path(temporary) / config.name
        unpack(files, folder)
        row, begun = row_of(config), time.monotonic()
        told, checkpoint = 0.0, stamp(folder)
        here = images_on(pool, device)
        for _ in training(config, pool, here, folder, device, row, checkpoint_seconds, tensorboard):
            if time.monotonic() - told > PROGRESS_SECONDS:
                told = time.monotonic()
                yield Progress(row.skipped, row.done, row.loss, row.accuracy)
            if stamp(folder) != checkpoint:
                checkpoint = stamp(folder)
                yield pack(folder)
        yield Progress(row.skipped, row.done, row.loss, row.accuracy)
        yield pack(folder)  # what is trained is safe before it is measured
        seconds = time.monotonic() - begun
        measure(jobs, load_model(folder, device)[1], pool, folder, seconds, device)
        yield pack(folder)


def stamp(folder: Path) -> int:
    """Another after every checkpoint."""
    state = folder / STATE
    return state.stat().st_mtime_ns if state.exists() else 0
