"""Fixtures for `semishot label`: drawings, a request for them, and a client of a server in this process."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from semishot.label.requests import LabelRequest
from support.labeling import Client, serving
from support.own_images import folders


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
    """The same for a copy of the drawings that are not in subfolders, which the test may change."""
    pile = tmp_path / "pile"
    pile.mkdir()
    for path in asked.pile.glob("*.png"):
        shutil.copy(path, pile)
    return replace(asked, pile=pile)


@pytest.fixture
def client(asked) -> Iterator[Client]:
    with serving(asked) as (_, opened_client):
        opened_client.until(lambda state: state["rows"] == 48)
        yield opened_client
