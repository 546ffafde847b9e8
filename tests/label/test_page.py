"""The page in a real Chromium: the whole story, every key, two tabs, a killed server, a phone, axe."""

import os
import re
import signal
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from semishot.label import LabelRequest
from semishot.label.server import browser
from support.browser import CHROMIUM
from support.label_page import Tab, process
from support.labeling import label_some, serving
from support.own_images import MEMBERS, draw, save

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.fixture
def tab(chromium, client, request):
    """A tab on the drawings."""
    context = chromium.new_context(viewport={"width": 1280, "height": 2200})
    opened = Tab(context.new_page())
    opened.context = context
    opened.invite = lambda: client.json("/invite", {})["address"]
    opened.client, opened.server = client, client.running
    yield opened.open(opened.invite())
    noise = opened.quiet()
    context.close()
    assert noise == []


def sorted_by_class(tab):
    label_some(tab.client)
    tab.settle()


def test_the_story_from_no_labels_to_a_sorting_that_is_undone(tab, asked):
    page, out = tab.page, asked.folder / "sorted"
    assert tab.text("#title") == "All images"
    assert page.locator("#finish.primary").count() == 0
    assert "token" not in page.url
    tab.new_class(MEMBERS[0], "circle-0.png", "circle-1.png", "circle-2.png")
    label_some(tab.client, MEMBERS[1:])
    tab.settle()
    assert tab.classes() == list(MEMBERS)
    tab.go("ask")
    page.wait_for_selector(".tile.ask")
    count = tab.text('.entry[data-view="ask"] .count')
    assert page.locator(".tile").count() == int(count)
    first = tab.ring()
    kind = first.split("/")[-1].split("-")[0]
    tab.press("Home", str(MEMBERS.index(kind) + 1) if kind in MEMBERS else "0")
    tab.settle()
    assert tab.ring() != first
    page.click("#finish")
    tab.says("plan", f"48 files are copied to {out}")
    page.click("#apply")
    page.wait_for_selector("#sorted-now")
    assert len(list(out.rglob("*.png"))) == 48
    page.click("#unsort")
    page.wait_for_selector("#sorted-now", state="detached")
    assert not out.exists()
    with page.expect_download() as download:
        page.click("#tables a >> nth=0")
    assert download.value.suggested_filename == "labels.csv"
    page.click("#model")
    tab.says("model-text", "Saved in")


def test_where_there_is_nothing_to_sort_nothing_is_said_of_undoing_it(tab):
    tab.page.click("#finish")
    tab.says("plan", "There is nothing to sort yet: label some images first.")
    assert "undo" not in tab.text("#finish-dialog")
    assert not tab.page.locator("#apply").is_visible()
    tab.page.check('input[name="which"][value="confirmed"]')
    tab.says("plan", "no image is confirmed yet")


def test_a_pile_is_named_row_by_row_without_a_label(tab):
    """Rows of what is alike: what does not belong is clicked away, the others get a name together."""
    page = tab.page
    tab.go("kinds")
    page.wait_for_selector(".part.current .tile")
    for _ in range(12):
        row = page.locator(".part.current .tile").all()
        if not row:
            break
        kinds = [tile.get_attribute("title").split("/")[-1].split("-")[0] for tile in row]
        kind = max(set(kinds), key=kinds.count)
        for tile, own in zip(row, kinds, strict=True):
            if own != kind:
                tile.click()
        if kind == "dots":
            tab.press("0")
        else:
            tab.press("n")
            page.keyboard.type(kind)  # a name that is there already adds the row to its class
            tab.press("Enter")
        tab.settle()
        page.wait_for_selector("dialog", state="detached")
    assert sorted(tab.classes()) == sorted(MEMBERS)
    state = tab.client.state()
    names = {image: name for name, image in tab.client.names(state).items()}
    order = {**dict(enumerate(name for _, name in state["classes"])), -2: "dots"}
    for image, said in zip(state["image"], state["said"], strict=True):
        assert said == -1 or names[image].startswith(order[said])


def test_all_rows_are_put_with_the_strangers_at_once(tab):
    tab.new_class("circle", "circle-0.png", "circle-1.png")
    tab.go("kinds")
    tiles = tab.page.locator(".part .tile")
    tiles.first.click()  # does not belong
    shown = tiles.count()
    tab.page.click("#rest")
    tab.settle()
    assert tab.client.state()["said"].count(-2) == shown - 1


