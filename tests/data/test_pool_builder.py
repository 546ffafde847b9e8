"""Pools of any size: built by all cores, the same as in memory, and resumed when interrupted."""

import os
from pathlib import Path

import numpy as np
import pytest

from semishot.data import pool_builder
from semishot.data.image_sources import ByteRange, WholeFile
from semishot.data.pool import ImageClass, save_pool
from semishot.data.pool_builder import PlannedClass, PoolPlan, build_pool
from semishot.errors import InputError

SHAPE = (3, 4, 5)
SOURCES = tuple(WholeFile(str(number)) for number in range(21))
CLASSES = [
    PlannedClass("a", "g", "train", SOURCES[:7]),
    PlannedClass("b", "g", "val", SOURCES[7:10]),
    PlannedClass("c", "h", "test", SOURCES[10:]),
]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(pool_builder, "BATCH", 4)


def read(source: WholeFile) -> np.ndarray:
    """An image of its own."""
    return np.full(SHAPE, int(source.path), np.uint8) + np.arange(60, dtype=np.uint8).reshape(SHAPE)


def failing(at: str, error: BaseException) -> PoolPlan:
    def read_or_fail(source: WholeFile) -> np.ndarray:
        if source.path == at:
            raise error
        return read(source)

    return PoolPlan("made", SHAPE, CLASSES, read_or_fail)


def test_a_built_pool_is_the_one_saved_from_memory_also_after_an_interruption(tmp_path):
    starts = [0, 7, 10]
    classes = [
        ImageClass(p.name, p.group, p.split, start, len(p.sources))
        for p, start in zip(CLASSES, starts, strict=True)
    ]
    images = np.stack([read(source) for source in SOURCES])
    saved = save_pool(tmp_path / "saved", "made", images, classes, {})
    with pytest.raises(KeyboardInterrupt):
        build_pool(tmp_path / "built", failing("14", KeyboardInterrupt()), workers=1)
    assert not (tmp_path / "built").exists()
    # the same plan; what was read is not read again
    built = build_pool(tmp_path / "built", failing("3", KeyboardInterrupt()), workers=2)
    assert built.fingerprint == saved.fingerprint
    assert (built.images == saved.images).all()
    assert sorted(p.name for p in (tmp_path / "built").iterdir()) == ["images.npy", "pool.json"]
    assert not list(tmp_path.glob(".*"))


def test_a_damaged_image_ends_the_build_and_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match="image 12 is damaged"):
        build_pool(tmp_path / "built", failing("12", InputError("image 12 is damaged")), workers=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [WholeFile, lambda path: ByteRange(path, "a part", 0, 1)])
def test_a_build_continues_only_with_the_files_it_started_from(tmp_path, kind):
    """Edited under the same name, with as many bytes, they are other files."""
    path, seen = tmp_path / "image", []

    def first_byte(source: WholeFile) -> np.ndarray:
        if len(seen) == 4:
            seen.append(source)
            raise KeyboardInterrupt
        seen.append(source)
        return np.full(SHAPE, Path(source.path).read_bytes()[0], np.uint8)

    path.write_bytes(b"1")
    plan = PoolPlan(
        "made", SHAPE, [PlannedClass("a", "g", "train", (kind(str(path)),) * 6)], first_byte
    )
    with pytest.raises(KeyboardInterrupt):
        build_pool(tmp_path / "built", plan, workers=1)
    path.write_bytes(b"2")
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert (build_pool(tmp_path / "built", plan).images == ord("2")).all()
    assert not list(tmp_path.glob(".*"))
