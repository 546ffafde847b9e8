"""Odd content at every door: it works, or it is refused in one line. `make chaos` tries more of them."""

import os
from functools import cache
from random import Random

import pytest
from doors import Door, push
from every_door import DOORS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semishot.paper import presets

CASES = int(os.environ.get("FUZZ_CASES", "0"))
"""Cases of each kind, if `make chaos` runs this."""
FEW = {"command lines": 8, "logs": 10}
"""These take longest."""


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """What the commands' surroundings change is put back."""
    monkeypatch.setenv("SEMISHOT_DATA", "")
    monkeypatch.setitem(presets.PRESETS, "tiny", presets.PRESETS["ren2018"])


@cache
def strategy(door: Door) -> st.SearchStrategy[bytes]:
    return st.randoms(use_true_random=False).map(door.odd)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_odd_content_works_or_is_refused(door):
    @settings(
        max_examples=CASES or FEW.get(door.name, 20),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy(door))
    def through(data: bytes) -> None:
        assert push(door, data) in ("worked", "refused")

    through()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_every_door_has_a_valid_file_that_works(door):
    if door.name == "omniglot zips":
        pytest.skip("a whole Omniglot is too large here; test_omniglot.py prepares one")
    assert "worked" in {push(door, data) for data in door.seeds()[:4]}


@pytest.mark.parametrize("name", ["saved classifiers", "trained models"])
def test_damage_gets_past_a_checksum_that_is_mended(name):
    """Else nothing behind the checksum is tried, and nobody would notice."""
    (door,) = (door for door in DOORS if door.name == name)
    data = bytearray(door.seeds()[0])
    data[-1] ^= 1  # of the last number
    assert push(door, bytes(data)) == "refused"
    assert push(door, door.mend(bytes(data))) == "worked"


def test_cases_are_the_same_every_time():
    for door in DOORS:
        assert door.odd(Random("1")) == door.odd(Random("1")), door.name
