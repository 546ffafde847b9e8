"""A server of `semishot label` in this process, and a browser's half of the conversation."""

import http.client
import json
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from semishot.label import LabelRequest
from semishot.label.server import Running, opened
from support.own_images import MEMBERS


class Client:
    """Requests as a browser would send them, unless told otherwise."""

    running: Running

    def __init__(self, address: str) -> None:
        """A token in the address is shown at once."""
        self.base, _, token = address.partition("/?")
        self.host, self.cookie = self.base.removeprefix("http://"), ""
        if token:
            self.cookie = self.ask(f"/?{token}")[1]["set-cookie"].partition(";")[0]

    def ask(
        self, path: str, body: object = None, method: str = "", **headers: str | None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and content. A header that is None is left out."""
        sent: dict[str, str | None] = {"host": self.host, "cookie": self.cookie or None}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if data is not None:
            sent |= {"origin": self.base, "content-type": "application/json"}
            sent |= {} if "transfer_encoding" in headers else {"content-length": str(len(data))}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        address, port = self.host.rsplit(":", 1)
        with closing(http.client.HTTPConnection(address, int(port), timeout=60)) as connection:
            method = method or ("GET" if data is None else "POST")
            connection.putrequest(method, path, skip_host=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(data)
            response = connection.getresponse()
            kept = {name.lower(): value for name, value in response.getheaders()}
            return response.status, kept, response.read()

    def json(self, path: str, body: object = None) -> Any:
        status, _, content = self.ask(path, body)
        assert status == 200, content
        return json.loads(content)

    def refused(self, path: str, body: object = None) -> tuple[int, str]:
        """Status, and why."""
        status, _, content = self.ask(path, body)
        return status, json.loads(content)["problem"]

    def state(self) -> dict[str, Any]:
        _, _, content = self.ask("/state")
        (length,) = struct.unpack_from("<I", content)
        found = json.loads(content[4 : 4 + length])
        rows, at = found["rows"], 4 + length
        found["classes"] = [[number, name] for number, name, slot in found["classes"]]
        columns = ["I image", "I group", "h said", "h guess", "H sure", "H stranger"]
        for code, name in (column.split() for column in [*columns, "B copies"]):
            found[name] = list(struct.unpack_from(f"<{rows}{code}", content, at))
            at += -(-rows * struct.calcsize(code) // 8) * 8
        return found

    def until(self, good: Callable[[dict[str, Any]], bool], seconds: float = 60) -> dict[str, Any]:
        """The state, once it is as wanted."""
        end = time.monotonic() + seconds
        while not good(found := self.state()):
            assert time.monotonic() < end, found
            time.sleep(0.02)
        return found

    def say(self, **event: Any) -> dict[str, Any]:
        """Answer, and wait until it has been judged."""
        number = self.json("/answer", event)["event"]
        return self.until(lambda state: state["event"] >= number)

    def names(self, state: dict[str, Any] | None = None) -> dict[str, int]:
        """The image of each file, by its name without folders, as of this state or now."""
        images = (state or self.state())["image"]
        found = {}
        for first in range(0, len(images), 500):
            found |= self.json("/names", {"images": images[first : first + 500]})
        return {names[0].rsplit("/", 1)[-1]: int(image) for image, names in found.items()}


def label_some(client: Client, kinds: Sequence[str] = MEMBERS, each: int = 3) -> dict[str, int]:
    """Name classes by their first images; return the image of each file."""
    names = client.names()
    for kind in kinds:
        client.say(kind="new", name=kind, images=[names[f"{kind}-{n}.png"] for n in range(each)])
    return names


@contextmanager
def serving(request: LabelRequest, rows: int = 0) -> Iterator[tuple[Running, Client]]:
    """A server in a thread, and a client that has shown its token, once so many images are known."""
    with opened(request) as running:
        thread = threading.Thread(target=running.run)
        thread.start()
        try:
            while not running.server.started:
                time.sleep(0.01)
            client = Client(running.address())
            client.running = running
            client.until(lambda state: state["rows"] >= rows)
            yield running, client
        finally:
            running.server.should_exit = True
            thread.join(60)
