"""Each data set's file declares how images are framed; a fleet saves it and its encoder uses it."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from semishot import datasets
from semishot.data.episodes import EpisodeShape
from semishot.data.framing import Ink, Middle, Whole
from semishot.data.pool import ImagePool, save_pool
from semishot.image_encoders import load_encoder, open_encoder, save_encoder
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.training.fleets import load_model
from support.fleets import train_fleet

CPU = torch.device("cpu")
RECIPE = Recipe(updates=2, filters=4)
SHAPE = EpisodeShape(way=2, unlabeled=1)
MEMBERS = (Member("soft_kmeans", 0), Member("soft_kmeans", 1))
CIRCLES = """
from functools import partial
from semishot.data.framing import Middle
FRAMING = partial(Middle, share=0.5)
"""


def pool_of(name: str, *shape: int) -> ImagePool:
    return ImagePool(name, np.zeros((1, *shape), np.uint8), ())


def test_every_data_set_declares_its_framing():
    drawing, photograph = (1, 28, 28), (3, 84, 84)
    declared = {
        "glyphs": (drawing, Ink()),
        "omniglot": (drawing, Ink()),
        "mini-imagenet": (photograph, Whole(84, 84)),
        "tiered-imagenet": (photograph, Whole(84, 84, bicubic=True)),
        "cub": (photograph, Whole(84, 84)),
        "cifar-fs": ((3, 32, 32), Whole(32, 32)),
        "fc100": ((3, 32, 32), Whole(32, 32)),
    }
    assert {*declared, "folder"} == set(datasets.names())
    for name, (shape, framing) in declared.items():
        assert datasets.framing(pool_of(name, *shape)) == framing
    assert datasets.framing(pool_of("folder", *drawing)) == Whole(28, 28, 1)
    assert datasets.framing(pool_of("folder", *photograph)) == Whole(84, 84)
    assert datasets.framing(pool_of("of a test", *drawing)) is None


@pytest.fixture
def circles(tiny_pool, tmp_path, monkeypatch):
    """A data set that is one more file, and its pool."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "circles.py").write_text(CIRCLES)
    monkeypatch.setattr(datasets, "__path__", [*datasets.__path__, str(tmp_path / "package")])
    return save_pool(tmp_path / "circles", "circles", tiny_pool.images, tiny_pool.classes, {})


def test_a_data_set_added_as_one_file_is_framed_as_it_declares(circles, tmp_path):
    config = FleetConfig("circles", circles.fingerprint, "tiny", RECIPE, SHAPE, MEMBERS)
    folder = tmp_path / "runs" / config.name
    train_fleet(config, circles, folder)
    encoder = open_encoder(f"{folder}#1")
    assert encoder.prepare == Middle(28, 28, 0.5, channels=1)
    image = Image.fromarray(np.arange(100 * 100, dtype=np.uint16).reshape(100, 100) // 40)
    assert (encoder.prepare(image) == Middle(28, 28, 0.5, channels=1)(image)).all()
    save_encoder(encoder, tmp_path / "model")
    again = load_encoder(tmp_path / "model")
    assert again is not None
    assert (again.prepare, again.identity) == (encoder.prepare, encoder.identity)
    read = load_model(folder, CPU)[0]
    assert read == config
    assert read.name == config.name
    assert "framing" not in json.loads((folder / "config.json").read_text())
