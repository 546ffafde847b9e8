"""What to train: the fleets that a table of the paper needs, or that a request asks for."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
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
    Recipe,
    read_config,
)
from semishot.training.requests import FleetRequest
from semishot.training.run_folder import MODEL_FILE


@dataclass(frozen=True)
class PlannedTest:
    shape: EpisodeShape
    row: str | None = None
    """The model to evaluate as: None is the trained method itself."""
    at_test: AtTest = field(default_factory=dict)
    """How it refines, if not as in training."""


@dataclass(frozen=True)
class PlannedCell:
    """A method trained in some way, and what it is tested on: a cell of a table, or several."""

    preset: str
    recipe: Recipe
    train: EpisodeShape
    model: str
    options: Mapping[str, Any]
    tests: Sequence[PlannedTest]
    alone: bool = False
    """Whether the method has a fleet of its own."""
    variant: str = ""
    """The name of what an ablation changes."""


@dataclass(frozen=True)
class PlannedFleet:
    config: FleetConfig
    wanted: Sequence[Member]
    """The runs whose records are wanted; a fleet found on disk may hold others too."""
    tests: Sequence[PlannedTest]


def fleets_of(
    cells: Iterable[PlannedCell],
    splits: int,
    pool: ImagePool,
    runs: Path,
    fleet_size: int | None = None,
) -> list[PlannedFleet]:
    """Cells of one preset, recipe and training episode share a fleet; those below `runs` are used again."""
    groups: dict[tuple[object, ...], list[PlannedCell]] = {}
    for cell in cells:
        key = cell.preset, cell.recipe, cell.train, cell.alone and cell.model
        groups.setdefault(key, []).append(cell)
    fleets = list[PlannedFleet]()
    for own in groups.values():
        members, tests = list[Member](), list[PlannedTest]()
        for cell in own:
            if not any((m.model, m.options) == (cell.model, cell.options) for m in members):
                members += [Member(cell.model, seed, cell.options) for seed in range(splits)]
            tests += [test for test in cell.tests if test not in tests]
        settings = own[0].preset, own[0].recipe, own[0].train
        config = FleetConfig(pool.name, pool.fingerprint, *settings, tuple(members))
        fleets += with_existing(PlannedFleet(config, members, tests), runs, fleet_size)
    return fleets


def table_fleets(
    table: published.PaperTable, request: TableRequest, pool: ImagePool, runs: Path
) -> list[PlannedFleet]:
    """For each shot the supervised fleet, and for each column one fleet of all methods. A method outside the
    package has a fleet of its own, and so has one with settings of its own at test."""
    chosen = presets.preset(request.preset, pool.name)
    options = parsed(request.options)
    recipe = chosen.recipe.with_updates(request.updates)
    rows = chosen_rows(request.models or chosen.models, options)
    if unknown := [shot for shot in request.shots if shot not in table.shots]:
        known = ", ".join(map(str, table.shots))
        raise InputError(f"--shots {unknown[0]} is not in this table: choose from {known}")
    cells = []
    for shot in [shot for shot in table.shots if shot in (request.shots or table.shots)]:
        tests: dict[tuple[str, EpisodeShape], list[PlannedTest]] = {}
        for row, h in product(rows, published.DISTRACTORS):
            if row == SUPERVISED and h:
                continue  # it ignores unlabeled images: distractors change nothing
            inference = row == SEMI_SUPERVISED_INFERENCE
            model = SUPERVISED if inference else row
            train = chosen.episode(shot, h, refines=model != SUPERVISED)
            tests.setdefault((model, train), []).extend(
                PlannedTest(
                    replace(test, shot=shot, distractors=h),
                    row if inference else None,
                    chosen.at_test.get((row, h), {}),
                )
                for test in table.tests.values()
            )
        for (model, train), own in tests.items():
            # the user's own: the others can be read without their code
            alone = ":" in model or (model, 0) in chosen.at_test
            changed = {} if model == SUPERVISED else options
            cells.append(PlannedCell(request.preset, recipe, train, model, changed, own, alone))
    return fleets_of(cells, request.splits, pool, runs, request.fleet_size)


def chosen_rows(wanted: Sequence[str], options: Mapping[str, Any]) -> list[str]:
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
        refine.build(name, runs=1, **options)  # errors come before the work
    return rows


def with_existing(fleet: PlannedFleet, runs: Path, fleet_size: int | None) -> list[PlannedFleet]:
    """The fleets of these settings below `runs` that hold wanted runs, and one for the missing runs.

    Or several, of at most `fleet_size` runs. A finished fleet may hold others too; an unfinished one is
    used only if all its runs are wanted.
    """
    wanted, missing, fleets = fleet.config, [*fleet.wanted], list[PlannedFleet]()
    for path in sorted((runs / wanted.dataset / wanted.preset).glob("*/config.json")):
        begun = read_config(path)
        useful = [member for member in begun.members if member in missing]
        whole = len(useful) == len(begun.members) or (path.parent / MODEL_FILE).exists()
        if useful and whole and replace(begun, members=wanted.members) == wanted:
            fleets.append(PlannedFleet(begun, useful, fleet.tests))
            missing = [member for member in missing if member not in useful]
    size = fleet_size or max(1, len(missing))
    for first in range(0, len(missing), size):
        some = tuple(missing[first : first + size])
        fleets.append(PlannedFleet(replace(wanted, members=some), some, fleet.tests))
    return fleets


def fleet_config(request: FleetRequest, pool: ImagePool) -> FleetConfig:
    """A fleet of one method; settings that the request leaves out are the preset's."""
    given = {name: value for name, value in vars(request).items() if value is not None}
    refine.add(request.encoder or "")
    chosen = presets.preset(request.preset, pool.name)
    recipe = chosen.recipe.with_updates(request.updates)
    recipe = replace(recipe, **{k: v for k, v in given.items() if k in vars(recipe)})
    shape = replace(chosen.train, **{k: v for k, v in given.items() if k in vars(chosen.train)})
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


def run_folder(runs: Path, config: FleetConfig) -> Path:
    return runs / config.dataset / config.preset / config.name
