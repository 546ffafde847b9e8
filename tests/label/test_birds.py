"""The whole story in Chromium with photographs of birds: from no labels to a sorting that is undone."""

import os
import re
import signal
import zipfile
from contextlib import ExitStack
from importlib.util import find_spec

import pytest

from semishot.label.requests import LabelRequest
from support.browser import CHROMIUM
from support.label_page import Tab, process
from support.real_data import REAL_DATA

BIRDS = REAL_DATA / "birds" / "birds40.zip"
EACH, STRANGERS = 8, 8
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
    pytest.mark.skipif(not BIRDS.exists(), reason=f"there is no {BIRDS}"),
    pytest.mark.skipif(find_spec("efficientnet_lite_pytorch") is None, reason="without `photos`"),
]
KINDS = {"goldfinch": "Goldfinch", "puffin": "Puffin", "waxwing": "Waxwing"}


@pytest.fixture
def asked(tmp_path):
    """A pile of three kinds and some strangers: KIND-NUMBER.jpg."""
    pile = tmp_path / "pile"
    pile.mkdir()
    with zipfile.ZipFile(BIRDS) as birds:
        species = {}
        for name in sorted(name for name in birds.namelist() if name.endswith(".jpg")):
            species.setdefault(name.split("/")[1], []).append(name)
        chosen = {kind: next(s for s in species if word in s) for kind, word in KINDS.items()}
        others = [s for s in species if not any(word in s for word in KINDS.values())]
        for kind, one in chosen.items():
            for number, name in enumerate(species[one][:EACH]):
                (pile / f"{kind}-{number}.jpg").write_bytes(birds.read(name))
        for number in range(STRANGERS):
            name = species[others[number % len(others)]][0]
            (pile / f"other-{number}.jpg").write_bytes(birds.read(name))
    return LabelRequest(pile, out=tmp_path / "out", device="cpu")


def kind_of(label):
    return re.match(r"(\w+)-", label)[1]


@pytest.mark.slow
def test_birds_from_no_labels_to_a_sorting_that_is_undone(chromium, asked):
    before = {path.name: path.read_bytes() for path in asked.pile.iterdir()}
    total = len(before)
    context = chromium.new_context(viewport={"width": 1280, "height": 1800})
    with ExitStack() as stack:
        stack.callback(context.close)
        with process(asked) as (server, address):
            tab = Tab(context.new_page())
            tab.page.goto(address)
            tab.page.wait_for_selector(".tile", timeout=60_000)
            tab.wait("(total) => window.semishot.rows === total", total, 60)
            for kind in list(KINDS)[:2]:
                tab.new_class(kind, f"{kind}-0.jpg", f"{kind}-1.jpg")
            os.kill(server.pid, signal.SIGKILL)  # and the page goes on
            server.wait()
        with process(asked, int(address.split(":")[2].split("/")[0])):
            tab.page.wait_for_selector("#banner", state="hidden", timeout=60_000)
            tab.settle()
            tab.new_class("waxwing", "waxwing-0.jpg", "waxwing-1.jpg")
            assert tab.classes() == list(KINDS)
            answer_what_is_asked(tab, 10)
            guessed_right(tab)
            other = Tab(context.new_page()).open(tab.page.url)
            other.settle()
            assert other.classes() == list(KINDS)
            other.page.close()
            tab.page.bring_to_front()
            sort_and_undo(tab, asked, before)
    assert tab.quiet() == []


def answer_what_is_asked(tab, count):
    """As a person would: by the keys of the classes, and 0."""
    tab.go("ask")
    for _ in range(count):
        tab.settle()
        if not tab.page.locator(".tile").count():
            return
        tab.press("Home")
        tab.wait("document.querySelector('.tile.cursor').title !== ''")
        kind = kind_of(tab.page.locator(".tile.cursor").get_attribute("aria-label"))
        tab.press(str(list(KINDS).index(kind) + 1) if kind in KINDS else "0")
    tab.settle()


def guessed_right(tab):
    right = []
    tab.show(".jpg")
    tab.wait("[...document.querySelectorAll('.tile')].every((tile) => tile.title)")
    for label in tab.page.evaluate(
        "[...document.querySelectorAll('.tile')].map((tile) => tile.getAttribute('aria-label'))"
    ):
        kind = kind_of(label)
        right.append((kind if kind in KINDS else "none of these") in label)
    assert len(right) == EACH * len(KINDS) + STRANGERS
    assert sum(right) / len(right) > 0.85


def sort_and_undo(tab, asked, before):
    page, folder = tab.page, asked.folder / "sorted"
    page.click("#finish")
    page.check('input[name="how"][value="move"]')
    tab.wait("document.getElementById('apply').textContent.startsWith('Move')")
    page.click("#apply")
    page.wait_for_selector("#sorted-now:not([hidden])")
    names = {path.name for path in folder.rglob("*.jpg")}
    assert names == set(before)
    assert {path.name for path in folder.iterdir()} == {*KINDS, "stranger"}
    assert not list(asked.pile.iterdir())
    page.click("#unsort")
    page.wait_for_selector("#sorted-now", state="hidden")
    assert {path.name: path.read_bytes() for path in asked.pile.iterdir()} == before
    assert not folder.exists()
    page.locator("#finish-dialog").evaluate("(box) => box.close()")
