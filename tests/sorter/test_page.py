"""The page of a sorted pile: grouped, sorted, escaped, bounded; in a real Chromium by mouse and keyboard."""

import json
import re
import shutil
import stat
import time
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
from support.commands import classified
from support.own_images import draw, folders, save

HOSTILE = (
    "<script>document.title='taken'</script>\"'><img src=x onerror=\"document.title='taken'\">"
)
CLASSES = ["ant", "bee", HOSTILE + "\n\u202e"]


def fitted(predictions, labeled=(), thumbnails=lambda digest: b"") -> FittedPile:
    """Images without files, of which there may be thumbnails."""
    items = [*labeled, *(prediction.item for prediction in predictions)]
    rows = Rows(np.empty((0, 0)), items, thumbnail=thumbnails)
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
            *(f"pile/{i:06}.jpg", classes[i % len(classes)], float(0.34 + 0.66 * sure[i])),
            *(classes[(i + 1) % len(classes)], float(sure[-i])),
            stranger=i % 7 == 6,
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    images, path = sort_pile(300), tmp_path_factory.mktemp("sorted") / "report.html"
    hostile = f"{HOSTILE}\r\n\udcff.jpg", CLASSES[2], 0.4, "ant", 0.1
    images[0] = predicted(*hostile, stranger=False)
    labeled = [item(f"{name}/{n}", name) for name in CLASSES for n in (1, 2)]
    labeled.append(item("another", "no image of this"))
    about = summary(accepted=dict.fromkeys([*CLASSES, "no image of this"], 1), notes=[HOSTILE])

    def small(name: bytes) -> bytes:
        pixels = np.random.default_rng(len(name)).integers(0, 256, (15, 15, 3), np.uint8)
        return b"" if name.startswith(b"<") else thumbnail(Image.fromarray(pixels))

    write_page(path, fitted(images, labeled, small), [*range(6), *range(7, 11)], about, {})
    return path


def groups_in(page: Path) -> list[list[list]]:
    """What the script shows."""
    (pile,) = re.findall(r'json" id="pile">(.*?)</script>', page.read_text("utf-8"))
    return json.loads(pile)["groups"]


def test_groups_hold_their_images_the_most_certain_first_strangers_apart(page):
    groups, images = groups_in(page), sort_pile(300)
    for group, name in enumerate(CLASSES[:2], 1):
        own = [i for i in images if i.label == name and i != images[0]]
        expected = [i.item.shown for i in sorted(own, key=lambda i: -i.sure)]
        assert [tile[0] for tile in groups[group]] == expected
    far = sorted((i for i in images if i.stranger), key=lambda i: -i.stranger_probability)
    assert [tile[0] for tile in groups[-1]] == [i.item.shown for i in far]
    assert [len(groups[0]), sum(map(len, groups))] == [10, 310]
    assert "No image of the pile." in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("count", "classes"), [(110_000, CLASSES), (20_000, [f"{i}" * 40 for i in range(2000)])]
)
def test_a_huge_pile_makes_a_page_of_its_least_sure_images_and_few_are_read(
    tmp_path, count, classes
):
    """Many classes, long names and large pictures too; what is left out is said."""
    asked: list[bytes] = []
    labeled = [item(f"{name}/{n}", name) for name in classes for n in range(9)]
    pile = fitted(
        sort_pile(count, classes), labeled, lambda name: asked.append(name) or b"x" * 4000
    )
    page = tmp_path / "page.html"
    write_page(page, pile, [], summary(accepted=dict.fromkeys(classes, 1)), {})
    assert len(asked) <= MOST_DRAWN
    shown, text = sum(map(len, groups_in(page))), page.read_text("utf-8")
    assert 0.99 * min(count, MOST_IMAGES) < shown <= MOST_IMAGES
    assert (" more, the surest, are left out" in text) == (count > MOST_IMAGES)
    assert len(text) < 20_000_000


# In a browser


TILES = "document.querySelectorAll('.tile').length"


def opened(browser, page: Path, tiles: int = 310, **size):
    """The tab, when it shows so many tiles."""
    browser.size(size.pop("width", 1280), 900, **size)
    browser.open(page)
    wait_for(browser, f"{TILES} >= {tiles}")
    return browser.page


def wait_for(browser, script: str) -> None:
    until = time.monotonic() + 60
    while not browser.run(script):
        assert time.monotonic() < until, f"not within a minute: {script}"
        time.sleep(0.02)


def details(tab) -> dict[str, str]:
    rows = tab.locator("#details dl")
    return dict(zip(*(rows.locator(tag).all_text_contents() for tag in ("dt", "dd")), strict=True))


@pytest.mark.parametrize(("width", "dark"), [(390, True), (1280, False)])
def test_the_page_is_quiet_alone_and_no_wider_than_the_screen(browser, page, width, dark):
    tab = opened(browser, page, width=width, dark=dark, phone=width < 500)
    browser.assert_quiet(page)
    assert browser.run("document.documentElement.scrollWidth") == width
    assert tab.title() == "Sorted images"
    assert browser.run("document.scripts.length") == 2
    paper = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(251, 250, 248)") == (not dark)
    wait_for(
        browser, "[...document.images].filter((i) => i.complete && i.naturalWidth > 0).length > 3"
    )


def test_images_are_narrowed_by_name_and_folder(browser, page):
    tab = opened(browser, page)
    tab.locator("#search").fill("00007")
    names = {"pile/000007.jpg", *(f"pile/00007{n}.jpg" for n in range(10))}
    wait_for(browser, f"{TILES} === {len(names) + 1}")  # one of them is to be labeled next
    tiles = "[...document.querySelectorAll('.tiles:not(.wordy) .tile')]"
    assert set(browser.run(f"{tiles}.map((tile) => tile.dataset.path)")) == names
    assert tab.locator("#found").text_content() == "11 shown"
    tab.locator("#search").fill("")
    wait_for(browser, f"{TILES} === 310")
    tab.locator("#folder").select_option("pile")
    wait_for(browser, f"{TILES} === 308")  # one image has a hostile name, not this folder


