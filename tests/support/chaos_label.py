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
from pathlib import Path
from typing import Any

from support import chaos
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
        files = [f"{draw.choice(KINDS)}-{draw.randrange(14)}.png" for _ in range(3)]
        number, name = draw.randint(1, 4), f"name {len(events)}"
        choices: list[dict[str, Any]] = [
            {"kind": "answer", "set": [[draw.choice([-1, 0, 1, 2, 3]), files]]},
            {"kind": "not", "class": number, "images": files},
            {"kind": "new", "name": name, "images": files},
            {"kind": "rename", "class": number, "name": name},
            {"kind": "merge", "class": number, "into": draw.randint(1, 3)},
            {"kind": "reject", "value": draw.choice([0.02, 0.1, 0.2])},
            {"kind": draw.choice(["undo", "redo"])},
        ]
        events.append(draw.choice(choices))
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
    """A process of the command, which is killed in the end."""

    def __init__(self, shared: Path, folder: Path) -> None:
        self.folder, self.printed = folder, Path(f"{folder}.out")
        self.printed.unlink(missing_ok=True)  # the address of the one before
        self.child = chaos.start(chaos.COMMANDS["label"], shared, folder)

    def __enter__(self) -> "Server":
        return self

    def kill(self) -> None:
        os.kill(self.child, signal.SIGKILL)  # it has not been waited for, if it has ended

    def __exit__(self, *_: object) -> None:
        self.kill()
        code = chaos.wait(self.child, chaos.SLOWEST)
        errors = Path(f"{self.folder}.err").read_text()
        assert code == -signal.SIGKILL, f"label ended with {code} in {self.folder}:\n{errors}"

    def connect(self) -> Client:
        """As soon as the whole pile has been read."""
        while os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            text = self.printed.read_text() if self.printed.exists() else ""
            if "token=" in text and text.endswith("\n"):
                client = Client(text.split()[-1])
                client.until(lambda state: state["rows"] == IMAGES, chaos.SLOWEST)
                return client
            time.sleep(0.005)
        raise ConnectionError("it was killed")


def post(client: Client, events: list[dict[str, Any]], acknowledged: list[int]) -> None:
    """All that follow the acknowledged ones; the numbers that the server gave them."""
    images = client.names()
    for index in range(len(acknowledged), len(events)):
        body = {**numbered(events[index], images), "key": f"key-{index}"}
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
    kept = [(number, f"key-{index}") for index, number in enumerate(acknowledged) if number]
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


def a_round(name: str, shared: Path, work: Path, seed: int, seconds: float) -> int:
    """Kill and start again until all answers are acknowledged; the kills it survived."""
    draw, folder = random.Random(seed), work / f"round-{seed}"
    folder.mkdir()
    chaos.own_pile(shared, folder)
    events, acknowledged, kills = script(), list[int](), 0
    while len(acknowledged) < len(events):
        patient = kills >= chaos.MOST_KILLS
        gone = contextlib.nullcontext() if patient else contextlib.suppress(*GONE)
        with Server(shared, folder) as server, gone:
            instant = chaos.SLOWEST if patient else draw.uniform(0, seconds)
            timer = threading.Timer(instant, server.kill)
            timer.start()
            try:
                post(server.connect(), events, acknowledged)
            finally:
                timer.cancel()
                timer.join()
        kills += 1  # by the timer, or after the last answer
        check_kept(folder, acknowledged)
    with Server(shared, folder) as server:
        found = shown(server.connect(), max(acknowledged))
    expected = json.loads((work / "whole.json").read_text())
    assert found == expected, f"{name}, seed {seed}: {found} in {folder}, not {expected}"
    return kills
