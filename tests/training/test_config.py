"""Recipes and fleets: schedules as pure functions, JSON there and back, errors at the door."""

import math
import re
from dataclasses import replace

import pytest

from semishot.data.episodes import EpisodeShape
from semishot.errors import InputError
from semishot.paper import presets
from semishot.training.config import Classification, FleetConfig, Member, Recipe, learning_rate

FLEET = FleetConfig(
    dataset="glyphs",
    data_fingerprint="f" * 64,
    preset="ren2018",
    recipe=Recipe(updates=12, halvings=(3, 7), filters=4),
    shape=EpisodeShape(way=3, shot=2, query=4, unlabeled=5, distractors=6),
    members=(Member("soft_kmeans", 8), Member("masked_soft_kmeans", 9, {"mask_power": 2})),
)


def literal_rate(step: int, breakpoints: dict[int, float]) -> float:
    """The rate written at the last breakpoint not after `step`."""
    return breakpoints[max(first for first in breakpoints if first <= step)]


def all_breakpoints(breakpoints: dict[int, float], updates: int) -> list[int]:
    near = {first + shift for first in breakpoints for shift in (-1, 0, 1)}
    return sorted(step for step in near | {updates - 1} if 0 <= step < updates)


def test_ren2018_is_the_schedule_of_the_code():
    """The authors' code: 1e-3 to update 5,999; halved at 6K, 8K, 12K (10K is missing), 14K, 16K, 18K."""
    written = {
        0: 1e-3,
        6_000: 5e-4,
        8_000: 2.5e-4,
        12_000: 1.25e-4,
        14_000: 6.25e-5,
        16_000: 3.125e-5,
        18_000: 1.5625e-5,
    }
    recipe = presets.preset("ren2018").recipe
    assert recipe.updates == 20_000
    for step in [*all_breakpoints(written, 20_000), 10_000]:
        assert learning_rate(recipe, step) == pytest.approx(literal_rate(step, written), rel=1e-12)


def test_ren2018_text_is_halved_every_2k_from_2k():
    """Appendix D: 5e-4 from 2K, and 1.95e-6 at 18K."""
    recipe = presets.preset("ren2018-text").recipe
    assert recipe.updates == 20_000
    for step in all_breakpoints(dict.fromkeys(range(0, 20_000, 2_000), 0.0), 20_000):
        assert learning_rate(recipe, step) == pytest.approx(1e-3 / 2 ** (step // 2_000), rel=1e-12)
    assert learning_rate(recipe, 18_000) == pytest.approx(1.95e-6, rel=5e-3)


@pytest.mark.parametrize("preset", ["ren2018", "ren2018-text"])
@pytest.mark.parametrize("factor", [0.5, 2])
def test_with_updates_stretches_the_schedule(preset, factor):
    recipe = presets.preset(preset).recipe
    other = recipe.with_updates(int(20_000 * factor))
    assert other.updates == 20_000 * factor
    for step in range(0, 20_000, 500):
        assert learning_rate(other, int(step * factor)) == learning_rate(recipe, step)
    assert replace(other, updates=20_000, halvings=recipe.halvings) == recipe


def test_a_cosine_falls_from_the_whole_rate_to_nothing():
    """Loshchilov & Hutter: rate * (1 + cos(pi t / T)) / 2, whatever T is."""
    recipe = Recipe(updates=40, cosine=True)
    for step in range(40):
        expected = 1e-3 * (1 + math.cos(math.pi * step / 40)) / 2
        assert learning_rate(recipe, step) == pytest.approx(expected)
        assert learning_rate(recipe.with_updates(80), 2 * step) == pytest.approx(expected)
    assert learning_rate(recipe, 40) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    ("settings", "changes", "message"),
    [
        (Recipe, {"learning_rate": float("nan")}, "learning_rate must be positive, not nan"),
        (Recipe, {"crop": 0.0}, "crop must be above 0 and at most 1, not 0.0"),
        (Recipe, {"views": 101}, "views must be at most 100, not 101"),
        (Recipe, {"views": 5}, "views of an image are moved as in training, where augment is 0"),
        (Recipe, {"with_distractors": -0.5}, "with_distractors must be from 0 to 1, not -0.5"),
        (Recipe, {"sphere": -1.0}, "sphere must be at least 0, not -1.0"),
        (Classification, {"batch": 0}, "batch must be at least 1, not 0"),
        (Classification, {"scale": 0.0}, "scale must be positive, not 0.0"),
    ],
)
def test_a_wrong_setting_is_named(settings, changes, message):
    with pytest.raises(InputError, match=message):
        settings(**changes)


def test_a_fleet_survives_json():
    within = replace(FLEET, shape=replace(FLEET.shape, within_group=True))
    for config in (FLEET, within):
        again = FleetConfig.from_json(config.to_json())
        assert (again, again.name) == (config, config.name)


def test_a_fleets_name_tells_its_shape_and_every_difference():
    assert FLEET.name.startswith("3way-2shot-M5-H6-12updates-2runs-")
    others = [
        replace(FLEET, dataset="omniglot"),
        replace(FLEET, data_fingerprint="e" * 64),
        replace(FLEET, recipe=replace(FLEET.recipe, init_std=0.02)),
        replace(FLEET, shape=replace(FLEET.shape, query=5)),
        replace(FLEET, shape=replace(FLEET.shape, within_group=True)),
        replace(FLEET, members=(FLEET.members[0], Member("masked_soft_kmeans", 9))),
        replace(FLEET, members=FLEET.members[::-1]),
    ]
    assert len({config.name for config in [FLEET, *others]}) == len(others) + 1


def test_json_with_something_else_in_a_field_is_refused():
    for old, new, message in (
        ('"updates": 12', '"updates": 12.5', "recipe.updates: expected `int`, got `float`"),
        ('"mask_power": 2', '"mask_power": [2]', "members[1]: option mask_power must be a finite"),
    ):
        with pytest.raises(InputError, match=re.escape(f"of this version: {message}")):
            FleetConfig.from_json(FLEET.to_json().replace(old, new))


def test_supervised_runs_have_a_fleet_of_their_own_without_unlabeled_images():
    alone = replace(FLEET.shape, unlabeled=0, distractors=0)
    supervised = (Member("supervised", 0),)
    with pytest.raises(InputError, match="a fleet of their own with unlabeled 0, not 5"):
        replace(FLEET, members=supervised)
    with pytest.raises(InputError, match="a fleet of their own"):
        replace(FLEET, shape=alone, members=(*supervised, *FLEET.members))
    assert replace(FLEET, shape=alone, members=supervised).shape == alone
