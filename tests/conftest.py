"""Fixtures: one CPU thread, a Ray cluster, and a small learnable pool that stands where the glyphs would."""

import ctypes
import fcntl
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from semishot.data.pool import ImageClass, ImagePool, Split, open_pool, save_pool
from support.browser import CHROMIUM, Browser

TINY_CLASSES: dict[Split, int] = {"train": 30, "val": 8, "test": 12}
TINY_IMAGES = 20
TESTS = str(Path(__file__).parent)
THOROUGH_FILES = {
    *(
        "fuzz",
        "workers",
        "promises",
        "test_export",
        "test_extremes",
        "test_glyphs",
        "test_ablations",
    ),
    *("test_on_workers", "test_embedding_on_workers", "test_pool_builder", "test_reproduce"),
    "test_tensorboard",
}
"""Folders and files that `make quick` leaves out, but for the test of the rooms: they start processes or
train for seconds."""
THOROUGH_FIXTURES = {"browser", "cluster", "demo", "real"}
GRACE_SECONDS = 10.0
"""For processes that are just ending."""
TRACKER = "from multiprocessing.resource_tracker"
"""Python's own: it ends with this process."""
ADOPT_ORPHANS = 36
"""Linux's PR_SET_CHILD_SUBREAPER."""
# Ray reads both when it is first imported, whichever test that is; no token is left in the home folder
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        names = {item.path.parent.name, item.path.stem}
        left_out = names & THOROUGH_FILES and item.path.stem != "test_rooms"
        if left_out or fixtures & THOROUGH_FIXTURES:
            item.add_marker("thorough")


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left() -> Iterator[None]:
    """A training that continues after its test would slow down everything that follows."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1)
    yield
    until = time.monotonic() + GRACE_SECONDS
    while (left := descendants(os.getpid())) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left, f"processes are left: {left}"


def descendants(process: int) -> dict[int, str]:
    """The command lines of all processes below this one that still run."""
    parents: dict[int, list[int]] = {}
    commands = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:2]
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            parents.setdefault(int(parent), []).append(int(folder.name))
            commands[int(folder.name)] = command[:200]
    found, waiting = {}, [process]
    while waiting:
        for child in parents.get(waiting.pop(), []):
            found[child] = commands[child]
            waiting.append(child)
    return {pid: said for pid, said in found.items() if TRACKER not in said}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def support_for_processes() -> None:
    """Scripts and workers that tests start find `support` too."""
    known = [TESTS, os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, known))


def tiny_images(generator: np.random.Generator, classes: int) -> np.ndarray:
    """(classes * 20, 1, 28, 28): a blocky pattern per class, moved and covered with noise per image."""
    patterns = generator.integers(0, 2, (classes, 1, 7, 7)).repeat(4, axis=2).repeat(4, axis=3)
    images = patterns.repeat(TINY_IMAGES, axis=0) * 160  # (I, 1, 28, 28)
    for image, shift in zip(images, generator.integers(-1, 2, (len(images), 2)), strict=True):
        image[:] = np.roll(image, shift, axis=(1, 2))
    return (images + generator.integers(0, 90, images.shape)).astype(np.uint8)


@pytest.fixture(scope="session")
def tiny_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root whose `glyphs` are the tiny pool. Read only: copy it before damaging it."""
    root = tmp_path_factory.mktemp("data root")
    classes = [
        ImageClass(f"{split}{i:02}", f"group{i % 3}", split, 0, TINY_IMAGES)
        for split, count in TINY_CLASSES.items()
        for i in range(count)
    ]
    placed = [
        ImageClass(c.name, c.group, c.split, place * TINY_IMAGES, c.count)
        for place, c in enumerate(classes)
    ]
    images = tiny_images(np.random.default_rng(7), len(placed))
    save_pool(root / "glyphs", "glyphs", images, placed, {"made": "by tests/conftest.py"})
    return root


@pytest.fixture(scope="session")
def tiny_pool(tiny_root: Path) -> ImagePool:
    return open_pool(tiny_root / "glyphs")


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real Ray with a head that takes no work; tests add the machines that do."""
    if find_spec("ray") is None:
        pytest.skip("the extra `ray` is not installed")
    from semishot.workers.ray_cluster import import_ray

    ray = import_ray()
    from ray.cluster_utils import Cluster

    lock = tmp_path_factory.getbasetemp().parent / "ray.lock"  # of all processes that test
    with one_at_a_time(lock):  # it looks for a free port, and takes it later
        made = Cluster(True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for all tests; each opens a context of its own."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def browser(chromium: Any) -> Iterator[Browser]:
    opened = Browser(chromium)
    yield opened
    opened.close()
