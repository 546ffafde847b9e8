"""A request for a fleet or a table of the paper -> train and test what is missing -> records."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from semishot import datasets, refine
from semishot.data.episodes import check_enough
from semishot.data.pool import ImagePool
from semishot.data.splits import all_labeled
from semishot.errors import InputError, counted
from semishot.paper import published
from semishot.paper.plan import (
    PlannedFleet,
    PlannedTest,
    chosen_rows,
    fleet_config,
    parsed,
    run_folder,
    table_fleets,
)
from semishot.paper.requests import TableRequest
from semishot.system.devices import pick_device
from semishot.system.files import write_json
from semishot.system.locks import Lock
from semishot.training.classification import CLASSIFIERS
from semishot.training.config import SEMI_SUPERVISED_INFERENCE, FleetConfig
from semishot.training.evaluation import FleetTest, measured
from semishot.training.examples import images_on
from semishot.training.fleet_log import announce, fleet_table, row_of
from semishot.training.fleets import load_model
from semishot.training.loop import Event, TrainingRequest, check_fleet, training
from semishot.training.records import Record, records_so_far
from semishot.training.requests import EPISODES, FleetRequest, Where
from semishot.training.run_folder import LOCK_FILE, MODEL_FILE
from semishot.workers import THIS_PROCESS, Workers
from semishot.workers.places import OpenPlace, place_of

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
    open_place: OpenPlace | None = None
    """Where fleets are trained and measured; None: in this process."""

    def folder(self, config: FleetConfig) -> Path:
        return run_folder(self.runs, config)


def train_fleet(
    request: FleetRequest, where: Where, out: Path | None = None, tensorboard: bool = False
) -> Path:
    """Train one fleet in `out`, or a folder below the runs named after its settings; return the folder."""
    pool = datasets.load(request.dataset, where.data_root)
    config = fleet_config(request, pool)
    folder, device = out or run_folder(where.runs, config), pick_device(where.device)
    if tensorboard:
        announce(folder)
    train_all([TrainingRequest(config, pool, folder, device, tensorboard=tensorboard)])
    return folder


def table(
    name: str,
    request: TableRequest,
    where: Where,
    workers: Workers = THIS_PROCESS,
    tensorboard: bool = False,
) -> list[Record]:
    """The records of a table or figure; `tensorboard` leaves event files in the run folders too."""
    chosen_rows(request.models, parsed(request.options))  # validate names before loading data
    pool = datasets.load(request.dataset or published.dataset_of(name), where.data_root)
    if datasets.is_partial(pool) and not request.partial:
        raise InputError(
            f"{pool.name} has {len(pool.classes)} classes here and lacks others, so its numbers would not be "
            f"the paper's: prepare the rest, or pass --partial to measure it as it is"
        )
    site = open_site(pool, where, workers, tensorboard)
    return measured_fleets(requested_fleets(name, request, site), site)


def open_site(pool: ImagePool, where: Where, workers: Workers, tensorboard: bool) -> Site:
    """On workers if they are asked for, or if there are several GPUs and none is named."""
    several = where.device == "auto" and torch.cuda.device_count() > 1
    engine = "local" if workers.engine is None and several else workers.engine
    open_place = place_of(engine, workers.address, where.device)
    device = torch.device("cpu") if open_place else pick_device(where.device)
    return Site(pool, where.runs, device, tensorboard, open_place)


def requested_fleets(name: str, request: TableRequest, site: Site) -> list[PlannedFleet]:
    """The fleets of a table; if nothing may be trained, only those that earlier runs have finished."""
    dataset = site.pool.name
    fleets = table_fleets(published.table(name, dataset), request, site.pool, site.runs)
    if request.finished:
        fleets = [each for each in fleets if (site.folder(each.config) / MODEL_FILE).exists()]
    if not fleets:
        raise InputError(
            f"nothing of {name} is finished below {site.runs}; drop --finished to train"
        )
    recipe = fleets[0].config.recipe
    print(
        f"{dataset}: {counted(request.splits, 'split')}, {counted(recipe.updates, 'update')}, "
        f"{counted(recipe.filters, 'filter')}, preset {request.preset}",
        file=sys.stderr,
    )
    return fleets


def measured_fleets(fleets: Sequence[PlannedFleet], site: Site) -> list[Record]:
    """Train and evaluate what is missing; return every record of these fleets."""
    check_fleets(fleets, site)
    if site.tensorboard:
        announce(site.runs)
    if site.open_place is None:
        train_planned(fleets, site)
    else:
        from semishot.paper.on_workers import run_on_workers  # it imports this module

        fleets = run_on_workers(site.open_place, fleets, site)
    records: list[Record] = []
    for each in fleets:
        records += fleet_records(each, site.pool, site.folder(each.config), site.device)
    return records


def check_fleets(fleets: Iterable[PlannedFleet], site: Site) -> None:
    """Raise errors before the work begins."""
    test_images = all_labeled(site.pool.of_split("test"))
    for each in fleets:
        check_enough(test_images, *(test.shape for test in each.tests), advice=FIXED)
        check_fleet(each.config, site.pool, site.folder(each.config), FIXED)


def train_planned(
    fleets: Sequence[PlannedFleet], site: Site, side_by_side: int | None = None
) -> None:
    """Train the fleets that are not trained, a few at a time; on a GPU, all at once."""
    requests = [
        TrainingRequest(
            *(each.config, site.pool, site.folder(each.config), site.device),
            tensorboard=site.tensorboard,
            classifiers=site.runs / site.pool.name / CLASSIFIERS,
        )
        for each in fleets
    ]
    together = len(fleets) if site.device.type == "cuda" else 1
    train_all(requests, side_by_side or together)


def train_all(requests: Sequence[TrainingRequest], side_by_side: int = 1) -> None:
    """Train fleets on the same images, a few at a time, each a chunk of updates in turn."""
    rows = [row_of(request.config) for request in requests]
    with fleet_table(rows) as shown:
        images = images_on(requests[0].pool, requests[0].device)
        both = zip(requests, rows, strict=True)
        waiting = [training(request, images, row) for request, row in both]
        active: list[Iterator[Event]] = []
        while active or waiting:
            while waiting and len(active) < side_by_side:
                active.append(waiting.pop(0))
            active = [fleet for fleet in active if next(fleet, DONE) is not DONE]
            shown.tell()


def fleet_records(
    fleet: PlannedFleet, pool: ImagePool, folder: Path, device: torch.device
) -> list[Record]:
    """The records of one trained fleet, read from its `result.json` if they are there."""
    path, config = folder / "result.json", fleet.config
    known = records_so_far(path)
    if lacking(known, fleet):
        with Lock(folder / LOCK_FILE):
            known = records_so_far(path)  # another process may have measured them meanwhile
            if missing := lacking(known, fleet):
                known += measure(missing, pool, folder, device)
                write_json(path, known)
    return [
        record
        for test in fleet.tests
        for record, member in zip(matching(known, config, test), config.members, strict=True)
        if member in fleet.wanted
    ]


def measure(
    tests: Sequence[PlannedTest], pool: ImagePool, folder: Path, device: torch.device
) -> Sequence[Record]:
    """The records of all runs of a trained fleet."""
    config, trained = load_model(folder, device)
    wanted = []
    for test in tests:
        model = trained
        if test.row == SEMI_SUPERVISED_INFERENCE:
            model = model.refined_by(refine.build("soft_kmeans"))
        if test.at_test:
            runs, method = len(config.members), config.members[0].model
            options = {name: value for name, value in test.at_test.items() if name != "steps"}
            refiner = refine.build(method, runs=runs, **options)
            model = model.refined_by(refiner.to(device), int(test.at_test["steps"]))
        wanted.append(FleetTest(model, test.shape, test.row, test.at_test))
    return measured(wanted, config, pool, folder)


def lacking(known: Sequence[Record], fleet: PlannedFleet) -> list[PlannedTest]:
    """The tests that a fleet needs and that have no records."""
    return [test for test in fleet.tests if not matching(known, fleet.config, test)]


def matching(known: Sequence[Record], config: FleetConfig, test: PlannedTest) -> list[Record]:
    """The records of a fleet at one test; none if they are not complete."""
    inference, shape = SEMI_SUPERVISED_INFERENCE, vars(test.shape).items()
    rows = [
        record
        for record in known
        if (record["model"] == inference) == (test.row == inference)
        and record["episodes"] == EPISODES
        and record.get("at_test", {}) == test.at_test
        and all(record.get(key, False) == value for key, value in shape)
    ]
    return rows if len(rows) == len(config.members) else []
