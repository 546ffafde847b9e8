"""The page of a sorted pile: grouped, sorted, escaped, bounded; in a real Chromium by mouse and keyboard."""

import json
import re
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image

from semishot.data.thumbnails import thumbnail
from semishot.sorter.embedding import Rows
from semishot.sorter.learning import FittedPile
from semishot.sorter.listing import Item
from semishot.sorter.page import MOST_DRAWN, MOST_IMAGES, write_page
from semishot.sorter.predictions import Prediction
from sorter.test_summary import summary
from support.commands import printed
from support.own_images import draw, folders, save

HOSTILE = (
    "<script>document.title='taken'</script>\"'><img src=x onerror=\"document.title='taken'\">"
)
CLASSES = ["ant", "bee", HOSTILE + "\n\u202e"]


def picture(seed: int, side: int = 90) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (side // 6, side // 6, 3), np.uint8)
    return thumbnail(Image.fromarray(pixels).resize((side, side)))


def fitted(
    predictions, labeled=(), thumbnails: Callable[[bytes], bytes] | None = None
) -> FittedPile:
    """Images without files, of which there may be thumbnails."""
    items = [*labeled, *(prediction.item for prediction in predictions)]
    rows = Rows(np.empty((0, 0)), items, thumbnail=thumbnails or (lambda digest: b""))
    return FittedPile(rows, None, None, predictions, [])


def item(name: str, label: str | None = None) -> Item:
    """One with its name in place of a digest."""
    return Item(name, label, digest=name.encode(errors="replace"))


def predicted(path: str, *words, stranger: bool) -> Prediction:
    """The last word is the probability of a stranger, halved for members."""
    *words, likely = words
    return Prediction(item(path), *words, stranger, likely if stranger else likely / 2)


def sort_pile(count: int, classes: list[str] = CLASSES) -> list[Prediction]:
    """The last of every seven is a stranger, certainty in no order."""
    sure = np.random.default_rng(0).permutation(count) / count
    return [
        predicted(
            f"pile/{i:06}.jpg",
            classes[i % len(classes)],
            float(0.34 + 0.66 * sure[i]),
            classes[(i + 1) % len(classes)],
            float(sure[-i]),
            stranger=i % 7 == 6,
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sorted")
    images = sort_pile(300)
    hostile = f"{HOSTILE}\r\n\udcff.jpg", CLASSES[2], 0.4, "ant", 0.1
    images[0] = predicted(*hostile, stranger=False)
    labeled = [item(f"{name}/{n}", name) for name in CLASSES for n in (1, 2)]
    labeled.append(item("another", "no image of this"))
    asked = [0, 1, 2, 3, 4, 5, 7, 8, 9, 10]
    about = summary(accepted=dict.fromkeys([*CLASSES, "no image of this"], 1), notes=[HOSTILE])
    path = folder / "report.html"
    small = lambda name: b"" if name.startswith(b"<") else picture(len(name))  # noqa: E731
    write_page(path, fitted(images, labeled, small), asked, about, {})
    return path


def pile_in(page: Path) -> dict:
    """What the script shows."""
    text = page.read_text("utf-8")
    return json.loads(
        re.search(r'<script type="application/json" id="pile">(.*?)</script>', text)[1]
    )


def test_groups_hold_their_images_the_most_certain_first_strangers_apart(page):
    pile, images = pile_in(page), sort_pile(300)
    for group, name in enumerate(CLASSES[:2], 1):
        own = [i for i in images if i.label == name and i != images[0]]
        expected = [i.item.shown for i in sorted(own, key=lambda i: -i.sure)]
        assert [tile[0] for tile in pile["groups"][group]] == expected
    far = sorted((i for i in images if i.stranger), key=lambda i: -i.stranger_probability)
    assert [tile[0] for tile in pile["groups"][-1]] == [i.item.shown for i in far]
    assert [len(pile["groups"][0]), sum(map(len, pile["groups"]))] == [10, 310]
    assert "No image of the pile." in page.read_text("utf-8")


def test_a_huge_pile_makes_a_page_of_its_least_sure_images_and_few_are_read(tmp_path):
    """Many classes, long names and large pictures too; what is left out is said."""
    asked: list[bytes] = []
    noise = np.random.default_rng(0).integers(0, 256, 4000, np.uint8).tobytes()

    def large(name: bytes) -> bytes:
        asked.append(name)
        return noise

    for count, classes in ((110_000, CLASSES), (20_000, [f"{i}" * 40 for i in range(2000)])):
        images = sort_pile(count, classes)
        labeled = [item(f"{name}/{n}", name) for name in classes for n in range(9)]
        asked.clear()
        about = summary(accepted=dict.fromkeys(classes, 1))
        write_page(tmp_path / "page.html", fitted(images, labeled, large), [], about, {})
        assert len(asked) <= MOST_DRAWN
        text = (tmp_path / "page.html").read_text("utf-8")
        shown = sum(map(len, pile_in(tmp_path / "page.html")["groups"]))
        assert 0.99 * min(count, MOST_IMAGES) < shown <= MOST_IMAGES
        assert (" more, the surest, are left out" in text) == (count > MOST_IMAGES)
        assert len(text) < 20_000_000


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
def test_the_page_is_quiet_alone_and_no_wider_than_the_screen(browser, page, width, dark):
    browser.size(width, 900, dark, phone=width < 500)
    browser.open(page)
    browser.assert_quiet(page)
    assert browser.run("document.documentElement.scrollWidth") == width
    assert browser.run("document.title") == "Sorted images"
    assert browser.run("document.scripts.length") == 2
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(251, 250, 248)") == (not dark)
    shown = (
        "[...document.querySelectorAll('.tile img')].map((i) => i.complete && i.naturalWidth > 0)"
    )
    wait_until(lambda: sum(browser.run(shown)) > 3)
    total = browser.run("document.querySelectorAll('.tile').length")
    assert total == 310  # the pile, and what to label next


def test_images_are_narrowed_by_name_and_folder(browser, page):
    browser.size(1280, 900)
    browser.open(page)
    shown = "document.querySelectorAll('.tile').length"
    wait_until(lambda: browser.run(shown) == 310)
    browser.run("search.value = '00007'; search.dispatchEvent(new Event('input'))")
    wait_until(lambda: 0 < browser.run(shown) < 20)
    found = browser.run(
        "[...document.querySelectorAll('.tiles:not(.wordy) .tile')].map((t) => t.dataset.path)"
    )
    assert set(found) == {"pile/000007.jpg", *(f"pile/00007{n}.jpg" for n in range(10))}
    assert browser.run("document.getElementById('found').textContent") == f"{len(found)} shown"
    browser.run("search.value = ''; search.dispatchEvent(new Event('input'))")
    wait_until(lambda: browser.run(shown) == 310)
    browser.run("folder.value = 'pile'; folder.dispatchEvent(new Event('input'))")
    wait_until(
        lambda: 300 <= browser.run(shown) < 310
    )  # one image has a hostile name, not this folder


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until, "it has not become true within a minute"
        time.sleep(0.02)


FIELDS = """Object.fromEntries([...document.querySelectorAll("#details dl div")].map(
  (row) => [...row.children].map((cell) => cell.textContent)))"""
OPEN = "document.getElementById('details').open"


def test_details_open_by_keyboard_step_to_the_neighbors_and_give_the_focus_back(browser, page):
    browser.size(1280, 900)
    browser.open(page)
    second = sorted(
        (i for i in sort_pile(300) if i.label == "bee"),
        key=lambda i: -i.sure,
    )[1]
    wait_until(lambda: browser.run("document.querySelectorAll('.tile').length") == 310)
    browser.run("document.querySelector('#group-2 .tile').focus()")
    browser.press("Enter")
    assert browser.run(OPEN)
    browser.press("ArrowLeft")  # at the end nothing happens
    browser.press("ArrowRight")
    fields = browser.run(FIELDS)
    shares = (second.sure, second.stranger_probability, second.probability)
    belongs, stranger, conditional = (f"{round(100 * share)}\u202f%" for share in shares)
    assert fields == {  # without the nearest class: it is the label
        "File": second.item.shown,
        "Label": "bee",
        "Belongs to it": belongs,
        "Is a stranger": stranger,
        "Class, if no stranger": conditional,
        "Runner-up": second.runner_up.replace("\n\u202e", "\\n\\u202e"),
    }
    browser.press("Escape")
    assert not browser.run(OPEN)
    focused = "document.activeElement.dataset.path"
    wait_until(lambda: browser.run(focused) == second.item.shown)  # `close` comes a little later
    browser.assert_quiet(page)


def test_details_of_a_hostile_name_are_text_and_a_click_beside_closes(browser, page):
    browser.open(page)
    wait_until(lambda: browser.run("document.querySelectorAll('.tile').length") == 310)
    browser.run("document.querySelector('#next .tile').click()")
    fields = browser.run(FIELDS)
    assert fields["File"] == f"{HOSTILE}\\r\\n\\udcff.jpg"
    assert fields["Label"].startswith(HOSTILE)
    assert browser.run("document.title") == "Sorted images"
    assert (
        browser.run("getComputedStyle(document.querySelector('#details > img')).display") == "none"
    )
    browser.run("document.getElementById('details').click()")
    assert not browser.run(OPEN)
    browser.assert_quiet(page)


def test_no_tile_shows_a_percentage_that_ignores_strangers(browser, tmp_path):
    sure = predicted("a.jpg", "ant", 0.999, "bee", 0.8, stranger=False)  # 40 % a stranger
    apart = predicted("b.jpg", "ant", 0.999, "bee", 0.87, stranger=True)
    about = summary(accepted={"ant": 1})
    write_page(tmp_path / "page.html", fitted([sure, apart]), [], about, {})
    assert f"<p>{about.likely()}</p>" in (tmp_path / "page.html").read_text("utf-8")
    browser.open(tmp_path / "page.html")
    wait_until(lambda: browser.run("document.querySelectorAll('.tile').length") == 2)
    captions = browser.run(
        "[...document.querySelectorAll('.tile :last-child')].map((t) => t.textContent)"
    )
    assert captions == ["60\u202f%, or a stranger?", "stranger 87\u202f%"]
    assert browser.run("document.querySelectorAll('.unsure').length") == 0
    shares = browser.run("[1, 0.996, 0.99, 0.004, 0].map(percent)")
    assert shares == [*[">\u202f99\u202f%"] * 2, "99\u202f%", *["<\u202f1\u202f%"] * 2]


@pytest.fixture
def pile(tmp_path, monkeypatch, capsys) -> Path:
    """A pile of large drawings, classified; one has a name that would end a link."""
    monkeypatch.chdir(tmp_path)
    labeled, pile = folders(tmp_path, shots=2, pile=2, strangers=2)
    save(draw("cross", 9, side=1600), pile / "a #?%20\"<b>'.png")
    save(draw("circle", 9, side=1600), pile / "circle.tif")
    given = ["--labeled", labeled, "--unlabeled", pile, "--encoder", "omniglot", "--device", "cpu"]
    printed(capsys, "classify", *given, "--out", "out")
    return tmp_path


def test_large_pictures_of_what_no_browser_shows_lie_beside_the_page_and_old_ones_go(pile, capsys):
    (large,) = (pile / "out/pictures").iterdir()
    assert stat.S_IMODE(large.parent.stat().st_mode) == 0o700
    with Image.open(large) as picture:
        assert max(picture.size) == 1024
        assert not picture.getexif()
    (pile / "out/pictures/mine.jpg").write_bytes(b"mine")
    (pile / "pile/circle.tif").unlink()
    given = ["--labeled", "labeled", "--unlabeled", "pile", "--out", "out"]
    printed(capsys, "classify", *given, "--encoder", "omniglot", "--device", "cpu")
    assert [path.name for path in (pile / "out/pictures").iterdir()] == ["mine.jpg"]


def linked(pile) -> set[Path]:
    links = [tile[1] for group in pile_in(pile / "out/report.html")["groups"] for tile in group]
    return {(pile / "out" / unquote(link)).resolve() for link in links}


def test_links_lead_to_the_files_also_after_a_move(pile, capsys):
    assert linked(pile) == {path.resolve() for path in (pile / "pile").rglob("*.*")}
    given = ["--labeled", "labeled", "--unlabeled", "pile", "--out", "out", "--apply", "move"]
    printed(capsys, "classify", *given, "--encoder", "omniglot", "--device", "cpu")
    files = {path.resolve() for path in (pile / "out/sorted").rglob("*.*")}
    assert linked(pile) == files
    assert len(files) == 10


SHOWN = "(({src, naturalWidth}) => [src, naturalWidth])(document.querySelector('#details > img'))"


def test_the_dialog_shows_the_picture_large_and_links_to_the_file(browser, pile):
    page = pile / "out/report.html"
    browser.size(1280, 900)
    browser.open(page)
    tiles = "[...document.querySelectorAll('section .tile')]"
    wait_until(lambda: browser.run(f"{tiles}.length") >= 10)
    for name, folder in {"a #?%20\\\"<b>'.png": "/pile/", "circle.tif": "/out/pictures/"}.items():
        browser.run(f'{tiles}.find((t) => t.dataset.path.endsWith("{name}")).click()')
        wait_until(lambda: browser.run(SHOWN)[1] in (1024, 1600))
        assert folder in browser.run(SHOWN)[0]
        link = browser.run("document.querySelector('#details a').href")
        assert Path(unquote(link.removeprefix("file://"))).is_file()
        browser.run("document.getElementById('details').close()")
    assert browser.noise == []
    shutil.rmtree(pile / "out/pictures")  # the page alone: the thumbnail
    browser.open(page)
    wait_until(lambda: browser.run(f"{tiles}.length") >= 10)
    browser.run(f"{tiles}.find((t) => t.dataset.path.endsWith('.tif')).click()")
    wait_until(lambda: browser.run(SHOWN)[0].startswith("data:"))
