"""A table of the paper -> the fleets it needs -> train and evaluate what is missing -> records."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from semishot import paper, refine
from semishot.board import announce
from semishot.checkpoints import LOCK, MODEL
from semishot.config import SEMI_SUPERVISED_INFERENCE, SUPERVISED, FleetConfig, Member, Recipe
from semishot.episodes import EpisodeShape, check_enough
from semishot.errors import InputError
from semishot.evaluate import EPISODES, evaluate, records
from semishot.files import read_records, write_json
from semishot.fleet_table import fleet_table, row_of
from semishot.image_pool import ImagePool
from semishot.locks import Lock
from semishot.model import ProtoNet
from semishot.splits import all_labeled
from semishot.train import (
    check_fleet,
    images_on,
    load_model,
    read_config,
    training,
)

Record = dict[str, Any]
DONE = object()


@dataclass(frozen=True)
class Job:
    """A fleet to train, and a row of the table to measure on it at some test shapes."""

    config: FleetConfig
    row: str | None
    """The model to evaluate as: None is the trained method itself."""
    tests: tuple[EpisodeShape, ...]
    members: tuple[Member, ...]
    """The runs whose records are wanted; a fleet found on disk may hold others too."""


RunJobs = Callable[[list[Job], ImagePool, Path, torch.device, bool], list[Record]]
"""`run_jobs`, or the like of it somewhere else."""


def plan(
    table: paper.Table,
    pool: ImagePool,
    preset: str,
    recipe: Recipe,
    splits: int,
    runs: Path,
    shots: Sequence[int] = (),
    models: Sequence[str] = (),
    fleet_size: int | None = None,
) -> list[Job]:
    """For each shot the supervised fleet, and one fleet of all methods for each column."""
    if splits < 1:
        raise InputError(f"--splits must be at least 1, not {splits}")
    if fleet_size is not None and fleet_size < 1:
        raise InputError(f"--fleet-size must be at least 1, not {fleet_size}")
    chosen = paper.preset(preset, pool.name)
    jobs = []
    for shot in _chosen("--shots", shots, table.shots):
        rows = _chosen("--models", models, tuple(paper.MODELS))
        episode = replace(chosen.train, shot=shot)
        methods = [model for model in paper.TRAINED if model in rows]
        fleets = [(episode, methods), (replace(episode, distractors=chosen.distractors), methods)]
        if {SUPERVISED, SEMI_SUPERVISED_INFERENCE} & set(rows):
            fleets.insert(0, (replace(episode, unlabeled=0), [SUPERVISED]))
        for shape, trained in fleets:
            wanted = tuple(Member(model, seed) for model in trained for seed in range(splits))
            if wanted:
                shared = FleetConfig(pool.name, pool.fingerprint, preset, recipe, shape, wanted)
                for config, members in with_existing(shared, runs, fleet_size):
                    jobs += jobs_of(config, members, table, rows)
    return jobs


def _chosen(option: str, wanted: Sequence[Any], known: Sequence[Any]) -> Sequence[Any]:
    """What the table has of what is wanted; everything if nothing is said."""
    if unknown := [value for value in wanted if value not in known]:
        raise InputError(
            f"{option} {unknown[0]} is not in this table: choose from {', '.join(map(str, known))}"
        )
    return [value for value in known if value in wanted] if wanted else known


def jobs_of(
    config: FleetConfig, members: tuple[Member, ...], table: paper.Table, rows: Sequence[str]
) -> list[Job]:
    """What a table asks of a trained fleet, at each number of unlabeled images."""
    without, with_distractors = (
        tuple(replace(t, shot=config.shape.shot, distractors=h) for t in table.tests.values())
        for h in paper.DISTRACTORS
    )
    if config.shape.unlabeled:
        tests = with_distractors if config.shape.distractors else without
        return [Job(config, None, tests, members)]
    both = [  # the supervised model never looks at the unlabeled: distractors change nothing
        Job(config, None, without, members),
        Job(config, SEMI_SUPERVISED_INFERENCE, without + with_distractors, members),
    ]
    return [job for job in both if (job.row or SUPERVISED) in rows]


def with_existing(
    wanted: FleetConfig, runs: Path, fleet_size: int | None = None
) -> list[tuple[FleetConfig, tuple[Member, ...]]]:
    """The fleets of these settings below `runs` that hold wanted runs, and one of what is missing.

    Or several, of at most `fleet_size` runs. Each with the wanted runs in it. A finished fleet may hold
    others too; an unfinished one is only taken if all of it is wanted.
    """
    missing, configs = list(wanted.members), []
    for path in sorted((runs / wanted.dataset / wanted.preset).glob("*/config.json")):
        begun = read_config(path)
        useful = [member for member in begun.members if member in missing]
        whole = len(useful) == len(begun.members) or (path.parent / MODEL).exists()
        if useful and whole and replace(begun, members=wanted.members) == wanted:
            configs.append((begun, tuple(useful)))
            missing = [member for member in missing if member not in useful]
    size = fleet_size or max(1, len(missing))
    for first in range(0, len(missing), size):
        some = tuple(missing[first : first + size])
        configs.append((replace(wanted, members=some), some))
    return configs


def fleet_config(
    pool: ImagePool,
    preset: str,
    model: str,
    split_seeds: Sequence[int],
    shape: Mapping[str, Any],
    updates: int | None = None,
    filters: int | None = None,
    labeled_fraction: float | None = None,
    options: Mapping[str, str] | None = None,
) -> FleetConfig:
    """A fleet of one method by the words of the command line; what is None is the preset's."""
    chosen = paper.preset(preset, pool.name)
    recipe = chosen.recipe if updates is None else chosen.recipe.with_updates(updates)
    if filters is not None:
        recipe = replace(recipe, filters=filters)
    if labeled_fraction is not None:
        recipe = replace(recipe, labeled_fraction=labeled_fraction)
    train = replace(chosen.train, **{k: v for k, v in shape.items() if v is not None})
    if model in (SUPERVISED, "basic"):
        model, train = SUPERVISED, replace(train, unlabeled=0, distractors=0)
    else:
        model = refine.resolve(model)
    values = {name: literal(name, value) for name, value in (options or {}).items()}
    members = tuple(Member(model, seed, values) for seed in split_seeds)
    return FleetConfig(pool.name, pool.fingerprint, preset, recipe, train, members)


