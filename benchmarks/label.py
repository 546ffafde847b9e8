"""From a key to the pile judged and drawn anew, in Chromium: `semishot label` on piles of 10,000 and 100,000.

Random images of 8 x 8 pixels with made-up features in the cache: nothing is encoded. A pile is labeled from
nothing to eight classes, then answers are given by key, one at a time, to what is worth asking and in the
overview. The time is measured in the page, from the key to the frame after the new state was drawn. The start
is measured from the command to the first image on the screen, when the pile has been opened before.
"""

import hashlib
import io
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from measurement import command, result
from semishot.image_encoders import open_encoder
from semishot.sorter.embedding_cache import PIXELS, EmbeddingCache, ImageLook

CLASSES, KINDS, ENCODER, IMAGES = 8, 12, "omniglot", (10_000, 100_000)
CLOCK = """() => {
  window.clock = { key: 0, drawn: 0, version: 0 };
  document.addEventListener("answered", () => {
    Object.assign(clock, { key: performance.now(), drawn: 0, version: semishot.version });
  });
  document.addEventListener("drawn", () => {
    if (!clock.key || clock.drawn || semishot.version === clock.version) return;
    requestAnimationFrame(() => setTimeout(() => { clock.drawn = performance.now(); }, 0));
  });
}"""


def make_pile(root: Path, images: int) -> None:
    """PILE of random images of some kinds, whose features are in CACHE already."""
    rng = np.random.default_rng(0)
    opened = open_encoder(ENCODER)
    cache = EmbeddingCache(root / "cache", opened.identity, opened.features)
    centers = rng.standard_normal((KINDS, opened.features)).astype(np.float32)
    (root / "pile").mkdir()
    for number in range(images):
        kind, file = number % KINDS, io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(file, "png")
        (root / "pile" / f"{kind}-{number}.png").write_bytes(file.getvalue())
        features = centers[kind] + 0.9 * rng.standard_normal(opened.features).astype(np.float32)
        look = rng.integers(0, 256, PIXELS, np.uint8).tobytes()
        cache.add(hashlib.sha256(file.getvalue()).digest(), features, ImageLook(look))
    cache.flush()


@contextmanager
def server(root: Path) -> Iterator[tuple[int, str]]:
    """The command in a process: its number, and the address it prints."""
    words = ["label", root / "pile", "--out", root / "out", "--cache", root / "cache"]
    words += ["--encoder", ENCODER, "--device", "cpu", "--no-browser"]
    start = [sys.executable, "-m", "semishot", *map(str, words)]
    with subprocess.Popen(start, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout.readline().strip()
        finally:
            process.terminate()


def memory_mib(process: int) -> float:
    text = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    found = re.search(r"VmHWM:\s+(\d+)", text)
    assert found is not None
    return int(found[1]) / 1024


def until(page: Page, script: str, argument: object = None) -> Any:
    """What the script returns, once that is true."""
    end = time.monotonic() + 600
    while not (found := page.evaluate(script, argument)):
        if time.monotonic() > end:
            raise SystemExit(f"the page has not come to {script}")
        page.wait_for_timeout(5)
    return found


def answer_times(page: Page, place: str, answers: int) -> list[float]:
    """Milliseconds from a key to what follows from it on the screen."""
    page.locator(f'.entry[data-view="{place}"]').click()
    times = []
    for number in range(answers):
        page.keyboard.press("Home")
        page.wait_for_timeout(60)
        page.evaluate("clock.key = 0")
        page.keyboard.press(str(number % CLASSES + 1))
        times.append(float(until(page, "clock.drawn ? clock.drawn - clock.key : 0")))
        page.wait_for_timeout(250)  # a person looks at it
    return times


def label(page: Page, images: int, answers: int) -> dict[str, list[float]]:
    until(page, "(images) => window.semishot && semishot.rows >= images", images)
    for number in range(CLASSES):
        page.locator('.entry[data-view="all"]').click()
        page.locator(".tile:not(.confirmed)").nth(number % 3).click()
        page.keyboard.press("n")
        page.keyboard.type(f"kind {number}")
        page.keyboard.press("Enter")
        page.wait_for_selector(f'.entry[data-view="class:{number + 1}"]', timeout=60_000)
        until(page, "semishot.judged()")
    page.evaluate(CLOCK)
    places = {"worth asking": "ask", "overview": "all"}
    return {name: answer_times(page, place, answers) for name, place in places.items()}


def measure(device: Any, quick: bool, images: list[int]) -> dict[str, Any]:
    answers, rows = (3, []) if quick else (60, [])
    load = os.getloadavg()[0]
    for count in [300] if quick else images:
        with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
            root = Path(folder)
            make_pile(root, count)
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            with server(root) as (process, address):
                page.goto(address)
                times = label(page, count, answers)
                held = memory_mib(process)
                page_mib = page.evaluate("performance.memory.usedJSHeapSize") / 2**20
            begun = time.monotonic()
            with server(root) as (_, address):
                page.goto(address)
                page.wait_for_selector(".tile", timeout=60_000)
                start = time.monotonic() - begun
            browser.close()
        for place, taken in times.items():
            rows.append(
                {
                    "images": count,
                    "place": place,
                    "median_ms": statistics.median(taken),
                    "p95_ms": float(np.percentile(taken, 95)),
                    "start_seconds": start,
                    "server_mib": held,
                    "page_mib": page_mib,
                }
            )
    settings = {"answers": answers, "classes": CLASSES, "load_average_before": load}
    return result("label", device, quick, settings, rows)


if __name__ == "__main__":
    piles = {"type": int, "nargs": "+", "default": IMAGES, "help": "how many, of each pile"}
    command("label", measure, images=piles)