def test_an_audit_by_two_keys_bounds_what_is_right_and_goes_on_after_a_reload(tab):
    page = tab.page
    sorted_by_class(tab)
    tab.client.say(kind="answer", set=[[0, [tab.client.names()["dots-0.png"]]]])
    tab.settle()
    page.click("#check")
    page.click("#audit-begin")
    names = {image: name for name, image in tab.client.names().items()}
    for number in range(6):
        picture = page.locator("#audit-image").get_attribute("src")
        name = names[int(re.search(r"/large/(\d+)", picture)[1])]
        asked = {"A stranger?": "dots?"}.get(
            tab.text("#audit-question"), tab.text("#audit-question")
        )
        tab.press("Enter" if name.startswith(asked[:-1]) else "-")
        page.wait_for_selector(f'#audit-image:not([src="{picture}"])')
        tab.settle()
        tab.says("audit-text", f"{number + 1} image")
    assert re.match(r"At least \d+ % of the pile is right", tab.text("#lead"))
    said = tab.text("#audit-text")
    page.reload()
    page.wait_for_selector(".tile")
    page.click("#check")
    tab.says("audit-text", said)


def test_a_lasso_on_the_map_selects_what_is_in_it(tab):
    page = tab.page
    tab.go("map")
    tab.says("map-text", "48 images")
    box = page.locator("#map").bounding_box()
    left, top = box["x"] + 20, box["y"] + 20
    right, bottom = left + box["width"] - 40, top + box["height"] - 40
    page.mouse.move(left, top)
    page.mouse.down()
    for x, y in [(right, top), (right, bottom), (left, bottom)]:
        page.mouse.move(x, y, steps=3)
    page.mouse.up()
    state = tab.client.state()
    expected = len(set(state["group"]))
    assert tab.text("#chosen") == f"{expected} selected"
    page.locator(".tile").first.click()  # taken out
    assert tab.text("#chosen") == f"{expected - 1} selected"


def test_a_filter_narrows_every_view(tab):
    page = tab.page
    sorted_by_class(tab)
    event = tab.client.state()["event"]
    tab.press("/")
    page.keyboard.type("dots-1")  # no key of it answers
    tab.says("title", "Found: “dots-1”")
    assert tab.client.state()["event"] == event
    names = {tile.get_attribute("title").split("/")[-1] for tile in page.locator(".tile").all()}
    assert names == {"dots-1.png", "dots-10.png", "dots-11.png"}
    page.fill("#filter-text", "")
    page.fill("#filter-first", "2000-01-01")
    page.fill("#filter-last", "2000-01-02")
    tab.says("lead", "No image fits.")
    tab.press("Escape")
    tab.says("title", "Overview")
    tab.press("/")
    page.fill("#filter-most", "99")
    page.wait_for_selector("#find[aria-pressed=true]")
    page.locator('.entry[data-view="class:1"]').click()
    tab.says("title", "circle")
    assert page.locator(".tile.confirmed").count() == 0


def test_keys_and_colors_stay_with_a_class_and_undo_is_offered(tab):
    page = tab.page
    sorted_by_class(tab)
    key = page.locator(".entry", has_text="stripes").locator(".key")
    look = lambda: (key.text_content(), key.get_attribute("style"))  # noqa: E731
    before = look()
    tab.edit("circle")
    page.click("#class-delete")
    tab.settle()
    assert look() == before
    page.click("#toast button")
    tab.settle()
    assert tab.classes() == list(MEMBERS)
    page.locator(".tile").first.click()
    tab.press("Escape", "n")
    page.keyboard.type("mine")
    ring = tab.ring()
    tab.press("Enter")
    tab.settle()
    assert "confirmed mine" in tab.label(ring.split("/")[-1])


