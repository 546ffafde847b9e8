"""Answers given in the page of `label`: events in SQLite, on disk before acknowledged, and their fold.

The table `events` is only appended to. Undo and redo are events too: the state is what the events that
are not undone add up to, so a history of any length can be walked back and forth, and a kill at any instant
leaves the events that were committed.
"""

import json
import os
import secrets
import sqlite3
import threading
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semishot.errors import InputError, counted
from semishot.sorter.listing import STRANGER
from semishot.system.databases import connect
from semishot.system.real_paths import real_path

__all__ = [
    "NONE",
    "UNANSWERED",
    "Answers",
    "ConflictError",
    "LostDatabaseError",
    "State",
    "answered",
    "open_database",
]

DATABASE = "labels.sqlite"
FORMAT = 1
NONE, UNANSWERED = 0, -1
"""Answers beside the numbers of classes, which begin at 1: none of these; no answer."""
LONGEST_NAME = 100
RESERVED = {"stranger", "-1", "-2"}
"""Labels that mean something else in tables and folders."""
MOST_CLASSES = 1000
REJECT = 0.05
"""The share of true members that may be taken for strangers, until the user moves the slider."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    key TEXT UNIQUE,
    body TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS images (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS files (
    path BLOB PRIMARY KEY,
    image INTEGER NOT NULL,
    size INTEGER NOT NULL,
    changed INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS imported (image INTEGER, label TEXT, PRIMARY KEY (image, label)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS browsers (secret TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID;
"""

Event = dict[str, Any]


class ConflictError(InputError):
    """An answer that does not fit the state any more, such as one about a class that is gone."""


class LostDatabaseError(InputError):
    """The file of answers is no longer where it was opened."""


class Database:
    """One SQLite connection, used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock, self.name = path, threading.RLock(), ""
        self.connection = connect(path)
        self.file = _file_at(path)
        self.connection.execute("PRAGMA synchronous=FULL")  # a commit is on disk, not on its way

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with self.lock:
            if _file_at(self.path) != self.file:  # what is written now would be in no folder
                raise LostDatabaseError(f"{self.path} was moved or deleted: nothing can be kept")
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:  # a full disk may have ended it already
                    self.connection.execute("ROLLBACK")
                raise

    def rows(self, query: str, *values: Any) -> list[Any]:
        with self.lock:
            return self.connection.execute(query, values).fetchall()

    def close(self) -> None:
        with self.lock:
            self.connection.close()


def _file_at(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one at the same place."""
    try:
        about = path.lstat()
    except FileNotFoundError:
        return None
    return about.st_dev, about.st_ino


def open_database(out: Path) -> Database:
    """OUT/labels.sqlite, made if needed; a file of another kind or version is refused."""
    path = out / DATABASE
    try:
        database = Database(path)
        with database.transaction() as connection:
            for statement in SCHEMA.split(";"):
                connection.execute(statement)
            about = [("format", str(FORMAT)), ("name", secrets.token_hex(8))]
            connection.executemany("INSERT OR IGNORE INTO about VALUES (?, ?)", about)
        found = database.rows("SELECT value FROM about WHERE key = 'format'")
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"cannot read {path} ({error}): it is damaged, or not semishot's; move it away, or choose "
            "another --out"
        ) from error
    if found != [(str(FORMAT),)]:
        raise InputError(f"{path} is of another version: format must be {FORMAT}")
    database.name = str(database.rows("SELECT value FROM about WHERE key = 'name'")[0][0])
    return database


@dataclass
class State:
    """What the answers add up to."""

    classes: dict[int, str] = field(default_factory=dict)
    """Number and name of each class, in the order of the page."""
    answers: dict[int, int] = field(default_factory=dict)
    """Image -> class, or NONE."""
    excluded: dict[int, frozenset[int]] = field(default_factory=dict)
    """Image -> the classes that it does not belong to."""
    apart: frozenset[int] = frozenset()
    """Images that are no longer grouped with their near copies."""
    sure: frozenset[int] = frozenset()
    """Images that were given the same answer twice: it is not doubted again."""
    reject: float = REJECT


@dataclass(frozen=True)
class Step:
    """A change of the state: the fields before and after it, of what it touches only."""

    title: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]


