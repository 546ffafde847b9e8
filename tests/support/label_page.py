"""A tab of Chromium on the page of `semishot label`, and the command itself in a process."""

import subprocess
import sys
import time
from contextlib import contextmanager

QUIET = {
    "status of 409",
    "status of 503",
    "net::ERR_CONNECTION_REFUSED",
    "net::ERR_INCOMPLETE_CHUNKED_ENCODING",
}
"""What a browser logs when an answer is refused or the server is away."""


class Tab:
    """A page, and what a person does with it."""

    def __init__(self, page):
        self.page = page
        self.noise = []
        page.on("console", lambda message: self.noise.append(message.text))
        page.on("pageerror", lambda error: self.noise.append(str(error)))

    def open(self, address):
        """The page, with all images: before a class has a name, it shows kinds."""
        self.page.goto(address)
        self.page.wait_for_selector(".tile")
        self.go("all")
        self.wait("[...document.querySelectorAll('.tile')].every((tile) => tile.title)")
        return self

    def tile(self, name):
        """The tile of a file, by the beginning of its label, with folders or without."""
        return self.page.locator(
            f'.tile[aria-label^="{name}"], .tile[aria-label^="more/{name}"]'
        ).first

    def label(self, name):
        """What is said of a file, wherever it is shown."""
        self.show(name)
        return self.tile(name).get_attribute("aria-label")

    def show(self, text):
        """All files with this in their names, by the key for finding."""
        self.go("all")
        self.press("/")
        self.page.keyboard.type(text)
        self.says("title", text)
        self.press("Enter")

    def text(self, selector):
        return self.page.locator(selector).text_content()

    def says(self, identifier, text):
        """Wait until an element holds this text."""
        from playwright.sync_api import expect  # without it, the command itself is still tested

        expect(self.page.locator(f"#{identifier}")).to_contain_text(text, timeout=60_000)

    def ring(self):
        """The file of the image with the ring."""
        return self.page.locator(".tile.cursor").get_attribute("title")

    def selected(self):
        return self.page.locator('.tile[aria-selected="true"]').count()

    def edit(self, name):
        self.page.click(f'[aria-label="Rename, merge or delete {name}"]')

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def wait(self, script, argument=None, seconds=60.0):
        """Until the script is true. (Playwright's own waiting needs eval, which the policy forbids.)"""
        end = time.monotonic() + seconds
        while not self.page.evaluate(script, argument):
            assert time.monotonic() < end, f"not within {seconds} s: {script} {argument}"
            self.page.wait_for_timeout(15)

    def settle(self):
        """Wait until every answer has been judged and drawn."""
        self.wait(
            """async () => {
              if (!window.semishot?.judged()) return false;
              const response = await fetch("/state").catch(() => null);
              if (!response?.ok) return false;
              const buffer = await response.arrayBuffer();
              const header = new Uint8Array(buffer, 4, new DataView(buffer).getUint32(0, true));
              const about = JSON.parse(new TextDecoder().decode(header));
              const shown = window.semishot;
              return shown.epoch === about.epoch && shown.version === about.version && shown.judged();
            }"""
        )

    def still(self):
        """Wait until nothing on the page moves or fades."""
        self.wait("document.getAnimations().every((one) => one.playState !== 'running')")

    def shut(self):
        """Escape, and wait until the dialog is closed."""
        self.press("Escape")
        self.wait("!document.querySelector('dialog[open]')")

    def classes(self):
        return self.page.locator('.entry[data-view^="class:"] .name').all_text_contents()

    def new_class(self, name, *files):
        self.show(f"{files[0].split('-')[0]}-")
        for file in files:
            self.tile(file).click()
        self.press("n")
        self.page.keyboard.type(name)
        self.press("Enter")
        self.page.wait_for_selector(f".entry .name:text-is('{name}')")
        self.settle()
        self.go("all")

    def go(self, place):
        """A view, with all of its images."""
        if self.page.locator("#filter-form").is_visible():
            self.page.click("#find")
        self.page.locator(f'.entry[data-view="{place}"]').click()

    def quiet(self):
        return [line for line in self.noise if not any(word in line for word in QUIET)]


SERVER = "from semishot.commands.main import main; main()"


@contextmanager
def process(asked, port=0, code=SERVER, **options):
    """The command itself; its address."""
    words = [
        "label",
        asked.pile,
        "--out",
        asked.folder,
        *(["--encoder", asked.encoder] if asked.encoder else []),
        *(["--cache", asked.cache] if asked.cache else []),
    ]
    command = [sys.executable, "-c", code, *map(str, words), "--no-browser", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as started:
        try:
            yield started, started.stdout.readline().strip()
        finally:
            started.kill()