def literal(name: str, value: str) -> Any:
    """A number or true/false from the command line."""
    try:
        return json.loads(value.lower())
    except json.JSONDecodeError as error:
        raise InputError(
            f"option {name}: {value!r} is neither a number nor true or false"
        ) from error


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


def run_folder(runs: Path, config: FleetConfig) -> Path:
    return runs / config.dataset / config.preset / config.name


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


def configs_of(jobs: Iterable[Job]) -> list[FleetConfig]:
    return list({job.config.name: job.config for job in jobs}.values())


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
    held = read_records(path)
    if any(lacking(held, job) for job in jobs):
        with Lock(folder / LOCK):
            held = read_records(path)  # another process may have measured them meanwhile
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
        found += records(job.config, job.row, "test", test, each, seconds, device)
    return found


def lacking(held: list[Record], job: Job) -> list[EpisodeShape]:
    """The test shapes that a job asks for and no record has."""
    runs = len(job.config.members)
    return [test for test in job.tests if not matching(held, job.row, test, runs)]


def matching(held: list[Record], row: str | None, test: EpisodeShape, runs: int) -> list[Record]:
    """The records of one row at one test shape, or none if the row is not complete.

    What is no record of ours is passed over, and measured again.
    """
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
    recipe = paper.preset(preset, pool.name).recipe
    recipe = recipe if updates is None else recipe.with_updates(updates)
    what = paper.table(name, pool.name)
    jobs = plan(what, pool, preset, recipe, splits, runs, shots, models, fleet_size)
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