class Answers:
    """The state, and the only way to change it: `add` an event."""

    def __init__(self, database: Database) -> None:
        self.database, self.state = database, State()
        self.done: list[Step] = []
        self.undone: list[Step] = []
        self.next_class = 1
        self.version = 0
        """The number of the last event."""
        for number, body in database.rows("SELECT number, body FROM events ORDER BY number"):
            self._apply(self._checked_saved(number, body))
            self.version = number

    def _checked_saved(self, number: int, body: str) -> Event:
        try:
            return checked(json.loads(body))
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{self.database.path}, event {number}: {error}; it is damaged"
            ) from error

    def add(self, event: Event, key: str | None = None) -> bool:
        """Commit an event, then apply it. False: this key was committed before, by a repeated request."""
        event = checked(event)
        with self.database.lock:
            if key is not None and self.database.rows("SELECT 1 FROM events WHERE key = ?", key):
                return False
            if event["kind"] == "new":
                event = {**event, "class": self.next_class}
            step = self._step(event)  # raises before anything is written
            with self.database.transaction() as connection:
                body = json.dumps(event, separators=(",", ":"))
                row = connection.execute(
                    "INSERT INTO events (at, key, body) VALUES (?, ?, ?)", (time.time(), key, body)
                )
            self._take(event, step)
            self.version = int(row.lastrowid or 0)
        return True

    def _apply(self, event: Event) -> None:
        self._take(event, self._step(event))

    def _step(self, event: Event) -> Step | None:
        if event["kind"] in ("undo", "redo"):
            stack = self.done if event["kind"] == "undo" else self.undone
            if not stack:
                raise ConflictError(f"nothing to {event['kind']}")
            return None
        return step_of(self.state, event)

    def _take(self, event: Event, step: Step | None) -> None:
        kind = event["kind"]
        if kind == "undo":
            last = self.done.pop()
            _set(self.state, last.before)
            self.undone.append(last)
        elif kind == "redo":
            last = self.undone.pop()
            _set(self.state, last.after)
            self.done.append(last)
        elif step is not None:
            _set(self.state, step.after)
            self.done.append(step)
            self.undone.clear()
            if kind == "new":
                self.next_class = max(self.next_class, event["class"] + 1)


def _set(state: State, values: Mapping[str, Any]) -> None:
    """Take over whole fields, and the entries of `answers` and `excluded`; None removes an entry."""
    for name, value in values.items():
        if name in ("answers", "excluded"):
            held = getattr(state, name)
            for image, entry in value.items():
                if entry is None:
                    held.pop(image, None)
                else:
                    held[image] = entry
        else:
            setattr(state, name, value)


def step_of(state: State, event: Event) -> Step:
    """What an event changes; ConflictError if it does not fit the state."""
    title, after = CHANGES[event["kind"]](state, event)
    before: dict[str, Any] = {}
    for name, value in after.items():
        now = getattr(state, name)
        entries = name in ("answers", "excluded")
        before[name] = {image: now.get(image) for image in value} if entries else now
    return Step(title, before, after)


def _answer(state: State, event: Event) -> tuple[str, dict[str, Any]]:
    answers: dict[int, int | None] = {}
    for value, images in event["set"]:
        if value > 0:
            _known(state, value)
        answers.update(dict.fromkeys(images, None if value == UNANSWERED else value))
    same = {i for i, value in answers.items() if value and state.answers.get(i) == value}
    sure = (state.sure - answers.keys()) | same
    after: dict[str, Any] = {"answers": answers}
    return counted(len(answers), "answer"), after if sure == state.sure else {
        **after,
        "sure": sure,
    }


def _exclude(state: State, event: Event) -> tuple[str, dict[str, Any]]:
    name = _known(state, event["class"])
    images = event["images"]
    excluded = {i: state.excluded.get(i, frozenset()) | {event["class"]} for i in images}
    freed = {i: None for i in images if state.answers.get(i) == event["class"]}
    return f"not {name}: {counted(len(images), 'image')}", {"excluded": excluded, "answers": freed}


def _new(state: State, event: Event) -> tuple[str, dict[str, Any]]:
    name, number = _free_name(state, event["name"]), event["class"]
    if len(state.classes) >= MOST_CLASSES:
        raise ConflictError(f"{MOST_CLASSES:,} classes are the most; merge or delete some")
    answers = dict.fromkeys(event["images"], number)
    return f"new class {name}", {"classes": {**state.classes, number: name}, "answers": answers}


def _rename(state: State, event: Event) -> tuple[str, dict[str, Any]]:
    before = _known(state, event["class"])
    name = _free_name(state, event["name"], event["class"])
    return f"{before} renamed {name}", {"classes": {**state.classes, event["class"]: name}}


def _merge(state: State, event: Event) -> tuple[str, dict[str, Any]]:
    here, into = event["class"], event["into"]
    names = _known(state, here), _known(state, into)
    if here == into:
        raise ConflictError(f"{names[0]} cannot be merged with itself")
    return f"{names[0]} merged into {names[1]}", _without(state, here, into)


def _delete(state: State, event: Event) -> tuple[str, dict[str, Any]]:
    return f"{_known(state, event['class'])} deleted", _without(state, event["class"], None)


def _without(state: State, number: int, into: int | None) -> dict[str, Any]:
    """All of the state that names a class, naming another one instead, or none."""
    excluded = {i: held - {number} or None for i, held in state.excluded.items() if number in held}
    return {
        "classes": {n: name for n, name in state.classes.items() if n != number},
        "answers": {i: into for i, held in state.answers.items() if held == number},
        "excluded": excluded,
    }


def _reject(state: State, event: Event) -> tuple[str, dict[str, Any]]:
    return "cutoff moved", {"reject": event["value"]}


