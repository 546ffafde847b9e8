"""A page from disk in a headless Chromium: what it shows, logs and asks for, at any size."""

import shutil
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One tab of a Chromium that Playwright has started."""

    def __init__(self, chromium: Any) -> None:
        self.chromium, self.page = chromium, None
        self.noise: list[str] = []
        self.requested: list[str] = []
        self.size(1280, 900)

    def size(self, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
        """A new tab of this size."""
        self.close()
        self.page = self.chromium.new_page(
            viewport={"width": width, "height": height},
            device_scale_factor=2 if phone else 1,
            is_mobile=phone,
            color_scheme="dark" if dark else "light",
        )
        self.page.on("console", lambda message: self.noise.append(message.text))
        self.page.on("pageerror", lambda error: self.noise.append(str(error)))
        self.page.on("request", lambda request: self.requested.append(request.url))

    def open(self, page: Path) -> None:
        """By way of an empty page: what the page before has left to say is not this one's."""
        for address in ("about:blank", page.resolve().as_uri()):
            self.noise.clear()
            self.requested.clear()
            self.page.goto(address)

    def run(self, script: str) -> Any:
        return self.page.evaluate(script)

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)

    def assert_quiet(self, page: Path) -> None:
        """Nothing logged, nothing thrown, nothing requested but the page itself."""
        assert self.noise == []
        asked = [address for address in self.requested if not address.startswith("data:")]
        assert asked == [page.resolve().as_uri()]

    def close(self) -> None:
        if self.page is not None:
            self.page.close()
