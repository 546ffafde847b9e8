"""Pictures of the documentation, from `semishot sample`.

    PYTHONPATH=src:tests python -m support.doc_pictures

Writes docs/sample.jpg, docs/label.webp (moving), and label.png and own_images.png, each light and dark.
It needs Chromium and the extras `photos` and `label`.
"""

import csv
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from support.browser import CHROMIUM

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SIZE = {"width": 1200, "height": 750}
ROWS = 6
"""How many rows of the page get a name in the moving picture: one of each kind."""
NAMES_OF_ROWS = """
[...document.querySelectorAll("button")].filter((b) => b.textContent.includes("Name…")).map((b) => {
  let row = b;
  while (!row.querySelector(".tile")) row = row.parentElement;
  return [...row.querySelectorAll(".tile")].slice(0, 3).map((tile) => tile.title);
})
"""
SEMISHOT = [sys.executable, "-m", "semishot"]


def run(folder: Path, *words: str) -> None:
    subprocess.run([*SEMISHOT, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def truth_of(folder: Path) -> dict[str, str]:
    with (folder / "sample/truth.csv").open() as table:
        return {Path(row["path"]).name: row["label"] for row in csv.DictReader(table)}


def sheet(folder: Path) -> None:
    """Some pictures of each kind in a row, and of other things in the last one."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("sample/*/**/*.jpg"), key=lambda path: path.name):
        kinds.setdefault(truth_of(folder)[path.name], []).append(path)
    width, height = 120, 90
    found = Image.new("RGB", (8 * (width + 6) - 6, len(kinds) * (height + 6) - 6), "white")
    for row, kind in enumerate(sorted(kinds, key=lambda kind: (kind == "stranger", kind))):
        for column, path in enumerate(kinds[kind][:8]):
            small = Image.open(path).resize((width, height), Image.Resampling.LANCZOS)
            found.paste(small, (column * (width + 6), row * (height + 6)))
    found.save(DOCS / "sample.jpg", quality=82)


@contextmanager
def served(folder: Path, *more: str) -> Iterator[str]:
    """The address of `semishot label` on the pile."""
    words = [*SEMISHOT, "label", "sample/pile", "--no-browser", *more]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def until(page: Any, script: str, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not page.evaluate(script):
        assert time.monotonic() < end, script
        time.sleep(0.1)


def ready(page: Any, address: str) -> None:
    page.goto(address)
    until(page, "document.querySelectorAll('.tile').length > 5")
    until(page, "[...document.images].every((image) => image.complete)")
    time.sleep(1)


def labeling(folder: Path, chromium: Any) -> None:
    """Rows get names until the pile is sorted; then a class and the strangers are looked at."""
    truth, frames = truth_of(folder), list[tuple[Image.Image, int]]()
    with served(folder, "--out", "moving") as address:
        page = chromium.new_page(viewport=SIZE)

        def shoot(milliseconds: int) -> None:
            image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            frames.append((image.resize((800, 500), Image.Resampling.LANCZOS), milliseconds))

        ready(page, address)
        until(page, "/ alike/.test(document.body.innerText)")
        until(page, "!/images read/.test(document.body.innerText)")
        time.sleep(2)
        shoot(1800)
        named: set[str] = set()
        for _ in range(ROWS):
            rows = page.evaluate(NAMES_OF_ROWS)
            kinds = [[truth[Path(name.split(",")[0]).name] for name in row] for row in rows]
            most = [max(set(row), key=row.count) for row in kinds]
            index = next(i for i, kind in enumerate(most) if kind not in {*named, "stranger"})
            button = page.locator("button", has_text="Name…").nth(index)
            button.scroll_into_view_if_needed()
            button.click()
            page.keyboard.type(most[index])
            time.sleep(0.4)
            shoot(900)
            page.keyboard.press("Enter")
            named.add(most[index])
            time.sleep(2.5)
            shoot(1000)
        for kind in [*sorted(named)[:2], "Strangers"]:
            page.locator("nav button, aside button", has_text=kind).first.click()
            time.sleep(1.5)
            shoot(1800)
        page.close()
    pictures, times = zip(*frames, strict=True)
    pictures[0].save(
        DOCS / "label.webp", save_all=True, append_images=pictures[1:], duration=list(times), loop=0,
        quality=70, method=6,
    )  # fmt: skip


def screens(folder: Path, chromium: Any) -> None:
    """The page with questions, and the report, in both color schemes."""
    pile = ["--labeled", "sample/labeled", "--unlabeled", "sample/pile"]
    run(folder, "classify", *pile, "--out", "out")
    for scheme, end in (("light", ""), ("dark", "-dark")):
        page = chromium.new_page(viewport=SIZE, color_scheme=scheme)
        page.goto((folder / "out/report.html").as_uri())
        time.sleep(1)
        page.screenshot(path=DOCS / f"own_images{end}.png")
        page.close()
        with served(folder, "--labeled", "sample/labeled", "--out", "out") as address:
            page = chromium.new_page(viewport=SIZE, color_scheme=scheme)
            ready(page, address)
            page.screenshot(path=DOCS / f"label{end}.png")
            page.close()
    for path in [*DOCS.glob("label*.png"), *DOCS.glob("own_images*.png")]:
        Image.open(path).convert("P", palette=Image.Palette.ADAPTIVE).save(path, optimize=True)


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = str(ROOT / "src")
    with tempfile.TemporaryDirectory() as work, sync_playwright() as started:
        folder = Path(work)
        run(folder, "sample", "sample")
        sheet(folder)
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        labeling(folder, opened)
        screens(folder, opened)