def _apart(state: State, event: Event) -> tuple[str, dict[str, Any]]:
    images = event["images"]
    return f"{counted(len(images), 'image')} separated", {"apart": state.apart | set(images)}


CHANGES = {
    "answer": _answer,
    "not": _exclude,
    "new": _new,
    "rename": _rename,
    "merge": _merge,
    "delete": _delete,
    "reject": _reject,
    "apart": _apart,
}


def _known(state: State, number: int) -> str:
    if number not in state.classes:
        raise ConflictError("this class is gone: it was merged, deleted or undone")
    return state.classes[number]


def _free_name(state: State, name: str, own: int | None = None) -> str:
    for number, held in state.classes.items():
        if number != own and held.casefold() == name.casefold():
            raise ConflictError(f"there is a class {held} already")
    return name


def checked(event: object) -> Event:
    """An event with the fields of its kind and no others, each of its type."""
    if not isinstance(event, dict):
        raise InputError("an event must be an object")
    kind = event.get("kind")
    if not isinstance(kind, str):
        raise InputError(f"kind must be text, not {kind!r:.40}")
    if kind in ("undo", "redo"):
        return {"kind": kind}
    if kind == "answer":
        return {"kind": kind, "set": _checked_set(event.get("set"))}
    if kind not in CHANGES:
        raise InputError(f"kind must be one of {', '.join(CHANGES)}, undo, redo, not {kind!r:.40}")
    found: Event = {"kind": kind}
    if kind in ("not", "rename", "merge", "delete") or (kind == "new" and "class" in event):
        found["class"] = _checked_number(event.get("class"), "class")
    if kind == "merge":
        found["into"] = _checked_number(event.get("into"), "into")
    if kind in ("new", "rename"):
        found["name"] = checked_name(event.get("name"))
    if kind in ("not", "new", "apart"):
        found["images"] = _checked_images(event.get("images"))
    if kind == "reject":
        value = event.get("value")
        if not isinstance(value, int | float) or not 0 < value < 1:
            raise InputError(f"value must be between 0 and 1, not {value!r:.40}")
        found["value"] = float(value)
    return found


def _checked_set(pairs: object) -> list[list[Any]]:
    if not isinstance(pairs, list) or not all(isinstance(p, list) and len(p) == 2 for p in pairs):
        raise InputError("set must be a list of [answer, images]")
    for value, _ in pairs:
        if value not in (NONE, UNANSWERED) or type(value) is not int:
            _checked_number(value, "answer")
    return [[value, _checked_images(images)] for value, images in pairs]


def _checked_images(images: object) -> list[int]:
    if not isinstance(images, Sequence) or isinstance(images, str):
        raise InputError("images must be a list")
    return [_checked_number(image, "image") for image in images]


def _checked_number(value: object, field: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
        raise InputError(f"{field} must be a number from 1 on, not {value!r:.40}")
    return value


def checked_name(name: object) -> str:
    """A class name as it is kept: one line of printable text."""
    if not isinstance(name, str):
        raise InputError(f"name must be text, not {name!r:.40}")
    found = " ".join(unicodedata.normalize("NFC", name).split())
    if not found or len(found) > LONGEST_NAME:
        raise InputError(
            f"the name of a class has 1 to {LONGEST_NAME} characters, not {len(found)}"
        )
    if not found.isprintable():
        raise InputError("the name of a class must be printable")
    if found.casefold() in RESERVED:
        raise InputError(
            f"a class cannot be called {found}: it stands for images of no class, or no label"
        )
    return found


def images_in(event: Event) -> Iterable[int]:
    """Every image that an event names."""
    yield from event.get("images", ())
    for _, images in event.get("set", ()):
        yield from images


@dataclass(frozen=True)
class Answered:
    """Files by what was answered about them in `label`."""

    labels: dict[Path, str]
    """A class, or `stranger`."""
    taken_back: set[Path]
    """Files whose label or correction was taken over, and taken back in the page."""
    at: float
    """When the last answer was given, in seconds since 1970."""


def answered(out: Path) -> Answered:
    """The answers of `semishot label --out OUT`; nothing, if it was never used."""
    if not (out / DATABASE).exists():
        return Answered({}, set(), 0.0)
    with closing(open_database(out)) as database:
        state = Answers(database).state
        ((at,),) = database.rows("SELECT coalesce(max(at), 0) FROM events")
        imported = {image for (image,) in database.rows("SELECT image FROM imported")}
        about = dict(database.rows("SELECT key, value FROM about"))
        files = database.rows("SELECT path, image FROM files")
    begun_in = Path(about.get("folder", "."))
    names = {NONE: STRANGER, **state.classes}
    labels, taken_back = {}, set()
    for path, image in files:
        place = begun_in / os.fsdecode(path)
        place = real_path(place.parent) / place.name
        if image in state.answers:
            labels[place] = names[state.answers[image]]
        elif image in imported:
            taken_back.add(place)
    return Answered(labels, taken_back, float(at))
