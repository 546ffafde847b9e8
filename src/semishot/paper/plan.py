"""What to train: the fleets that a table of the paper needs, or the words of the command line ask for."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from semishot import refine
from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImagePool
from semishot.errors import InputError
from semishot.paper import published
from semishot.training.checkpoints import MODEL
from semishot.training.config import (
    SEMI_SUPERVISED_INFERENCE,
    SUPERVISED,
    FleetConfig,
    Member,
    Recipe,
)
from semishot.training.fleets import read_config


@dataclass(frozen=True)
class Job:
    """A fleet to train, and a row of the table to measure on it at some test shapes."""

    config: FleetConfig
    row: str | None
    """The model to evaluate as: None is the trained method itself."""
    tests: tuple[EpisodeShape, ...]
    members: tuple[Member, ...]
    """The runs whose records are wanted; a fleet found on disk may hold others too."""


def table_jobs(
    table: published.Table,
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
    chosen = published.preset(preset, pool.name)
    jobs = []
    for shot in _chosen("--shots", shots, table.shots):
        rows = _chosen("--models", models, tuple(published.MODELS))
        episode = replace(chosen.train, shot=shot)
        methods = [model for model in published.TRAINED if model in rows]
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
    config: FleetConfig, members: tuple[Member, ...], table: published.Table, rows: Sequence[str]
) -> list[Job]:
    """What a table asks of a trained fleet, at each number of unlabeled images."""
    without, with_distractors = (
        tuple(replace(t, shot=config.shape.shot, distractors=h) for t in table.tests.values())
        for h in published.DISTRACTORS
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
    chosen = published.preset(preset, pool.name)
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


def configs_of(jobs: Iterable[Job]) -> list[FleetConfig]:
    return list({job.config.name: job.config for job in jobs}.values())


def run_folder(runs: Path, config: FleetConfig) -> Path:
    return runs / config.dataset / config.preset / config.name
