"""The conversation with a `semishot label` that runs in another process."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from support.labeling import Client


def connected(printed: Path, alive: Callable[[], bool]) -> Client | None:
    """A client that has shown the token which the server printed to this file; None if it ended."""
    while alive():
        text = printed.read_text(errors="replace") if printed.exists() else ""
        address = next((line for line in text.splitlines() if line.startswith("http://")), "")
        base, _, token = address.partition("/?")
        if token and text.endswith("\n"):
            client = Client(SimpleNamespace(base=base))  # type: ignore[arg-type]
            with contextlib.suppress(OSError):
                _, headers, _ = client.ask(f"/?{token}")
                client.cookie = headers["set-cookie"].partition(";")[0]
                return client
        time.sleep(0.005)
    return None


def first_images(client: Client, alive: Callable[[], bool], most: float = 3.0) -> list[int]:
    """The numbers of images, once there are some; none if there are none after a while."""
    until = time.monotonic() + most
    while alive() and time.monotonic() < until:
        if found := client.state()["image"]:
            return list(found)
        time.sleep(0.02)
    return []
