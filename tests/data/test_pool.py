"""A pool on disk: what is saved is found again, and whatever has changed is named."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from semishot.data import pool as image_pool
from semishot.data.pool import (
    ImageClass,
    ImagePool,
    changed_classes,
    data_root,
    open_pool,
    save_pool,
)
from semishot.errors import InputError

CLASSES = (
    ImageClass("alpha", "Greek", "train", 0, 2),
    ImageClass("бэ", "Cyrillic", "train", 2, 4),
    ImageClass("alpha", "Klingon", "test", 6, 3),
)


def images() -> np.ndarray:
    """(9, 2, 5, 6): a different size for each axis."""
    return np.random.default_rng(1).integers(0, 256, (9, 2, 5, 6), dtype=np.uint8)


def saved(folder: Path, pixels: np.ndarray | None = None, classes=CLASSES) -> ImagePool:
    return save_pool(folder, "small", images() if pixels is None else pixels, classes, {"seed": 1})


def refusal(folder: Path) -> str:
    """The one line with which a pool is refused."""
    with pytest.raises(InputError) as caught:
        open_pool(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_round_trip(tmp_path):
    saved(tmp_path / "pool")
    pool = open_pool(tmp_path / "pool")
    assert pool.name == "small"
    assert pool.about == {"seed": 1}
    assert np.array_equal(pool.images, images())
    assert tuple(replace(c, digest="") for c in pool.classes) == CLASSES
    assert changed_classes(pool) == []


def test_fingerprint_notices_each_change(tmp_path):
    pixels = images()
    pixels[8, 1, 4, 5] ^= 1
    first, second, third = CLASSES
    variants = {
        "as it is": saved(tmp_path / "0"),
        "one bit of the last pixel": saved(tmp_path / "1", pixels),
        "a name": saved(tmp_path / "2", None, (replace(first, name="beta"), second, third)),
        "a group": saved(tmp_path / "3", None, (replace(first, group="Latin"), second, third)),
        "a split": saved(tmp_path / "4", None, (replace(first, split="val"), second, third)),
        "a count": saved(tmp_path / "5", None, (replace(first, count=1), second, third)),
        "the order": saved(tmp_path / "6", None, (second, first, third)),
        "a class less": saved(tmp_path / "7", None, (first, second)),
    }
    assert len({pool.fingerprint for pool in variants.values()}) == len(variants)


@pytest.mark.parametrize("place", [0, 8])
def test_a_flipped_byte_is_found_and_its_class_named(tmp_path, place):
    saved(tmp_path / "pool")
    (owner,) = [c for c in CLASSES if c.start <= place < c.start + c.count]
    path = tmp_path / "pool" / "images.npy"
    content = bytearray(path.read_bytes())
    per_image = 2 * 5 * 6
    content[len(content) - (9 - place) * per_image + 17] ^= 0x80  # a pixel of image `place`
    path.write_bytes(content)
    pool = open_pool(tmp_path / "pool")
    assert changed_classes(pool) == [f"{owner.split}/{owner.group}/{owner.name}"]


def test_missing_pool_says_how_to_make_it(tmp_path):
    line = refusal(tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in line
    assert "semishot data prepare" in line


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"format": 42}, "format: invalid enum value 42"), ({"fingerprint": "0"}, "was altered")],
)
def test_a_damaged_pool_json_is_refused(tmp_path, change, problem):
    saved(tmp_path / "pool")
    path = tmp_path / "pool" / "pool.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **change}))
    line = refusal(tmp_path / "pool")
    assert line.startswith("damaged image pool in")
    assert problem in line


def test_data_root_is_the_argument_else_the_variable_else_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMISHOT_DATA", str(tmp_path / "variable"))
    assert data_root(tmp_path / "argument") == tmp_path / "argument"
    assert data_root() == tmp_path / "variable"
    monkeypatch.setenv("SEMISHOT_DATA", "")
    monkeypatch.setattr(image_pool, "user_cache_dir", lambda name: str(tmp_path / name))
    assert data_root() == tmp_path / "semishot"
