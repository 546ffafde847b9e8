"""The embedded data set keeps its promises: counts, splits, determinism, variety, difficulty."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from semishot.data.pool import ImagePool
from semishot.datasets import glyphs


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> ImagePool:
    return glyphs.prepare(tmp_path_factory.mktemp("data") / "glyphs")


def by_alphabet(pool: ImagePool) -> dict[str, list[np.ndarray]]:
    """The drawings (20, 28, 28) of each class, by alphabet."""
    found = defaultdict(list)
    for c in pool.classes:
        found[c.group].append(pool.images[c.start : c.start + c.count, 0])
    return found


def blurred(images: np.ndarray) -> np.ndarray:
    """Unit vectors of images seen from afar: (..., 28, 28) -> (..., 196)."""
    seen = images.reshape(*images.shape[:-2], 14, 2, 14, 2).mean((-3, -1))
    flat = seen.reshape(*images.shape[:-2], 196)
    return flat / np.linalg.norm(flat, axis=-1, keepdims=True)


def test_forty_alphabets_of_about_twenty_characters_by_twenty_drawers(pool):
    alphabets = by_alphabet(pool)
    assert len(alphabets) >= 40
    assert all(10 <= len(characters) <= 30 for characters in alphabets.values())
    assert 800 <= len(pool.classes) <= 1000
    assert {c.count for c in pool.classes} == {20}
    assert pool.images.shape == (20 * len(pool.classes), 1, 28, 28)


def test_no_alphabet_crosses_a_split_and_all_splits_have_enough(pool):
    splits = defaultdict(set)
    for c in pool.classes:
        splits[c.group].add(c.split)
    assert all(len(of_one) == 1 for of_one in splits.values())
    held = [split for of_one in splits.values() for split in of_one]
    assert held.count("train") >= 25
    assert held.count("val") >= 5
    assert held.count("test") >= 10


def test_every_image_has_ink_and_a_white_edge(pool):
    images = pool.images[:, 0]
    assert images.max() == 255
    assert (images > 200).any((1, 2)).all()  # a thin line may fill no pixel wholly
    inked = (images > 0).mean((1, 2))
    assert inked.min() > 0.02
    assert inked.max() < 0.6
    edge = np.ones((28, 28), dtype=bool)
    edge[1:-1, 1:-1] = False
    assert not images[:, edge].any()


def test_same_seed_same_bytes_and_fewer_alphabets_are_a_prefix(pool):
    images, classes = glyphs.draw(glyphs.SEED, alphabets=3)
    again, _ = glyphs.draw(glyphs.SEED, alphabets=3)
    assert images.tobytes() == again.tobytes()
    assert images.tobytes() == pool.images[: len(images)].tobytes()
    assert [c.name for c in classes] == [c.name for c in pool.classes[: len(classes)]]


def test_no_two_characters_of_an_alphabet_are_nearly_identical(pool):
    for characters in by_alphabet(pool).values():
        means = blurred(np.stack([drawings.mean(0) for drawings in characters]))
        alike = means @ means.T - 2 * np.eye(len(means))
        assert alike.max() < 0.95


def test_the_picture_of_the_documents_is_of_these_drawings(pool):
    """Black on white: four alphabets side by side, a row per character, a column per drawer."""
    found = by_alphabet(pool)
    blocks = []
    for alphabet in ("alphabet03", "alphabet07", "alphabet18", "alphabet31"):
        rows = [np.hstack([*drawings[:8]]) for drawings in found[alphabet][:8]]
        blocks.append(np.pad(np.vstack(rows), 14))
    with Image.open(Path(__file__).parents[2] / "docs" / "glyphs.png") as picture:
        assert (np.asarray(picture.convert("L")) == 255 - np.hstack(blocks)).all()
