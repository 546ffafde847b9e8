"""The page of a sorted pile: grouped, sorted, escaped, bounded; in a real Chromium by mouse and keyboard."""

import html
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
from semishot.sorter.listing import Item
from semishot.sorter.page import MOST_TILES, PilePage, percent, write_page
from semishot.sorter.page_images import TilePicture
from semishot.sorter.predictions import Prediction
from support.commands import printed
from support.own_images import draw, folders, save

HOSTILE = (
    "<script>document.title='taken'</script>\"'><img src=x onerror=\"document.title='taken'\">"
)
CLASSES = ["ant", "bee", HOSTILE + "\n\u202e"]


def picture(seed: int, side: int = 90) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (side // 6, side // 6, 3), np.uint8)
    return thumbnail(Image.fromarray(pixels).resize((side, side)))


def show(path: Path, *content) -> None:
    write_page(path, PilePage(*content))


def predicted(path: str, *words, stranger: bool) -> Prediction:
    """The last word is the probability of a stranger, halved for members."""
    *words, likely = words
    return Prediction(Item(path), *words, stranger, likely if stranger else likely / 2)


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
    images[0] = predicted(f"{HOSTILE}\r\n\udcff.jpg", HOSTILE, 0.4, "ant", 0.1, stranger=False)
    labeled = {name: [Item(f"{name}/1"), Item(f"{name}/2")] for name in CLASSES}
    labeled["no image of this"] = [Item("another")]
    asked = [0, 1, 2, 3, 4, 5, 7, 8, 9, 10]
    summary = {"encoder": "photos", "message": HOSTILE}
    path = folder / "report.html"
    pictures = {p.item: TilePicture(picture(n) if n % 9 else None) for n, p in enumerate(images)}
    pictures |= {item: TilePicture(picture(5)) for items in labeled.values() for item in items}
    show(path, images, labeled, asked, lambda items: pictures, summary)
    return path


def paths_in(page: str, section: str) -> list[str]:
    body = re.search(rf'<section id="{section}">(.*?)</section>', page, re.S)[1]
    return re.findall(r'data-path="([^"]*)"', body)


def test_groups_hold_their_images_the_most_certain_first_strangers_apart(page):
    text, images = page.read_text("utf-8"), sort_pile(300)
    for group, name in enumerate(CLASSES[:2], 1):
        own = [i for i in images if i.label == name and i != images[0]]
        expected = [i.item.shown for i in sorted(own, key=lambda i: -i.sure)]
        shown = paths_in(text, f"group-{group}")
        assert shown == expected
    far = sorted((i for i in images if i.stranger), key=lambda i: -i.stranger_probability)
    assert paths_in(text, "strangers") == [i.item.shown for i in far]
    assert len(paths_in(text, "next")) == 10
    assert "No image of the pile." in text


def test_a_million_images_make_a_page_below_10_mb_and_few_are_read(tmp_path):
    """Many classes, long names and large pictures too."""
    asked: list[Item] = []
    noise = np.random.default_rng(0).integers(0, 256, 9000, np.uint8).tobytes()

    def large(items: list[Item]) -> dict[Item, TilePicture]:
        asked.extend(items)
        return dict.fromkeys(items, TilePicture(noise))

    for count, classes in ((1_000_000, CLASSES), (20_000, [f"{i}" * 400 for i in range(2000)])):
        one = sort_pile(len(classes) * 7, classes)
        images = [one[i % len(one)] for i in range(count)]  # the same objects, again and again
        labeled = {name: [Item(f"{name}/{n}") for n in range(9)] for name in classes}
        asked.clear()
        show(tmp_path / "page.html", images, labeled, list(range(10)), large, {"a": "b" * 9999})
        assert (tmp_path / "page.html").stat().st_size < 10_000_000
        assert len(asked) < 1.1 * MOST_TILES
    text = (tmp_path / "page.html").read_text("utf-8")
    assert re.search(r"[\d,]+ more lies? between", text)


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
def test_the_page_is_quiet_alone_and_no_wider_than_the_screen(browser, page, width, dark):
    browser.size(width, 900, dark, phone=width < 500)
    browser.open(page)
    browser.assert_quiet(page)
    assert browser.run("document.documentElement.scrollWidth") == width
    assert browser.run("document.title") == "Sorted images"
    assert browser.run("document.scripts.length") == 1
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(251, 250, 248)") == (not dark)
    shown = browser.run("[...document.images].filter((i) => i.src).map((i) => i.naturalWidth > 0)")
    assert len(shown) > 100
    assert all(shown)


def test_images_are_narrowed_by_name_and_folder(browser, page):
    browser.size(1280, 900)
    browser.open(page)
    shown = "document.querySelectorAll('section li:not([hidden]) > .tile').length"
    whole = browser.run(shown)
    browser.run("search.value = '00007'; search.dispatchEvent(new Event('input'))")
    found = browser.run(
        "[...document.querySelectorAll('section li:not([hidden]) > .tile')].map((t) => t.dataset.path)"
    )
    assert set(found) == {"pile/000007.jpg", *(f"pile/00007{n}.jpg" for n in range(10))}
    assert browser.run("document.getElementById('found').textContent") == f"{len(found)} shown"
    browser.run("search.value = ''; search.dispatchEvent(new Event('input'))")
    assert browser.run(shown) == whole
    browser.run("folder.value = 'pile'; folder.dispatchEvent(new Event('input'))")
    assert (
        0 < browser.run(shown) < whole
    )  # one image has a hostile name, and no folder of this kind


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until, "it has not become true within a minute"
        time.sleep(0.02)


FIELDS = """Object.fromEntries([...document.querySelectorAll("#details [data-of]")].map(
  (field) => [field.dataset.of, field.textContent]))"""
OPEN = "document.getElementById('details').open"


def test_details_open_by_keyboard_step_to_the_neighbors_and_give_the_focus_back(browser, page):
    browser.size(1280, 900)
    browser.open(page)
    second = sorted(
        (i for i in sort_pile(300) if i.label == "bee"),
        key=lambda i: -i.sure,
    )[1]
    browser.run("document.querySelector('#group-2 .tile').focus()")
    browser.press("Enter")
    assert browser.run(OPEN)
    browser.press("ArrowLeft")  # at the end nothing happens
    browser.press("ArrowRight")
    fields = browser.run(FIELDS)
    assert fields["path"] == second.item.shown
    assert fields["label"] == "bee"
    assert fields["sure"] == percent(second.sure)
    assert fields["stranger"] == percent(second.stranger_probability)
    assert fields["conditional"] == percent(second.probability)
    assert fields["nearest"] == ""  # it is the label
    browser.press("Escape")
    assert not browser.run(OPEN)
    focused = "document.activeElement.dataset.path"
    wait_until(lambda: browser.run(focused) == second.item.shown)  # `close` comes a little later
    browser.assert_quiet(page)


def test_details_of_a_hostile_name_are_text_and_a_click_beside_closes(browser, page):
    browser.open(page)
    browser.run("document.querySelector('#next .tile').click()")
    fields = browser.run(FIELDS)
    assert fields["path"] == f"{HOSTILE}\\r\\n\\udcff.jpg"
    assert fields["label"] == HOSTILE
    assert browser.run("document.title") == "Sorted images"
    assert (
        browser.run("getComputedStyle(document.querySelector('#details > img')).display") == "none"
    )
    browser.run("document.getElementById('details').click()")
    assert not browser.run(OPEN)
    browser.assert_quiet(page)


def test_no_tile_shows_a_percentage_that_ignores_strangers(tmp_path):
    sure = predicted("a.jpg", "ant", 0.999, "bee", 0.8, stranger=False)  # 40 % a stranger
    apart = predicted("b.jpg", "ant", 0.999, "bee", 0.87, stranger=True)
    lines = "About 7 (3 to 9) of the pile belong to none of the classes."
    page = PilePage([sure, apart], {"ant": []}, [], lambda items: {}, {}, strangers=lines)
    write_page(tmp_path / "page.html", page)
    text = (tmp_path / "page.html").read_text("utf-8")
    captions = re.findall(r"<span>([^<]*)</span>", text)
    assert sorted(captions) == ["60\u202f%, or a stranger?", "stranger 87\u202f%"]
    assert f"<p>{lines}</p>" in text
    assert [percent(share) for share in (1.0, 0.996, 0.99, 0.004, 0.0)] == [
        *(">\u202f99\u202f%", ">\u202f99\u202f%", "99\u202f%", "<\u202f1\u202f%", "<\u202f1\u202f%")
    ]


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


def test_large_pictures_lie_beside_the_page_and_old_ones_go(pile, capsys):
    names = {path.name for path in (pile / "out/pictures").iterdir()}
    assert stat.S_IMODE((pile / "out/pictures").stat().st_mode) == 0o700
    assert len(names) == 10
    for path in (pile / "out/pictures").iterdir():
        with Image.open(path) as picture:
            assert max(picture.size) in (96, 1024)
            assert not picture.getexif()
    (pile / "out/pictures/mine.jpg").write_bytes(b"mine")
    (pile / "pile/dots-0.png").unlink()
    given = ["--labeled", "labeled", "--unlabeled", "pile", "--out", "out"]
    printed(capsys, "classify", *given, "--encoder", "omniglot", "--device", "cpu")
    left = {path.name for path in (pile / "out/pictures").iterdir()}
    assert left < names | {"mine.jpg"}
    assert len(left) == 10


def linked(pile) -> set[Path]:
    page = (pile / "out/report.html").read_text("utf-8")
    links = {html.unescape(link) for link in re.findall(r'data-link="([^"]*)"', page)}
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
    for name in ("a #?%20\\\"<b>'.png", "circle.tif"):
        browser.run(f'{tiles}.find((t) => t.dataset.path.endsWith("{name}")).click()')
        wait_until(lambda: browser.run(SHOWN)[1] == 1024)
        assert "/out/pictures/" in browser.run(SHOWN)[0]
        link = browser.run("document.querySelector('#details a').href")
        assert Path(unquote(link.removeprefix("file://"))).is_file()
        browser.run("document.getElementById('details').close()")
    assert browser.noise == []
    shutil.rmtree(pile / "out/pictures")  # the page alone: the file itself, else the thumbnail
    browser.open(page)
    browser.run(f"{tiles}.find((t) => t.dataset.path.endsWith('.png')).click()")
    wait_until(lambda: browser.run(SHOWN)[1] > 0 and "/pile/" in browser.run(SHOWN)[0])
    browser.run("document.getElementById('details').close()")
    browser.run(f"{tiles}.find((t) => t.dataset.path.endsWith('.tif')).click()")
    wait_until(lambda: browser.run(SHOWN)[0].startswith("data:"))
