"""The report in a real Chromium: quiet, alone, painted, on a phone, in the dark, on paper."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from semishot.data.episodes import EpisodeShape
from semishot.report.page import write_report
from semishot.training.config import FleetConfig, Member, Recipe
from semishot.training.fleets import build_fleet, save_model
from semishot.training.records import read_records
from semishot.training.run_folder import append_log

PUBLISHED = Path(__file__).parents[2] / "results"
TABLE1 = PUBLISHED / "omniglot" / "table1-ren2018.json"


@pytest.fixture(scope="module")
def page(tmp_path_factory, tiny_root, tiny_pool) -> Path:
    """Published results of every kind, with a fleet's curves and episodes beside them."""
    folder = tmp_path_factory.mktemp("results")
    for path in PUBLISHED.glob("*/*.json"):
        (folder / path.parent.name).mkdir(exist_ok=True)
        (folder / path.parent.name / path.name).write_text(path.read_text())
    run = folder / "glyphs" / "ren2018" / "fleet"
    members = (Member("soft_kmeans", 0), Member("masked_soft_kmeans", 0))
    recipe, shape = Recipe(updates=2, filters=4, init_std=0.1), EpisodeShape(distractors=5)
    config = FleetConfig("glyphs", tiny_pool.fingerprint, "ren2018", recipe, shape, members)
    save_model(run / "model.safetensors", config, build_fleet(members, recipe, 1).eval())
    (run / "config.json").write_text(config.to_json())
    for step in (100, 200, 300):
        append_log(run, step, 1e-3, [1.5 - step / 300, 1.4 - step / 300])
    own = read_records(TABLE1)[0] | {"dataset": "glyphs", "model": "masked_soft_kmeans"}
    (run / "result.json").write_text(json.dumps([own]))
    write_report(folder, folder / "report.html", tiny_root)
    return folder / "report.html"


@pytest.mark.parametrize("width", [390, 1280, 1920])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_is_quiet_alone_and_no_wider_than_the_screen(browser, page, width, dark):
    browser.size(width, 900, dark, phone=width < 500)
    browser.open(page)
    browser.assert_quiet(page)
    assert browser.run("document.documentElement.scrollWidth") == width
    with Image.open(io.BytesIO(browser.page.screenshot())) as image:
        pixels = np.array(image.convert("L"))
    assert (np.median(pixels) < 60) == dark
    assert pixels.max() - pixels.min() > 180  # ink that can be told from paper


def test_every_figure_is_painted(browser, page):
    browser.size(1280, 900)
    browser.open(page)
    drawn = browser.run(
        """[...document.querySelectorAll("svg.chart")].map((svg) => {
          const frame = svg.getBoundingClientRect();
          const inside = [...svg.querySelectorAll(".line, .marks, text")].every((mark) => {
            const box = mark.getBoundingClientRect();
            return box.width + box.height > 0 && box.left >= frame.left - 1 &&
              box.right <= frame.right + 1 && box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1;
          });
          const stroke = getComputedStyle(svg.querySelector(".line")).stroke;
          return [svg.querySelectorAll(".line").length / 2, inside, stroke.startsWith("rgb")];
        })"""
    )
    # accuracy over unlabeled images, 2 and 2 x 2; masks, 2 for each kind of images; a curve
    assert len(drawn) == 11
    assert all(lines >= 2 and inside and stroke for lines, inside, stroke in drawn)
    images = browser.run(
        """[...document.querySelectorAll(".picture image")].map((image) =>
          [image.getBoundingClientRect().width, image.parentElement.textContent.trim()])"""
    )
    assert len(images) == 2 * (5 + 30 + 15)
    assert all(width > 20 and about for width, about in images)


def test_on_paper_everything_is_open_and_the_list_of_sections_is_gone(browser, page):
    browser.size(1280, 900, dark=True)
    browser.open(page)
    shown = "[...document.querySelectorAll('main dl')].filter((e) => e.checkVisibility()).length"
    assert browser.run(shown) == 0
    assert browser.run("document.querySelector('nav ol').checkVisibility()")
    browser.page.emulate_media(media="print")
    assert browser.run(shown) == browser.run("document.querySelectorAll('main dl').length") > 0
    assert browser.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
