"""The fleets of a table on several devices or machines: what a worker receives, and what it returns.

A fleet is trained and measured in a folder of the worker. Its checkpoints, and in the end its whole folder,
are sent back as bytes, without a shared disk. If a machine is lost, so is the work since its last checkpoint.
"""

import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from semishot import refine
from semishot.data.pool import ImagePool
from semishot.paper.plan import PlannedFleet
from semishot.paper.reproduce import Site, fleet_records, lacking
from semishot.system import provenance
from semishot.system.locks import Lock
from semishot.training.examples import images_on
from semishot.training.fleet_log import Row, fleet_table, row_of
from semishot.training.loop import Event, TrainingRequest, training
from semishot.training.records import records_so_far
from semishot.training.run_folder import LOCK_FILE, MODEL_FILE
from semishot.workers.engine import Array, Files, Task, pack, run, unpack
from semishot.workers.places import OpenPlace

CHECKPOINT_SECONDS = 60.0
"""A checkpoint of 30 runs is 40 MB, and there may be many workers."""
PROGRESS_SECONDS = 1.0
NO_IMAGES = np.empty((0, 1, 1, 1), np.uint8)


def run_on_workers(
    open_place: OpenPlace, fleets: Sequence[PlannedFleet], site: Site
) -> list[PlannedFleet]:
    """Train and measure what is missing; return the fleets, of which some may have been split."""
    with ExitStack() as locks:
        table = FleetTasks(site, [*fleets], locks)
        unfinished = [fleet for fleet in fleets if not finished(fleet, site.folder(fleet.config))]
        if unfinished:
            place = open_place(site.pool.images, len(unfinished))
            tasks = [table.task(fleet) for fleet in unfinished]
            with fleet_table(table.rows) as shown, closing(run(tasks, place)) as running:
                for news in running:
                    for task, value in news:
                        table.receive(task, value)
                    shown.tell()
    return table.fleets


def finished(fleet: PlannedFleet, folder: Path) -> bool:
    """Whether a fleet is trained and measured, with both results on this disk."""
    known = records_so_far(folder / "result.json")
    return (folder / MODEL_FILE).exists() and not lacking(known, fleet)


@dataclass
class FleetTasks:
    """The fleets that workers train, as seen by this process."""

    site: Site
    fleets: list[PlannedFleet]
    locks: ExitStack
    """The locks of the fleets' folders, held until all are done."""
    rows: list[Row] = field(default_factory=list)
    of_task: dict[Task, tuple[PlannedFleet, Row]] = field(default_factory=dict)

    def task(self, fleet: PlannedFleet) -> Task:
        row, folder = row_of(fleet.config), self.site.folder(fleet.config)
        self.locks.enter_context(Lock(folder / LOCK_FILE))
        pool, tensorboard = replace(self.site.pool, images=NO_IMAGES), self.site.tensorboard

        def arguments() -> tuple[FleetWork]:
            command, files, methods = provenance.command(), pack(folder), refine.added()
            work = FleetWork(pool, command, fleet, files, tensorboard, CHECKPOINT_SECONDS, methods)
            return (work,)

        size = row.updates * row.images
        task = Task(row.name, size, work_on_fleet, arguments, lambda: self.halves(task))
        self.rows.append(row)
        self.of_task[task] = fleet, row
        return task

    def halves(self, task: Task) -> list[Task]:
        """Two fleets instead of one; they cannot use its checkpoint."""
        fleet, row = self.of_task[task]
        members, folder = fleet.config.members, self.site.folder(fleet.config)
        if len(members) == 1 or (folder / MODEL_FILE).exists():
            return []
        shutil.rmtree(folder, ignore_errors=True)
        self.rows.remove(row)
        middle = (len(members) + 1) // 2
        parts = [
            PlannedFleet(replace(fleet.config, members=half), half, fleet.tests)
            for half in (members[:middle], members[middle:])
        ]
        index = self.fleets.index(fleet)
        self.fleets[index : index + 1] = parts
        return [self.task(part) for part in parts]

    def receive(self, task: Task, value: Row | Files) -> None:
        fleet, row = self.of_task[task]
        if isinstance(value, dict):
            unpack(value, self.site.folder(fleet.config))
            return
        if row.begun is None or value.done < row.done:  # the first report, or a second attempt
            row.begin(value.skipped)
        row.done, row.loss, row.accuracy = value.done, value.loss, value.accuracy
        row.testing, row.latest = value.testing, time.monotonic()


@dataclass(frozen=True)
class FleetWork:
    """What a worker receives in addition to the images of the pool."""

    pool: ImagePool
    """Without its images."""
    command: str
    """What this process runs, for the records."""
    fleet: PlannedFleet
    files: Files
    """The fleet's folder."""
    tensorboard: bool
    checkpoint_seconds: float
    methods: list[str]
    """Methods outside the package that the user has named, which the worker imports too."""


def work_on_fleet(images: Array, device_name: str, work: FleetWork) -> Iterator[Row | Files]:
    """In a worker: train and measure a fleet; yields its progress, its checkpoints and its folder."""
    for method in work.methods:
        refine.add(method)
    config, device = work.fleet.config, torch.device(device_name)
    pool = replace(work.pool, images=images)
    provenance.note_command(shlex.split(work.command)[1:])
    with tempfile.TemporaryDirectory(prefix="semishot-") as temporary:
        folder = Path(temporary) / config.name
        unpack(work.files, folder)
        row, latest = row_of(config), 0.0
        seconds = work.checkpoint_seconds
        request = TrainingRequest(config, pool, folder, device, seconds, work.tensorboard)
        for event in training(request, images_on(pool, device), row):
            if time.monotonic() - latest > PROGRESS_SECONDS:
                latest = time.monotonic()
                yield replace(row)
            if event is Event.SAVED:
                yield pack(folder)
        yield replace(row, testing=True)
        yield pack(folder)  # the trained fleet is saved before it is measured
        fleet_records(work.fleet, pool, folder, device)
        yield replace(row)
        yield pack(folder)
