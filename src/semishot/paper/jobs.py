"""Jobs -> train and evaluate their missing fleets in this process -> records."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from semishot import refine
from semishot.data.episodes import EpisodeShape, check_enough
from semishot.data.pool import ImagePool
from semishot.data.splits import all_labeled
from semishot.network.protonet import ProtoNet
from semishot.paper.plan import Job, configs_of, run_folder
from semishot.system.devices import device_name
from semishot.system.files import write_json
from semishot.system.locks import Lock
from semishot.training.classification import CLASSIFIERS
from semishot.training.config import SEMI_SUPERVISED_INFERENCE, FleetConfig
from semishot.training.evaluation import data_and_training, evaluate
from semishot.training.examples import images_on
from semishot.training.fleet_table import fleet_table, row_of
from semishot.training.fleet_training import TrainingRequest, check_fleet, training
from semishot.training.fleets import load_model
from semishot.training.loop import Event
from semishot.training.records import Measurement, Record, accuracy_records, records_so_far
from semishot.training.requests import EPISODES
from semishot.training.run_folder import LOCK_FILE
from semishot.training.tensorboard import announce

DONE = object()
FIXED = (
    "the episodes and the labeled share of a table are fixed: take a data set with more, or `semishot train` "
    "and `semishot evaluate`, which have flags for both"
)
"""What to do about a data set that is too small for a table."""


@dataclass(frozen=True)
class Site:
    """The settings that all fleets of a command share."""

    pool: ImagePool
    runs: Path
    """The folder of their run folders."""
    device: torch.device
    tensorboard: bool = False
    """Leave event files in the run folders too."""

    def folder(self, config: FleetConfig) -> Path:
        return run_folder(self.runs, config)

    def training_of(self, config: FleetConfig) -> TrainingRequest:
        folder = self.folder(config)
        return TrainingRequest(
            config,
            self.pool,
            folder,
            self.device,
            tensorboard=self.tensorboard,
            classifiers=self.runs / self.pool.name / CLASSIFIERS,
        )


RunJobs = Callable[[list[Job], Site], list[Record]]
"""`run_jobs`, or its counterpart on workers."""


def run_jobs(jobs: list[Job], site: Site) -> list[Record]:
    """Train and evaluate what is missing; return every record of these jobs."""
    check_jobs(jobs, site)
    configs = configs_of(jobs)
    side_by_side = len(configs) if site.device.type == "cuda" else 1
    if site.tensorboard:
        announce(site.runs)
    train_all(configs, site, side_by_side)
    return collect(jobs, site)


def check_jobs(jobs: Iterable[Job], site: Site) -> None:
    """Raise errors before the work begins."""
    test_images = all_labeled(site.pool.of_split("test"))
    for job in jobs:
        check_enough(test_images, *job.tests, advice=FIXED)
        check_fleet(job.config, site.pool, site.folder(job.config), FIXED)


def collect(jobs: list[Job], site: Site) -> list[Record]:
    """The records of trained fleets; missing ones are measured."""
    found: list[Record] = []
    for config in configs_of(jobs):
        mine = [job for job in jobs if job.config == config]
        model = load_model(site.folder(config), site.device)[1]
        fleet = TrainedFleet(model, site.pool, site.folder(config), site.device)
        found += fleet_records(mine, fleet)
    return found


def train_all(configs: list[FleetConfig], site: Site, side_by_side: int) -> None:
    """Train the fleets, a few at a time, each a chunk of updates in turn."""
    rows = [row_of(config) for config in configs]
    with fleet_table(rows) as shown:
        images = images_on(site.pool, site.device)
        waiting = [
            training(site.training_of(config), images, row)
            for config, row in zip(configs, rows, strict=True)
        ]
        active: list[Iterator[Event]] = []
        while active or waiting:
            while waiting and len(active) < side_by_side:
                active.append(waiting.pop(0))
            active = [fleet for fleet in active if next(fleet, DONE) is not DONE]
            shown.tell()


@dataclass(frozen=True)
class TrainedFleet:
    """A fleet ready to be measured."""

    model: ProtoNet
    pool: ImagePool
    folder: Path
    device: torch.device
    show: bool = True
    """Show the progress of the test on stderr."""


def fleet_records(jobs: Sequence[Job], fleet: TrainedFleet) -> list[Record]:
    """The records of one trained fleet, read from its `result.json` if they are there."""
    path = fleet.folder / "result.json"
    held = records_so_far(path)
    if any(lacking(held, job) for job in jobs):
        with Lock(fleet.folder / LOCK_FILE):
            held = records_so_far(path)  # another process may have measured them meanwhile
            missing = [(job, test) for job in jobs for test in lacking(held, job)]
            if missing:
                held += measured(missing, fleet)
                write_json(path, held)
    found = []
    for job in jobs:
        members = job.config.members
        for test in job.tests:
            found_rows = matching(held, job.row, test, len(members), job.refined)
            rows = zip(found_rows, members, strict=True)
            found += [record for record, member in rows if member in job.members]
    return found


def measured(tests: Sequence[tuple[Job, EpisodeShape]], fleet: TrainedFleet) -> list[Record]:
    """The records of rows at test shapes; all share the embeddings of the test images."""
    seeds = [member.split_seed for member in tests[0][0].config.members]
    begun = time.monotonic()
    models = [(refined_for(job, fleet), test) for job, test in tests]
    accuracies = evaluate(models, fleet.pool, "test", seeds, show=fleet.show)
    seconds, device = time.monotonic() - begun, device_name(fleet.device)
    made_from = data_and_training(fleet.folder, fleet.pool)
    records: list[Record] = []
    for (job, test), each in zip(tests, accuracies, strict=True):
        measurement = Measurement(test, "test", seconds, device, *made_from, job.refined)
        records += accuracy_records(job.config, job.row, measurement, each)
    return records


def refined_for(job: Job, fleet: TrainedFleet) -> ProtoNet:
    """The fleet, refining as the row of a job does."""
    model = fleet.model
    if job.row == SEMI_SUPERVISED_INFERENCE:
        model = model.refined_by(refine.build("soft_kmeans"))
    if job.at_test is not None:
        name, options = job.config.members[0].model, job.at_test.options
        refiner = refine.build(name, runs=len(job.config.members), **options)
        model = model.refined_by(refiner.to(fleet.device), job.at_test.steps)
    return model


def lacking(held: list[Record], job: Job) -> list[EpisodeShape]:
    """The test shapes that a job asks for and no record has."""
    runs, refined = len(job.config.members), job.refined
    return [test for test in job.tests if not matching(held, job.row, test, runs, refined)]


def matching(
    held: list[Record],
    row: str | None,
    test: EpisodeShape,
    runs: int,
    refined: Mapping[str, float | bool],
) -> list[Record]:
    """The records of one row at one test shape, refined so at test; none if the row is not complete."""
    shape = vars(test).items()
    inference = SEMI_SUPERVISED_INFERENCE
    rows = [
        record
        for record in held
        if (record.get("model") == inference) == (row == inference)
        and record.get("episodes") == EPISODES
        and record.get("at_test", {}) == refined
        and all(record.get(key, False) == value for key, value in shape)
    ]
    return rows if len(rows) == runs else []
