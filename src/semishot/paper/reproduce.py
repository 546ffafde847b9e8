"""A request for a fleet or a table of the paper -> train what is missing -> records."""

import sys
from pathlib import Path

from semishot import datasets
from semishot.errors import InputError, counted
from semishot.paper import presets, published
from semishot.paper.jobs import Site
from semishot.paper.on_workers import choose_runner
from semishot.paper.plan import Job, chosen_rows, fleet_config, run_folder, table_jobs
from semishot.paper.requests import TableRequest
from semishot.system.devices import pick_device
from semishot.training.examples import images_on
from semishot.training.fleet_table import fleet_table, row_of
from semishot.training.fleet_training import TrainingRequest, training
from semishot.training.records import Record
from semishot.training.requests import FleetRequest, Where
from semishot.training.run_folder import MODEL_FILE
from semishot.training.tensorboard import announce
from semishot.workers import THIS_PROCESS, Workers


def train_fleet(
    request: FleetRequest, where: Where, out: Path | None = None, tensorboard: bool = False
) -> Path:
    """Train one fleet in `out`, or a folder below the runs named after its settings; return the folder."""
    pool = datasets.load(request.dataset, where.data_root)
    config = fleet_config(request, pool)
    folder, device = out or run_folder(where.runs, config), pick_device(where.device)
    if tensorboard:
        announce(folder)
    row = row_of(config)
    with fleet_table([row]) as shown:
        one = TrainingRequest(config, pool, folder, device, tensorboard=tensorboard)
        for _ in training(one, images_on(pool, device), row):
            shown.tell()
    return folder


def table(
    name: str,
    request: TableRequest,
    where: Where,
    workers: Workers = THIS_PROCESS,
    tensorboard: bool = False,
) -> list[Record]:
    """The records of a table or figure; `tensorboard` leaves event files in the run folders too."""
    chosen_rows(request.models)  # a wrong name is said before data are missed
    pool = datasets.load(request.dataset or published.dataset_of(name), where.data_root)
    if datasets.is_partial(pool) and not request.partial:
        raise InputError(
            f"{pool.name} has {len(pool.classes)} classes here and lacks others, so its numbers would not be "
            f"the paper's: prepare the rest, or pass --partial to measure it as it is"
        )
    device, run = choose_runner(workers, where.device)
    site = Site(pool, where.runs, device, tensorboard)
    return run(requested_jobs(name, request, site), site)


def requested_jobs(name: str, request: TableRequest, site: Site) -> list[Job]:
    """The jobs of a table; if nothing may be trained, only those that earlier runs have finished."""
    dataset, runs = site.pool.name, site.runs
    recipe = presets.recipe_of(request.preset, dataset, request.updates)
    jobs = table_jobs(published.table(name, dataset), request, site.pool, runs)
    if request.finished:
        jobs = [job for job in jobs if (site.folder(job.config) / MODEL_FILE).exists()]
        if not jobs:
            raise InputError(
                f"nothing of {name} is finished below {runs}; drop --finished to train"
            )
    print(
        f"{dataset}: {counted(request.splits, 'split')}, {counted(recipe.updates, 'update')}, "
        f"{counted(recipe.filters, 'filter')}, "
        f"preset {request.preset}",
        file=sys.stderr,
    )
    return jobs
