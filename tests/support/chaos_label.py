"""The server of `semishot label`, killed with SIGKILL at random instants while answers are posted.

A round posts one list of answers, each with its key, as a page does: what was not acknowledged when the
server died is posted again to the next one. After every kill all acknowledged answers must be on the disk, in
order and once; in the end a server that is opened once more must show what an undisturbed one shows.
"""

import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support import chaos
from support.label_over_http import connected
from support.labeling import Client

EVENTS = 60
IMAGES = 56
"""In the pile of `chaos.own_pile`: 14 of each of four kinds."""
KINDS = ("circle", "cross", "stripes", "dots")
GONE = (OSError, http.client.HTTPException, ValueError)
"""What a client sees of a server that is killed, in the midst of an answer too."""


def script() -> list[dict[str, Any]]:
    """Answers of every kind, by names of files; some of them contradict what came before."""
    draw = random.Random(60)
    events: list[dict[str, Any]] = [
        {"kind": "new", "name": kind, "images": [f"{kind}-0.png"]} for kind in KINDS[:3]
    ]
    while len(events) < EVENTS:
        files = [
            f"{draw.choice(KINDS)}-{draw.randrange(14)}.png" for _ in range(draw.randint(1, 4))
        ]
        number = draw.randint(1, 4)
        events.append(
            draw.choice(
                [
                    {"kind": "answer", "set": [[draw.choice([-1, 0, 1, 2, 3]), files]]},
                    {"kind": "not", "class": number, "images": files},
                    {"kind": "new", "name": f"new {len(events)}", "images": files},
                    {"kind": "rename", "class": number, "name": f"renamed {len(events)}"},
                    {"kind": "merge", "class": number, "into": draw.randint(1, 3)},
                    {"kind": "reject", "value": draw.choice([0.02, 0.1, 0.2])},
                    {"kind": draw.choice(["undo", "redo"])},
                ]
            )
        )
    return events


def numbered(event: dict[str, Any], images: dict[str, int]) -> dict[str, Any]:
    """The event, with numbers of images instead of names."""
    made = dict(event)
    if "images" in made:
        made["images"] = [images[name] for name in made["images"]]
    if "set" in made:
        made["set"] = [[value, [images[name] for name in names]] for value, names in made["set"]]
    return made


class Server:
    """A process of the command, until it is killed."""

    def __init__(self, shared: Path, folder: Path) -> None:
        self.folder = folder
        Path(f"{folder}.out").unlink(missing_ok=True)  # the address of the one before
        self.child = chaos.start(chaos.COMMANDS["label"], shared, folder)

    def __enter__(self) -> "Server":
        return self

    def kill(self) -> None:
        os.kill(self.child, signal.SIGKILL)  # it has not been waited for, if it has ended

    def __exit__(self, *_: object) -> None:
        self.kill()
        code = chaos.wait(self.child, chaos.SLOWEST)
        said = Path(f"{self.folder}.err").read_text()
        assert code == -signal.SIGKILL, f"label ended with {code} in {self.folder}:\n{said}"

    def alive(self) -> bool:
        return os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def connect(self) -> Client:
        """As soon as the whole pile has been read."""
        client = connected(Path(f"{self.folder}.out"), self.alive)
        if client is None:
            raise ConnectionError("it was killed")
        client.until(lambda state: state["rows"] == IMAGES, chaos.SLOWEST)
        return client


def post(client: Client, events: list[dict[str, Any]], acknowledged: list[int]) -> None:
    """All that follow the acknowledged ones; the numbers that the server gave them."""
    images = client.names()
    for place in range(len(acknowledged), len(events)):
        body = {**numbered(events[place], images), "key": f"key-{place}"}
        status, _, content = client.ask("/answer", body)
        assert status in (200, 409), content  # 409: it does not fit the state, whoever asks
        acknowledged.append(json.loads(content)["event"] if status == 200 else 0)


def shown(client: Client, last: int) -> dict[str, Any]:
    """What a page shows of the answers up to the last one, by names."""
    state = client.until(lambda state: state["event"] == last, chaos.SLOWEST)
    names = {number: name for name, number in client.names().items()}
    said = {names[i]: s for i, s in zip(state["image"], state["said"], strict=True)}
    classes = dict(enumerate(name for _, name in state["classes"]))
    excluded = {name: client.json(f"/image/{number}")["not"] for number, name in names.items()}
    return {
        "answers": {name: classes.get(value, value) for name, value in said.items()},
        "not": excluded,
        "classes": state["classes"],
        "last": last,
    }


def check_kept(folder: Path, acknowledged: list[int]) -> None:
    """Every acknowledged answer is on the disk, at its number, and none is there twice."""
    look = Path(f"{folder}.look")
    look.mkdir()
    for path in (folder / "out").glob("labels.sqlite*"):  # a look at the file itself would mend it
        shutil.copy(path, look)
    rows: list[tuple[int, str]] = []
    if (look / "labels.sqlite").exists():
        with (
            contextlib.closing(sqlite3.connect(look / "labels.sqlite")) as database,
            contextlib.suppress(sqlite3.OperationalError),  # killed before the first table
        ):
            rows = database.execute("SELECT number, key FROM events ORDER BY number").fetchall()
    shutil.rmtree(look)
    kept = [(number, f"key-{place}") for place, number in enumerate(acknowledged) if number]
    assert rows[: len(kept)] == kept, f"acknowledged {kept}, but {rows} are in {folder}"
    assert len(rows) <= len(kept) + 1, f"{rows} are in {folder}, but only {kept} were posted"


def undisturbed(shared: Path, folder: Path) -> float:
    """Post all answers to a server in peace; the seconds that it took."""
    folder.mkdir(parents=True)
    chaos.own_pile(shared, folder)
    begun = time.monotonic()
    with Server(shared, folder) as server:
        client = server.connect()
        acknowledged: list[int] = []
        post(client, script(), acknowledged)
        took = time.monotonic() - begun
        found = shown(client, max(acknowledged))
    folder.with_suffix(".json").write_text(json.dumps(found))
    return took


@contextlib.contextmanager
def killed_after(server: Server, seconds: float) -> Iterator[None]:
    timer = threading.Timer(seconds, server.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def a_round(name: str, shared: Path, work: Path, seed: int, seconds: float) -> int:
    """Kill and start again until all answers are acknowledged; the kills it survived."""
    draw, folder = random.Random(seed), work / f"round-{seed}"
    folder.mkdir()
    chaos.own_pile(shared, folder)
    events, acknowledged, kills = script(), list[int](), 0
    while len(acknowledged) < len(events):
        patient = kills >= chaos.MOST_KILLS
        instant = chaos.SLOWEST if patient else draw.uniform(0, seconds)
        gone = contextlib.nullcontext() if patient else contextlib.suppress(*GONE)
        with Server(shared, folder) as server, killed_after(server, instant), gone:
            post(server.connect(), events, acknowledged)
        kills += 1  # by the timer, or after the last answer
        check_kept(folder, acknowledged)
    with Server(shared, folder) as server:
        found = shown(server.connect(), max(acknowledged))
    expected = json.loads((work / "whole.json").read_text())
    assert found == expected, f"{name}, seed {seed}: {found} in {folder}, not {expected}"
    return kills
