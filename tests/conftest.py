"""Fixtures: one CPU thread, a Ray cluster, a browser, and a small learnable pool in place of the glyphs."""

import os
import re
import secrets
import signal
import sys
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

from semishot.data.pool import ImageClass, ImagePool, open_pool, save_pool
from support.browser import CHROMIUM, Browser
from support.optional_torch import HAS_TORCH, REASON

TINY_CLASSES = {"train": 30, "val": 8, "test": 12}
TINY_IMAGES = 20
TORCH_TESTS = [
    *("network", "paper", "promises", "refine", "training", "workers"),
    *("datasets/test_framing.py", "estimator/test_prototype_rule.py", "report/test_pictures.py"),
    *("report/test_report_in_a_browser.py", "sorter/test_export.py"),
    *("sorter/encoders/test_image_encoder.py", "sorter/encoders/test_onnx_file.py"),
]
SIGNAL_TESTS = [f"commands/test_{name}.py" for name in ("exit_codes", "interrupted", "streams")]
collect_ignore = [
    *([] if HAS_TORCH else TORCH_TESTS),
    *(SIGNAL_TESTS if sys.platform == "win32" else []),
]
"""Without torch, the tests are those of the user's half. On Windows, a signal only ends a process."""
MEANT = re.compile(
    r"(refiner='.+'|`semishot (demo|evaluate|pick|reproduce|show|train)`)"
    " needs PyTorch"
)
ELSEWHERE = re.compile("module '(os|signal)' has no attribute")
TESTS = str(Path(__file__).parent)
# Ray reads both when it is first imported, whichever test that is; no token is left in the home folder
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
# scripts and workers that tests start find `support` too
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [TESTS, os.environ.get("PYTHONPATH", "")]))
if HAS_TORCH:
    import torch

    torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Without torch, a test is skipped if it asks for what is documented to need it; on Windows, if the
    test itself, not what it tests, asks for what `os` or `signal` have elsewhere."""
    report, reason = (yield), None
    if report.failed and not HAS_TORCH and MEANT.search(report.longreprtext):
        reason = REASON
    elif report.failed and call.excinfo is not None and sys.platform == "win32":
        by_test = str(call.excinfo.traceback[-1].path).startswith(TESTS)
        reason = "not on Windows" if by_test and ELSEWHERE.search(str(call.excinfo.value)) else None
    if reason is not None:
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, reason)
    return report


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
    named = [(split, i) for split, count in TINY_CLASSES.items() for i in range(count)]
    classes = [
        ImageClass(f"{split}{i:02}", f"group{i % 3}", split, index * TINY_IMAGES, TINY_IMAGES)
        for index, (split, i) in enumerate(named)
    ]
    images = tiny_images(np.random.default_rng(7), len(classes))
    save_pool(root / "glyphs", "glyphs", images, classes, {"made": "by tests/conftest.py"})
    return root


@pytest.fixture(scope="session")
def tiny_pool(tiny_root: Path) -> ImagePool:
    return open_pool(tiny_root / "glyphs")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real Ray with a head that takes no work; tests add the machines that do."""
    if find_spec("ray") is None:
        pytest.skip("the extra `ray` is not installed")
    from semishot.workers.ray_cluster import import_ray

    ray = import_ray()
    from ray.cluster_utils import Cluster

    lock = tmp_path_factory.getbasetemp().parent / "ray.lock"  # of all processes that test
    with FileLock(lock):  # Ray looks for a free port, and takes it later
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