def test_details_open_by_keyboard_step_to_the_neighbors_and_give_the_focus_back(browser, page):
    second = sorted((i for i in sort_pile(300) if i.label == "bee"), key=lambda i: -i.sure)[1]
    tab = opened(browser, page)
    tab.locator("#group-2 .tile").first.focus()
    for key in ("Enter", "ArrowLeft", "ArrowRight"):  # to the left there is nothing
        tab.keyboard.press(key)
    shares = (second.sure, second.stranger_probability, second.probability)
    belongs, stranger, conditional = (f"{round(100 * share)}\u202f%" for share in shares)
    assert details(tab) == {  # without the nearest class: it is the label
        "File": second.item.shown,
        "Label": "bee",
        "Belongs to it": belongs,
        "Is a stranger": stranger,
        "Class, if no stranger": conditional,
        "Runner-up": f"{HOSTILE}\\n\\u202e",
    }
    tab.keyboard.press("Escape")
    assert not tab.locator("#details").is_visible()
    wait_for(browser, f"document.activeElement.dataset.path === '{second.item.shown}'")
    browser.assert_quiet(page)


def test_details_of_a_hostile_name_are_text_and_a_click_beside_closes(browser, page):
    tab = opened(browser, page)
    tab.locator("#next .tile").first.click()
    fields = details(tab)
    assert (fields["File"], fields["Label"]) == (
        f"{HOSTILE}\\r\\n\\udcff.jpg",
        f"{HOSTILE}\\n\\u202e",
    )
    assert tab.title() == "Sorted images"
    assert not tab.locator("#details > img").is_visible()
    tab.mouse.click(2, 2)
    assert not tab.locator("#details").is_visible()
    browser.assert_quiet(page)


def test_no_tile_shows_a_percentage_that_ignores_strangers(browser, tmp_path):
    sure = predicted("a.jpg", "ant", 0.999, "bee", 0.8, stranger=False)  # 40 % a stranger
    apart = predicted("b.jpg", "ant", 0.999, "bee", 0.87, stranger=True)
    about, page = summary(accepted={"ant": 1}), tmp_path / "page.html"
    write_page(page, fitted([sure, apart]), [], about, {})
    assert f"<p>{about.likely()}</p>" in page.read_text("utf-8")
    tab = opened(browser, page, 2)
    captions = tab.locator(".tile > :last-child").all_text_contents()
    assert captions == ["60\u202f%, or a stranger?", "stranger 87\u202f%"]
    assert tab.locator(".unsure").count() == 0
    shares = browser.run("[1, 0.996, 0.99, 0.004, 0].map(percent)")
    assert shares == [*[">\u202f99\u202f%"] * 2, "99\u202f%", *["<\u202f1\u202f%"] * 2]


# Of files


@pytest.fixture
def pile(tmp_path, monkeypatch, capsys) -> Path:
    """A pile of large drawings, classified; one has a name that would end a link."""
    monkeypatch.chdir(tmp_path)
    labeled, pile = folders(tmp_path, shots=2, pile=2, strangers=2)
    save(draw("cross", 9, side=1600), pile / "a #?%20\"<b>'.png")
    save(draw("circle", 9, side=1600), pile / "circle.tif")
    classified(capsys, labeled, pile)
    return tmp_path


def test_large_pictures_of_what_no_browser_shows_lie_beside_the_page_and_old_ones_go(pile, capsys):
    (large,) = (pile / "out/pictures").iterdir()
    assert stat.S_IMODE(large.parent.stat().st_mode) == 0o700
    with Image.open(large) as picture:
        assert max(picture.size) == 1024
        assert not picture.getexif()
    (pile / "out/pictures/mine.jpg").write_bytes(b"mine")
    (pile / "pile/circle.tif").unlink()
    classified(capsys, "labeled", "pile")
    assert [path.name for path in (pile / "out/pictures").iterdir()] == ["mine.jpg"]


def linked(pile: Path) -> set[Path]:
    links = [tile[1] for group in groups_in(pile / "out/report.html") for tile in group]
    return {(pile / "out" / unquote(link)).resolve() for link in links}


def test_links_lead_to_the_files_also_after_a_move(pile, capsys):
    assert linked(pile) == {path.resolve() for path in (pile / "pile").rglob("*.*")}
    classified(capsys, "labeled", "pile", "--apply", "move")
    files = {path.resolve() for path in (pile / "out/sorted").rglob("*.*")}
    assert linked(pile) == files
    assert len(files) == 10


def test_the_dialog_shows_the_picture_large_and_links_to_the_file(browser, pile):
    page, image = pile / "out/report.html", "document.querySelector('#details > img')"
    tab = opened(browser, page, 10)
    for name, folder in {"a #?%20\"<b>'.png": "/pile/", "circle.tif": "/out/pictures/"}.items():
        tab.get_by_alt_text(name).first.click()
        wait_for(browser, f"[1024, 1600].includes({image}.naturalWidth)")
        assert folder in browser.run(f"{image}.src")
        link = browser.run("document.querySelector('#details a').href")
        assert Path(unquote(link.removeprefix("file://"))).is_file()
        tab.locator("#details .close").click()
    assert browser.noise == []
    shutil.rmtree(pile / "out/pictures")  # the page alone: the thumbnail
    tab = opened(browser, page, 10)
    tab.get_by_alt_text("circle.tif").first.click()
    wait_for(browser, f"{image}.src.startsWith('data:')")