def test_every_key(tab):
    page = tab.page
    sorted_by_class(tab)
    tab.go("class:1")
    page.wait_for_selector(".tile.guess, .tile.ask")
    said = lambda name: page.locator(f'.tile[aria-label^="{name},"]').get_attribute("aria-label")  # noqa: E731
    tab.press("Home")
    first = tab.ring()
    tab.press("ArrowRight")
    assert tab.ring() != first
    tab.press("ArrowLeft")
    assert tab.ring() == first
    tab.press("End", "Home")
    for key, known in (
        ("Enter", "confirmed"),
        ("Control+z", "guessed"),
        ("Control+y", "confirmed"),
    ):
        tab.press(key)
        tab.settle()
        assert f"{known} circle" in said(first)
    page.locator(f'.tile[aria-label^="{first},"]').click()
    tab.press("-")
    tab.settle()
    assert page.locator(f'.tile[aria-label^="{first},"]').count() == 0
    tab.press("Home")
    second = tab.ring()
    tab.press("0")
    tab.settle()
    tab.go("none")
    assert "confirmed stranger" in said(second)
    tab.press("Escape", "Home", "Backspace")
    tab.settle()
    tab.press("Home", "x", "Shift+ArrowRight")
    assert tab.selected() == 2
    tab.press("Escape")
    assert tab.selected() == 0
    tab.press("Control+a")
    assert tab.selected() == page.locator('[role="listbox"]:has(.cursor) .tile').count()
    tab.press("Escape", "PageUp")
    assert tab.text("#title") == "stripes"
    tab.press("Space")
    page.wait_for_selector("#large[open]")
    tab.press("ArrowRight", "2")
    tab.shut()
    tab.settle()
    tab.press("?")
    page.wait_for_selector("#help-dialog[open]")
    tab.shut()
    tab.show("dots-7")
    assert tab.tile("dots-7.png").is_visible()
    assert page.locator(".tile").count() == 1
    tab.press("/")
    assert tab.text("#title") == "Overview"


def test_click_shift_click_and_a_box(tab):
    page, tiles = tab.page, tab.page.locator(".tile")
    tiles.nth(0).click()
    tiles.nth(3).click(modifiers=["Shift"])
    assert tab.selected() == 4
    tiles.nth(1).click()
    assert tab.selected() == 3
    tab.press("Escape")
    a, b = tiles.nth(0).bounding_box(), tiles.nth(6).bounding_box()
    page.mouse.move(a["x"] + 20, a["y"] + 20)
    page.mouse.down()
    page.mouse.move(b["x"] + 30, b["y"] + 30, steps=4)
    page.mouse.up()
    assert tab.selected() == 4  # two columns of two lines
    assert page.locator(".rubber").count() == 0


def test_classes_are_renamed_merged_and_deleted(tab):
    page = tab.page
    sorted_by_class(tab)
    tab.edit("cross")
    page.fill("#class-name", "plus")
    page.click("#class-rename")
    tab.settle()
    assert tab.classes() == ["circle", "plus", "stripes"]
    tab.edit("plus")
    page.fill("#class-name", "Stripes")
    assert tab.text("#class-rename") == "Merge"
    page.click("#class-rename")
    tab.settle()
    assert tab.classes() == ["circle", "stripes"]
    tab.edit("circle")
    page.click("#class-delete")
    tab.settle()
    assert tab.classes() == ["stripes"]
    for _ in range(3):
        tab.press("Control+z")
        tab.settle()
    assert tab.classes() == list(MEMBERS)


