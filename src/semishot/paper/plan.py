"""What to train: the fleets that a table of the paper needs, or that a request asks for."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from semishot import refine
from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImagePool
from semishot.errors import InputError
from semishot.paper import presets, published
from semishot.paper.presets import AtTest
from semishot.paper.requests import TableRequest
from semishot.training.config import (
    SEMI_SUPERVISED_INFERENCE,
    SUPERVISED,
    FleetConfig,
    Member,
    read_config,
)
from semishot.training.requests import FleetRequest
from semishot.training.run_folder import MODEL_FILE


@dataclass(frozen=True)
class Job:
    """A fleet to train, and a row of the table to measure on it at some test shapes."""

    config: FleetConfig
    row: str | None
    """The model to evaluate as: None is the trained method itself."""
    tests: tuple[EpisodeShape, ...]
    members: tuple[Member, ...]
    """The runs whose records are wanted; a fleet found on disk may hold others too."""
    at_test: AtTest = field(default_factory=dict)
    """How they refine, if not as in training."""


def table_jobs(
    table: published.PaperTable, request: TableRequest, pool: ImagePool, runs: Path
) -> list[Job]:
    """For each shot the supervised fleet, and for each column one fleet of all methods. A method outside the
    package has a fleet of its own, and so has one with settings of its own at test."""
    chosen = presets.preset(request.preset, pool.name)
    recipe = chosen.recipe.with_updates(request.updates)
    options = parsed(request.options)
    rows = chosen_rows(request.models or chosen.models, options)
    methods = [row for row in rows if row not in (SUPERVISED, SEMI_SUPERVISED_INFERENCE)]
    # the user's own: the others can be read without their code
    apart = [name for name in methods if ":" in name or (name, 0) in chosen.at_test]
    together = [name for name in methods if name not in apart]
    groups = [*([together] if together else []), *([name] for name in apart)]
    if unknown := [shot for shot in request.shots if shot not in table.shots]:
        known = ", ".join(map(str, table.shots))
        raise InputError(f"--shots {unknown[0]} is not in this table: choose from {known}")
    jobs = []
    for shot in [shot for shot in table.shots if shot in (request.shots or table.shots)]:
        tests = {
            h: tuple(replace(t, shot=shot, distractors=h) for t in table.tests.values())
            for h in published.DISTRACTORS
        }
        columns = [tests] if chosen.one_training else [{h: tests[h]} for h in tests]
        fleets = [
            (chosen.episode(shot, max(column)), methods, column)
            for methods in groups
            for column in columns
        ]
        if len(methods) < len(rows):
            fleets.insert(0, (chosen.episode(shot, 0, refines=False), [SUPERVISED], tests))
        for shape, trained, column in fleets:
            runs_of = [
                Member(model, seed, {} if model == SUPERVISED else options)
                for model in trained
                for seed in range(request.splits)
            ]
            of_all = pool.name, pool.fingerprint, request.preset, recipe, shape
            shared = FleetConfig(*of_all, tuple(runs_of))
            for config, members in with_existing(shared, runs, request.fleet_size):
                jobs += row_jobs(config, members, column, rows, chosen.at_test)
    return jobs


Tests = Mapping[int, tuple[EpisodeShape, ...]]
"""By distractor classes: the test episode at each number of unlabeled images."""


def row_jobs(
    config: FleetConfig,
    members: tuple[Member, ...],
    tests: Tests,
    rows: Sequence[str],
    at_test: Mapping[tuple[str, int], AtTest],
) -> list[Job]:
    """What a table measures on a trained fleet."""
    model = config.members[0].model  # one that has settings of its own at test is alone
    if model != SUPERVISED:
        return [
            Job(config, None, shapes, members, at_test.get((model, h), {}))
            for h, shapes in tests.items()
        ]
    everywhere = tuple(shape for shapes in tests.values() for shape in shapes)
    both = {  # the supervised model ignores unlabeled images: distractors change nothing
        SUPERVISED: Job(config, None, tests[0], members),
        SEMI_SUPERVISED_INFERENCE: Job(config, SEMI_SUPERVISED_INFERENCE, everywhere, members),
    }
    return [job for row, job in both.items() if row in rows]


def chosen_rows(wanted: Sequence[str], options: Mapping[str, Any] | None = None) -> list[str]:
    """The paper's rows, or the wanted ones: the paper's first, then any other method.

    Methods that cannot be imported, and options that one of them does not take, are refused.
    """
    given = [SUPERVISED if name == "basic" else refine.ALIASES.get(name) or name for name in wanted]
    for name in given:
        if name not in published.MODELS:
            if name not in refine.names() and ":" not in name:
                known = ", ".join(dict.fromkeys([*published.MODELS, *refine.names()]))
                raise InputError(
                    f"--models {name} is not a method: choose from {known}, or give MODULE:CLASS"
                )
            refine.add(name)
    rows = [row for row in published.rows(given) if row in given or not given]
    methods = [row for row in rows if row not in (SUPERVISED, SEMI_SUPERVISED_INFERENCE)]
    if options and not methods:
        raise InputError("--options are of methods that refine; name one with --models")
    for name in methods:
        refine.build(name, runs=1, **(options or {}))  # errors come before the work
    return rows


def with_existing(
    wanted: FleetConfig, runs: Path, fleet_size: int | None = None
) -> list[tuple[FleetConfig, tuple[Member, ...]]]:
    """The fleets of these settings below `runs` that hold wanted runs, and one for the missing runs.

    Or several, of at most `fleet_size` runs. Each comes with its wanted runs. A finished fleet may hold
    others too; an unfinished one is used only if all its runs are wanted.
    """
    missing, configs = list(wanted.members), []
    for path in sorted((runs / wanted.dataset / wanted.preset).glob("*/config.json")):
        begun = read_config(path)
        useful = [member for member in begun.members if member in missing]
        whole = len(useful) == len(begun.members) or (path.parent / MODEL_FILE).exists()
        if useful and whole and replace(begun, members=wanted.members) == wanted:
            configs.append((begun, tuple(useful)))
            missing = [member for member in missing if member not in useful]
    size = fleet_size or max(1, len(missing))
    for first in range(0, len(missing), size):
        some = tuple(missing[first : first + size])
        configs.append((replace(wanted, members=some), some))
    return configs


EPISODE_FIELDS = ("way", "shot", "query", "unlabeled", "distractors", "within_group")
RECIPE_FIELDS = ("filters", "labeled_fraction", "precision", "encoder")


def fleet_config(request: FleetRequest, pool: ImagePool) -> FleetConfig:
    """A fleet of one method; settings that the request leaves out are the preset's."""
    given = {name: value for name, value in vars(request).items() if value is not None}
    refine.add(request.encoder or "")
    chosen = presets.preset(request.preset, pool.name)
    recipe = chosen.recipe.with_updates(request.updates)
    recipe = replace(recipe, **{k: v for k, v in given.items() if k in RECIPE_FIELDS})
    shape = replace(chosen.train, **{k: v for k, v in given.items() if k in EPISODE_FIELDS})
    model = refine.add(request.model)
    if model in (SUPERVISED, "basic"):
        model, shape = SUPERVISED, replace(shape, unlabeled=0, distractors=0)
    else:
        model = refine.resolve(model)
    options = parsed(request.options)
    members = tuple(Member(model, seed, options) for seed in request.split_seeds)
    return FleetConfig(pool.name, pool.fingerprint, request.preset, recipe, shape, members)


def parsed(options: Mapping[str, str] | None) -> dict[str, Any]:
    """Options of a method as they are typed: numbers, true and false."""
    values = {}
    for name, text in (options or {}).items():
        try:
            values[name] = json.loads(text.lower())
        except json.JSONDecodeError as error:
            problem = f"option {name}: {text!r} is neither a number nor true or false"
            raise InputError(problem) from error
    return values


def configs_of(jobs: Iterable[Job]) -> list[FleetConfig]:
    return list({job.config.name: job.config for job in jobs}.values())


def run_folder(runs: Path, config: FleetConfig) -> Path:
    return runs / config.dataset / config.preset / config.name
