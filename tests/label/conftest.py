"""Fixtures for `semishot label`: drawings, a request for them, and a client of a server in this process."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from semishot.label import LabelRequest
from support.labeling import Client, serving
from support.own_images import draw, folders, save


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where known browsers are kept, in this process and in those it starts."""
    before = os.environ.get("XDG_STATE_HOME")
    folder = tmp_path_factory.mktemp("state")
    os.environ["XDG_STATE_HOME"] = str(folder)
    yield folder
    os.environ.pop("XDG_STATE_HOME")
    if before is not None:
        os.environ["XDG_STATE_HOME"] = before


@pytest.fixture(scope="session")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """labeled/CLASS, and a pile of circles, crosses, stripes and dots."""
    return folders(tmp_path_factory.mktemp("drawings"), pile=12, strangers=12)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def asked(drawings, cache, tmp_path) -> LabelRequest:
    """A request for the drawings, with an OUT of its own."""
    return LabelRequest(
        drawings[1], out=tmp_path / "out", encoder="omniglot", cache=cache, device="cpu"
    )


@pytest.fixture
def asked_own(asked, tmp_path) -> LabelRequest:
    """The same for a copy of the drawings, all in one folder, which the test may change."""
    pile = tmp_path / "pile"
    pile.mkdir()
    for path in asked.pile.rglob("*.png"):
        shutil.copy(path, pile)
    return replace(asked, pile=pile)


@pytest.fixture
def asked_few(asked, tmp_path) -> LabelRequest:
    """The same for three images, which the test may change."""
    pile = tmp_path / "pile"
    for number in range(3):
        save(draw("cross", number), pile / f"{number}.png")
    return replace(asked, pile=pile)


@pytest.fixture
def client(asked) -> Iterator[Client]:
    with serving(asked, 48) as (_, opened_client):
        yield opened_client


@pytest.fixture
def few(asked_few) -> Iterator[Client]:
    with serving(asked_few, 3) as (_, opened_client):
        yield opened_client