def show_or_hide(page, hidden):
    """As the browser does when another tab is chosen."""
    page.evaluate(
        """(hidden) => {
          Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_a_tab_that_was_hidden_follows_again(tab):
    for name in ("first", "second"):
        show_or_hide(tab.page, True)
        tab.client.say(kind="new", name=name, images=[])
        show_or_hide(tab.page, False)
        tab.settle()
    assert tab.classes() == ["first", "second"]


RELEASED = "document.body.dispatchEvent(new Event('pointerup', { bubbles: true }))"


@pytest.mark.parametrize("before_it", ["", RELEASED], ids=["alone", "after another click"])
def test_nothing_moves_away_under_a_button_that_is_pressed(before_it, tab):
    """An answer of another tab arrives between the press and the release; also right after another click."""
    page = tab.page
    tab.client.say(kind="new", name="cross", images=[])
    tab.settle()
    fetched = "performance.getEntriesByType('resource').filter((one) => one.name.includes('/state')).length"
    before = page.evaluate(fetched)
    page.hover('[aria-label="Rename, merge or delete cross"]')
    page.evaluate(before_it)
    page.mouse.down()
    tab.client.say(kind="new", name="before", images=[])
    tab.wait(f"{fetched} > {before}")
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn, 100)))")
    page.mouse.up()
    page.wait_for_selector("#class-dialog[open]")
    tab.shut()
    tab.settle()
    assert tab.classes() == ["cross", "before"]


def test_what_was_refused_for_a_while_is_asked_for_again(tab):
    page = tab.page
    page.route("**/news/*", lambda route: route.fulfill(status=503))
    page.route("**/thumb/**", lambda route: route.fulfill(status=503))
    show_or_hide(page, True)
    show_or_hide(page, False)
    page.wait_for_selector("#banner:not([hidden])")
    page.evaluate("document.querySelector('.tile img').src += '&again'")
    page.wait_for_selector(".tile.broken")
    page.unroute_all()
    page.wait_for_selector("#banner", state="hidden")
    page.wait_for_selector(".tile.broken", state="detached")
    tab.client.say(kind="new", name="first", images=[])
    tab.settle()
    assert tab.classes() == ["first"]


def test_the_token_is_not_in_the_arguments_of_the_browser(asked, chromium, monkeypatch):
    """Everybody on a machine can see them; a file that only the user can read leads to the page."""
    uris, called = [], threading.Event()
    monkeypatch.setattr("webbrowser.open", lambda uri: (uris.append(uri), called.set()))
    with serving(asked) as (running, client):
        client.until(lambda state: state["rows"] == 48)
        with browser(asked, running):
            assert called.wait(60)
            path = Path(uris[0].removeprefix("file://"))
            assert "?token=" not in uris[0]
            assert path.stat().st_mode & 0o777 == 0o600
            context = chromium.new_context()
            page = Tab(context.new_page()).open(uris[0]).page
            page.reload()
            page.wait_for_selector(".tile")
            context.close()
        assert not path.exists()


def test_the_button_back_leads_to_the_place_before_and_closes_what_is_open(tab):
    """It left the page."""
    page = tab.page
    page.locator(".tile").first.dblclick()
    page.wait_for_selector("#large[open]")
    page.go_back()
    page.wait_for_selector("#large", state="detached")
    sorted_by_class(tab)
    for number in (1, 2):
        page.click(f'.entry[data-view="class:{number}"]')
    page.go_back()
    tab.says("title", "circle")
    page.go_forward()
    tab.says("title", "cross")
    page.click("#edit")  # a class is edited where it is shown
    page.click("#class-delete")
    tab.settle()
    tab.says("title", "Overview")
    page.go_back()
    tab.says("title", "circle")
    assert tab.classes() == ["circle", "stripes"]


def test_undo_pressed_fast_takes_back_as_many(tab):
    sorted_by_class(tab)
    tab.press("Control+z", "Control+z")
    tab.settle()
    assert tab.classes() == ["circle"]
    tab.press("Control+y", "Control+y", "Control+y")
    tab.settle()
    assert tab.classes() == list(MEMBERS)


def test_at_twice_the_size_what_is_selected_can_be_seen(chromium, client):
    """A window of 1280 x 800 at 200 %: the answers do not cover the pictures."""
    context = chromium.new_context(viewport={"width": 640, "height": 400}, device_scale_factor=2)
    tab = Tab(context.new_page()).open(client.json("/invite", {})["address"])
    label_some(client, ("circle", "cross"), 1)
    tab.settle()
    first = tab.page.locator(".tile").first
    first.click()
    tile, bar = first.bounding_box(), tab.page.locator("#bar").bounding_box()
    assert tile["y"] + tile["height"] <= bar["y"]
    context.close()


def test_two_tabs_agree(tab):
    other = Tab(tab.context.new_page()).open(tab.page.url)
    tab.page.bring_to_front()  # in the other one, frames are rare
    tab.new_class("circle", "circle-0.png", "circle-1.png")
    other.page.bring_to_front()
    other.page.wait_for_selector('.entry[data-view="class:1"]')
    other.settle()
    assert other.classes() == ["circle"]
    assert "confirmed circle" in other.label("circle-0.png")


def test_the_cutoff_shows_at_once_what_it_would_do(tab):
    sorted_by_class(tab)
    tab.go("none")
    counts = []
    for stop in (-6, 6):
        tab.page.locator("#cutoff-slider").evaluate(
            f"(it) => {{ it.value = {stop}; it.dispatchEvent(new Event('input')); }}"
        )
        tab.wait(
            """() => document.querySelector('#cutoff-text').textContent.trim().split(' of ')[0]
              === document.querySelector('.entry[data-view="none"] .count').textContent"""
        )
        counts.append(int(re.match(r"(\d+) of \d+ guesses", tab.text("#cutoff-text"))[1]))
    assert counts[0] < counts[1]


def test_a_killed_server_loses_nothing_and_the_page_goes_on(chromium, asked):
    """What is answered while it is away is sent when it is back."""
    context = chromium.new_context(viewport={"width": 1280, "height": 2200})
    with ExitStack() as stack:
        stack.callback(context.close)
        with process(asked) as (server, address):
            tab = Tab(context.new_page()).open(address)
            tab.new_class("circle", "circle-0.png", "circle-1.png")
            tab.show("circle-2")
            os.kill(server.pid, signal.SIGKILL)
            server.wait()
            tab.page.wait_for_selector("#banner:not([hidden])")
            tab.tile("circle-2.png").click()
            tab.press("1")
        with process(asked, int(address.split(":")[2].split("/")[0])):
            tab.page.wait_for_selector("#banner", state="hidden", timeout=60_000)
            tab.settle()
            tab.page.reload()
            tab.page.wait_for_selector(".tile")
            for number in range(3):
                assert "confirmed circle" in tab.label(f"circle-{number}.png")


def test_a_phone_can_label_by_touch(chromium, client):
    context = chromium.new_context(
        viewport={"width": 390, "height": 844},
        has_touch=True,
        is_mobile=True,
        device_scale_factor=2,
    )
    tab = Tab(context.new_page()).open(client.json("/invite", {})["address"])
    page = tab.page
    for number in range(2):
        page.locator(".tile:not([aria-selected=true])").first.tap()
        tab.wait(
            "(count) => document.querySelectorAll('.tile[aria-selected=true]').length === count",
            number + 1,
        )
    assert page.locator("#chosen").text_content() == "2 selected"
    page.locator('#answers [data-does="new"]').tap()
    page.fill("#name-input", "x" * 100)
    page.locator("#name-dialog button[type=submit]").tap()
    page.wait_for_selector('.entry[data-view="class:1"]')
    tab.settle()
    for place in ("class:1", "none", "ask", "all"):
        tab.page.locator(f'.entry[data-view="{place}"]').first.tap()
        page.wait_for_selector(f'.entry[data-view="{place}"][aria-current]')
        for width in (320, 360, 390):
            page.set_viewport_size({"width": width, "height": 844})
            assert page.evaluate("document.documentElement.scrollWidth") == width
            tab.wait("(width) => document.querySelector('main').scrollWidth === width", width)
    page.locator(".tile").first.dblclick()
    page.wait_for_selector("#large[open]")
    assert page.locator("#large figure").bounding_box()["width"] == 390
    # in one step: names that arrive draw the tiles anew
    inside = page.evaluate(
        """[...document.querySelectorAll("#grid .tile .chance")].map((one) =>
          one.getBoundingClientRect().right <= one.closest(".tile").getBoundingClientRect().right)"""
    )
    assert inside
    assert all(inside)
    assert tab.quiet() == []
    context.close()


def violations(page):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed"
    )
    found = axe.Axe().run(
        page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
    )
    return [
        (each["id"], node["html"][:160])
        for each in found.response["violations"]
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_nothing_in_any_view(chromium, client, scheme):
    """The policy forbids scripts from elsewhere, axe's too: here it is set aside.

    A message fades by itself after a while, and what fades has no contrast to measure: without
    motion it is there or it is not.
    """
    context = chromium.new_context(
        viewport={"width": 1280, "height": 2200},
        color_scheme=scheme,
        reduced_motion="reduce",
        bypass_csp=True,
    )
    tab = Tab(context.new_page()).open(client.json("/invite", {})["address"])
    page = tab.page
    assert violations(page) == []
    label_some(client)
    tab.settle()
    tab.still()
    for place in ("all", "ask", "class:1", "none", "kinds", "map"):
        tab.go(place)
        tab.still()
        assert violations(page) == []
    for button in ("#help", "#finish", "#check"):
        page.click(button)
        tab.still()
        assert violations(page) == []
        tab.shut()
    tab.go("all")
    for key in ("n", "Space"):
        tab.press("Home", key)
        tab.still()
        assert violations(page) == []
        tab.shut()
    context.close()


def test_hostile_names_stay_text_in_the_page(chromium, cache, tmp_path):
    pile = tmp_path / "pile"
    hostile = "<img src=x onerror=\"document.title='taken'\">.png"
    for number in range(6):
        save(draw("cross", number), pile / f"{number}-{hostile}")
    asked = LabelRequest(pile, out=tmp_path / "out", encoder="omniglot", cache=cache, device="cpu")
    context = chromium.new_context(viewport={"width": 1280, "height": 2200})
    with serving(asked) as (_, client):
        client.until(lambda state: state["rows"] == 6)
        tab = Tab(context.new_page()).open(client.json("/invite", {})["address"])
        tab.page.locator(".tile").first.click()
        tab.press("n")
        tab.page.keyboard.type("<script>document.title='taken'</script>")
        tab.press("Enter")
        tab.settle()
        tab.press("Space")
        tab.page.wait_for_selector("#large[open]")
        tab.says("large-name", "onerror")
        assert tab.page.title() == "semishot label"
        assert tab.page.locator("script").count() == 1
        assert tab.quiet() == []
        context.close()
