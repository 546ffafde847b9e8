"""A headless Chromium for tests, spoken to in its DevTools protocol through a pair of pipes."""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--hide-scrollbars", "--disable-quic", "--disable-sync", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"),
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One tab. What the page logs, throws and requests is kept in `events`."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        read, self.write = os.pipe()
        self.read, write = os.pipe()
        # Chromium reads commands from descriptor 3 and writes to 4
        shell = f'exec 3<&{read} 4>&{write}; exec "$0" "$@"'
        command = ["bash", "-c", shell, CHROMIUM, *FLAGS, f"--user-data-dir={profile}"]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(
            [*command, "about:blank"], pass_fds=(read, write), stdout=quiet, stderr=quiet
        )
        os.close(read)
        os.close(write)
        self.left, self.number, self.session = b"", 0, None
        self.events: list[dict[str, Any]] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def receive(self) -> dict[str, Any]:
        """The next message; an event is kept."""
        while b"\0" not in self.left:
            part = os.read(self.read, 2**20)
            assert part, "Chromium has ended"
            self.left += part
        line, _, self.left = self.left.partition(b"\0")
        message = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message

    def size(self, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
        scale = 2 if phone else 1
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, page: Path) -> None:
        """By way of an empty page: what the page before has left to say is not this one's."""
        for address in ("about:blank", page.resolve().as_uri()):
            self.events.clear()
            self.call("Page.navigate", url=address)
            while not any(event["method"] == "Page.loadEventFired" for event in self.events):
                self.receive()

    def run(self, script: str) -> Any:
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        about = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def picture(self, whole: bool = False) -> bytes:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(found["data"])

    def of(self, *methods: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.events if event["method"] in methods]

    def assert_quiet(self, page: Path) -> None:
        """Nothing logged, nothing thrown, nothing requested but the page itself."""
        noise = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        heard = self.of(*noise)
        assert heard == [], heard
        requested = [each["request"]["url"] for each in self.of("Network.requestWillBeSent")]
        requested = [url for url in requested if not url.startswith("data:")]
        assert requested == [page.resolve().as_uri()], requested

    def close(self) -> None:
        self.call("Browser.close")
        self.process.wait(timeout=60)
        os.close(self.read)
        os.close(self.write)
