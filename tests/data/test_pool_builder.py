"""Pools of any size: built by all cores, the same as in memory, and resumed after a kill."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from semishot.data import pool_builder
from semishot.data.image_sources import ByteRange, WholeFile
from semishot.data.pool import ImageClass, open_pool, save_pool
from semishot.data.pool_builder import PlannedClass, PoolPlan, build_pool
from semishot.errors import InputError
from support.planned_pool import CLASSES, SHAPE, first_byte, numbered, read

KILLED = """
import sys, time
from functools import partial
from pathlib import Path
from semishot.data import pool_builder
from semishot.data.pool_builder import PoolPlan
from support.planned_pool import CLASSES, SHAPE, read
pool_builder.BATCH = 2
if __name__ == "__main__":
    slow = partial(read, log=sys.argv[2], seconds=float(sys.argv[3]))
    pool_builder.build_pool(Path(sys.argv[1]), PoolPlan("made", SHAPE, CLASSES, slow), workers=1)
"""


@pytest.fixture
def in_memory(tmp_path):
    images = np.stack([read(source) for source in numbered(0, 21)])
    starts = [0, 7, 10]
    classes = [
        ImageClass(p.name, p.group, p.split, start, len(p.sources))
        for p, start in zip(CLASSES, starts, strict=True)
    ]
    return save_pool(tmp_path / "in memory", "made", images, classes, {})


def test_a_built_pool_is_the_one_saved_from_memory(tmp_path, in_memory, monkeypatch):
    monkeypatch.setattr(pool_builder, "BATCH", 4)
    built = build_pool(tmp_path / "built", PoolPlan("made", SHAPE, CLASSES, read), workers=2)
    assert built.fingerprint == in_memory.fingerprint
    assert (built.images == in_memory.images).all()
    assert sorted(p.name for p in (tmp_path / "built").iterdir()) == ["images.npy", "pool.json"]
    assert not list(tmp_path.glob(".*"))


def test_a_damaged_image_ends_the_build_and_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match="image 12 is damaged"):
        build_pool(
            tmp_path / "built", PoolPlan("made", SHAPE, CLASSES, partial(read, bad="12")), workers=1
        )
    assert list(tmp_path.iterdir()) == []


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_a_killed_build_goes_on_where_it_stopped(tmp_path, in_memory):
    script, folder = tmp_path / "killed.py", tmp_path / "built"
    script.write_text(KILLED)
    arguments = [sys.executable, str(script), str(folder)]
    first = subprocess.Popen([*arguments, str(tmp_path / "first"), "0.15"])
    while len(lines(tmp_path / "first")) < 8:
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not folder.exists()
    subprocess.run([*arguments, str(tmp_path / "second"), "0"], check=True)
    assert 0 < len(lines(tmp_path / "second")) < 21  # what was done was not done again
    assert open_pool(folder).fingerprint == in_memory.fingerprint


def interrupted(folder: Path, plan: PoolPlan) -> Path:
    """A build that was killed after its first batch, whose pixels are wrong: only a new one is right."""
    with pytest.raises(KeyboardInterrupt), pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool_builder, "write_description", Mock(side_effect=KeyboardInterrupt))
        build_pool(folder, plan, workers=1)
    (building,) = folder.parent.glob(".*.building")
    np.load(building / "images.npy", mmap_mode="r+")[:] = ord("7")
    return building


@pytest.mark.parametrize("kind", [WholeFile, lambda path: ByteRange(path, "a part", 0, 1)])
def test_a_build_continues_only_with_the_files_it_started_from(tmp_path, kind):
    """Edited under the same name, with as many bytes, they are other files."""
    path, folder = tmp_path / "image", tmp_path / "built"
    path.write_bytes(b"1")
    plan = PoolPlan(
        "made", SHAPE, [PlannedClass("a", "g", "train", (kind(str(path)),))], first_byte
    )
    interrupted(folder, plan)
    path.write_bytes(b"2")
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert (build_pool(folder, plan).images == ord("2")).all()
    assert not list(tmp_path.glob(".*"))
