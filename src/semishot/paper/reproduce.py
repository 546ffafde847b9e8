"""A table of the paper -> train and evaluate what is missing of its fleets -> records."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch

from semishot import refine
from semishot.data.episodes import EpisodeShape, check_enough
from semishot.data.pool import ImagePool
from semishot.data.splits import all_labeled
from semishot.errors import InputError
from semishot.network.protonet import ProtoNet
from semishot.paper import published
from semishot.paper.plan import Job, configs_of, run_folder, table_jobs
from semishot.system.devices import device_name
from semishot.system.files import write_json
from semishot.system.locks import Lock
from semishot.training.checkpoints import LOCK, MODEL
from semishot.training.config import SEMI_SUPERVISED_INFERENCE, FleetConfig
from semishot.training.evaluation import EPISODES, evaluate
from semishot.training.fleet_table import fleet_table, row_of
from semishot.training.fleets import load_model
from semishot.training.loop import check_fleet, images_on, training
from semishot.training.records import Measurement, Record, accuracy_records, records_so_far
from semishot.training.tensorboard import announce

DONE = object()


RunJobs = Callable[[list[Job], ImagePool, Path, torch.device, bool], list[Record]]
"""`run_jobs`, or the like of it somewhere else."""


def train_one(
    config: FleetConfig,
    pool: ImagePool,
    folder: Path,
    device: torch.device,
    tensorboard: bool = False,
) -> None:
    """One fleet in its folder; `tensorboard` leaves event files there too."""
    if tensorboard:
        announce(folder)
    row = row_of(config)
    with fleet_table([row]) as shown:
        images = images_on(pool, device)
        for _ in training(config, pool, images, folder, device, row, tensorboard=tensorboard):
            shown.tell()


def run_jobs(
    jobs: list[Job], pool: ImagePool, runs: Path, device: torch.device, tensorboard: bool = False
) -> list[Record]:
    """Train and evaluate what is missing; return every record of these jobs."""
    check_jobs(jobs, pool, runs)
    configs = configs_of(jobs)
    side_by_side = len(configs) if device.type == "cuda" else 1
    if tensorboard:
        announce(runs)
    seconds = train_all(configs, pool, runs, device, side_by_side, tensorboard)
    return collect(jobs, pool, runs, device, seconds)


def check_jobs(jobs: Iterable[Job], pool: ImagePool, runs: Path) -> None:
    """Errors come before the work."""
    test_images = all_labeled(pool.of_split("test"))
    for job in jobs:
        check_enough(test_images, *job.tests)
        check_fleet(job.config, pool, run_folder(runs, job.config))


def collect(
    jobs: list[Job], pool: ImagePool, runs: Path, device: torch.device, seconds: float
) -> list[Record]:
    """The records of trained fleets; what has not been measured yet is measured."""
    found: list[Record] = []
    for config in configs_of(jobs):
        folder = run_folder(runs, config)
        model = load_model(folder, device)[1]
        mine = [job for job in jobs if job.config == config]
        found += measure(mine, model, pool, folder, seconds, device)
    return found


def train_all(
    configs: list[FleetConfig],
    pool: ImagePool,
    runs: Path,
    device: torch.device,
    side_by_side: int,
    tensorboard: bool = False,
) -> float:
    """Train every fleet, a few at a time, a chunk of updates each in turn; the seconds it took."""
    begun = time.monotonic()
    rows = [row_of(config) for config in configs]
    with fleet_table(rows) as shown:
        images = images_on(pool, device)
        waiting = [
            training(c, pool, images, run_folder(runs, c), device, row, tensorboard=tensorboard)
            for c, row in zip(configs, rows, strict=True)
        ]
        active: list[Iterator[None]] = []
        while active or waiting:
            while waiting and len(active) < side_by_side:
                active.append(waiting.pop(0))
            active = [fleet for fleet in active if next(fleet, DONE) is not DONE]
            shown.tell()
    return time.monotonic() - begun


def measure(
    jobs: Sequence[Job],
    model: ProtoNet,
    pool: ImagePool,
    folder: Path,
    seconds: float,
    device: torch.device,
) -> list[Record]:
    """The records of one trained fleet, read from its `result.json` where they are there."""
    path = folder / "result.json"
    held = records_so_far(path)
    if any(lacking(held, job) for job in jobs):
        with Lock(folder / LOCK):
            held = records_so_far(path)  # another process may have measured them meanwhile
            for job in jobs:
                if missing := lacking(held, job):
                    held += measured(job, missing, model, pool, seconds, device)
                    write_json(path, held)
    found = []
    for job in jobs:
        members = job.config.members
        for test in job.tests:
            rows = zip(matching(held, job.row, test, len(members)), members, strict=True)
            found += [record for record, member in rows if member in job.members]
    return found


def measured(
    job: Job,
    tests: Sequence[EpisodeShape],
    model: ProtoNet,
    pool: ImagePool,
    seconds: float,
    device: torch.device,
) -> list[Record]:
    """The records of a row at these test shapes."""
    if job.row == SEMI_SUPERVISED_INFERENCE:
        model = ProtoNet(model.encoder, refine.build("soft_kmeans"), model.steps)
    seeds = [member.split_seed for member in job.config.members]
    accuracies = evaluate(model, pool, "test", tests, seeds)
    found: list[Record] = []
    for test, each in zip(tests, accuracies, strict=True):
        measurement = Measurement(test, "test", seconds, device_name(device))
        found += accuracy_records(job.config, job.row, measurement, each)
    return found


def lacking(held: list[Record], job: Job) -> list[EpisodeShape]:
    """The test shapes that a job asks for and no record has."""
    runs = len(job.config.members)
    return [test for test in job.tests if not matching(held, job.row, test, runs)]


def matching(held: list[Record], row: str | None, test: EpisodeShape, runs: int) -> list[Record]:
    """The records of one row at one test shape, or none if the row is not complete."""
    shape = vars(test).items()
    inference = SEMI_SUPERVISED_INFERENCE
    rows = [
        record
        for record in held
        if (record.get("model") == inference) == (row == inference)
        and record.get("episodes") == EPISODES
        and all(record.get(key, False) == value for key, value in shape)
    ]
    return rows if len(rows) == runs else []


def table(
    name: str,
    pool: ImagePool,
    preset: str,
    splits: int,
    updates: int | None,
    runs: Path,
    device: torch.device,
    shots: Sequence[int] = (),
    models: Sequence[str] = (),
    finished: bool = False,
    tensorboard: bool = False,
    fleet_size: int | None = None,
    run: RunJobs | None = None,
) -> list[Record]:
    """The records of a table or figure; `finished` trains nothing and takes what earlier runs left.

    `run` does the work somewhere else than in this process.
    """
    recipe = published.preset(preset, pool.name).recipe
    recipe = recipe if updates is None else recipe.with_updates(updates)
    what = published.table(name, pool.name)
    jobs = table_jobs(what, pool, preset, recipe, splits, runs, shots, models, fleet_size)
    if finished:
        done = [run_folder(runs, job.config) / MODEL for job in jobs]
        jobs = [job for job, model in zip(jobs, done, strict=True) if model.exists()]
        if not jobs:
            raise InputError(
                f"nothing of {name} is finished below {runs}; drop --finished to train"
            )
    print(
        f"{pool.name}: {splits} splits, {recipe.updates:,} updates, {recipe.filters} filters, "
        f"preset {preset}",
        file=sys.stderr,
    )
    return (run or run_jobs)(jobs, pool, runs, device, tensorboard)
