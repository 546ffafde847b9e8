"""OUT/labels.sqlite: what the user said, in one place; `classify` and `label` read and write it.

An image is known by its content, so copies of a file are one image, and a file that was renamed keeps its
label. The table `events` is only appended to, and an event is on disk before it is acknowledged. Undo and
redo are events too: the state is what the events that are not undone add up to.
"""

import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from semishot.errors import InputError
from semishot.sorter.label_events import (
    NONE,
    UNANSWERED,
    Change,
    ConflictError,
    Event,
    LabelState,
    change_of,
    checked,
)
from semishot.sorter.listing import STRANGER
from semishot.sorter.requests import ANSWERS
from semishot.system.databases import connect

DATABASE = ANSWERS
SCHEMA = (
    "CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE events (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, "
    "key TEXT UNIQUE, body TEXT NOT NULL)",
    "CREATE TABLE images (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE)",
    "CREATE TABLE files (path BLOB PRIMARY KEY, image INTEGER NOT NULL, size INTEGER NOT NULL, "
    "changed INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE imported (image INTEGER, label TEXT, PRIMARY KEY (image, label)) WITHOUT ROWID",
)
"""imported: what --labeled said the last time."""
FileStatus = tuple[int, int]
"""Size of a file, and when it was changed, in nanoseconds."""


class LostDatabaseError(InputError):
    """The file of labels is no longer where it was opened."""


class SeenFile(NamedTuple):
    """A file when it was last read."""

    image: int
    size: int
    changed: int
    """In nanoseconds."""


def status_of(path: Path) -> FileStatus | None:
    """Size and time of a file; None if it is gone."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns


def open_store(out: Path) -> "LabelStore":
    """OUT/labels.sqlite, made if needed; a file of another kind is refused."""
    path = out / DATABASE
    try:
        return LabelStore(path)
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"cannot read {path} ({error}): it is damaged, or not semishot's; move it away, or choose "
            "another --out"
        ) from error


class LabelStore:
    """The labels, and the only way to change them: `add` an event. Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, threading.RLock()
        self.connection = connect(path, SCHEMA)
        try:
            self.file = _file_at(path)
            self.connection.execute("PRAGMA synchronous=FULL")  # a commit is on disk
            with self.transaction() as connection:
                name = secrets.token_hex(8)
                connection.execute("INSERT OR IGNORE INTO about VALUES ('name', ?)", (name,))
            self.name = str(self.about("name"))
            """Random: tells this store from others."""
            self._restart()
            self.images: dict[bytes, int] = {}
            self._read_images()
            self.files: dict[str, SeenFile] = {
                os.fsdecode(name): SeenFile(*rest)
                for name, *rest in self.rows("SELECT path, image, size, changed FROM files")
            }
        except BaseException:
            self.connection.close()
            raise

    def check_present(self) -> None:
        if _file_at(self.path) != self.file:
            raise LostDatabaseError(f"{self.path} was moved or deleted: nothing can be kept")

    def close(self) -> None:
        with self.lock:
            self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Other processes wait; what is written is on disk when the block ends, or not at all."""
        with self.lock:
            self.check_present()  # what is written otherwise would be in no folder
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

    def about(self, key: str) -> str | None:
        """What was remembered under this key."""
        values = self.rows("SELECT value FROM about WHERE key = ?", key)
        return str(values[0][0]) if values else None

    def remember(self, key: str, value: str) -> None:
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (key, value))

    # Events

    def _restart(self) -> None:
        """Read all events."""
        self.state = LabelState()
        self.done: list[Change] = []
        self.undone: list[Change] = []
        self.next_class, self.version = 1, 0
        """version: the number of the last event."""
        self.catch_up()

    def catch_up(self) -> bool:
        """Apply the events that another process has added; whether there were any."""
        with self.lock:
            query = "SELECT number, body FROM events WHERE number > ? ORDER BY number"
            events = self.rows(query, self.version)
            for number, body in events:
                try:
                    self._apply(checked(json.loads(body)))
                except (ValueError, RecursionError) as error:
                    raise InputError(
                        f"{self.path}, event {number}: {error}; it is damaged"
                    ) from error
                self.version = number
            return bool(events)

    def add(self, event: Event, key: str | None = None) -> bool:
        """Commit an event and apply it. False: this key was committed before, by a repeated request."""
        event = checked(event)
        with self.lock:
            try:
                with self.transaction() as connection:
                    query = "SELECT 1 FROM events WHERE key = ?"
                    if key is not None and connection.execute(query, (key,)).fetchone():
                        return False
                    self.catch_up()
                    if event["kind"] == "new":
                        event = {**event, "class": self.next_class}
                    self._apply(event)  # raises before anything is written
                    row = (time.time(), key, json.dumps(event, separators=(",", ":")))
                    query = "INSERT INTO events (at, key, body) VALUES (?, ?, ?)"
                    self.version = int(connection.execute(query, row).lastrowid or 0)
            except sqlite3.Error:  # a full disk: what was applied is not stored
                self._restart()
                raise
        return True

    def _apply(self, event: Event) -> None:
        kind = event["kind"]
        if kind in ("undo", "redo"):
            ways = (self.done, self.undone)
            source, target = ways if kind == "undo" else reversed(ways)
            if not source:
                raise ConflictError(f"nothing to {kind}")
            change = source.pop()
            self.state.update(change.before if kind == "undo" else change.after)
            target.append(change)
            return
        change = change_of(self.state, event)
        self.state.update(change.after)
        if kind == "reject" and self.done and "reject" in self.done[-1].after:
            change = replace(change, before=self.done.pop().before)  # the slider moves on: one step
        self.done.append(change)
        self.undone.clear()
        if kind == "new":
            self.next_class = max(self.next_class, event["class"] + 1)

    # Images and their files

    def _read_images(self) -> None:
        """Images that are new since the last time; their numbers are 1, 2 and so on."""
        query = "SELECT digest, id FROM images WHERE id > ?"
        self.images.update((bytes(d), i) for d, i in self.rows(query, len(self.images)))

    def digests(self) -> dict[int, bytes]:
        return {number: digest for digest, number in self.images.items()}

    def numbers(self, digests: Sequence[bytes]) -> list[int]:
        """The number of each image, for good; new ones are written down first."""
        new = [(digest,) for digest in dict.fromkeys(digests) if digest not in self.images]
        if new:
            with self.transaction() as connection:
                connection.executemany("INSERT OR IGNORE INTO images (digest) VALUES (?)", new)
            self._read_images()
        return [self.images[digest] for digest in digests]

    def remember_files(self, files: Iterable[tuple[str, SeenFile]]) -> None:
        """Note which image each file holds; its size and time say whether it must be read again."""
        fresh = {name: seen for name, seen in files if self.files.get(name) != seen}
        if not fresh:
            return
        rows = [(os.fsencode(name), *seen) for name, seen in fresh.items()]
        with self.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", rows)
        self.files.update(fresh)

    # Labels by the names of classes

    def label_of(self, digest: bytes) -> str | None:
        """What the user said of an image: a class, `stranger`, or nothing."""
        answer = self.state.answers.get(self.images.get(digest, 0))
        if answer is None:
            return None
        return STRANGER if answer == NONE else self.state.classes[answer]

    def number_of(self, label: str) -> int | None:
        """The class of this name, in any case; NONE for `stranger`."""
        numbers = {name.casefold(): number for number, name in self.state.classes.items()}
        return (numbers | {STRANGER: NONE}).get(label.casefold())

    def import_labels(self, labels: Mapping[bytes, str]) -> None:
        """Take over all that --labeled says now.

        What it did not say the last time becomes an answer. What it no longer says is taken back, if the
        answer is still that one. So what was changed or cleared on the page since stays as it is.
        """
        now = set(zip(self.numbers(list(labels)), labels.values(), strict=True))
        before = {(int(n), str(s)) for n, s in self.rows("SELECT image, label FROM imported")}
        with self.lock:
            self.catch_up()
            numbers = {label: self.number_of(label) for _, label in before - now}
            answers = set(self.state.answers.items())
            same = sorted(i for i, label in before - now if (i, numbers[label]) in answers)
            if same:
                self.add({"kind": "answer", "set": [(UNANSWERED, same)]})
            for number in sorted({number for number in numbers.values() if number}):
                if number not in self.state.answers.values():  # its folder was renamed or removed
                    self.add({"kind": "delete", "class": number})
            self._answer(now - before)
        if now != before:
            with self.transaction() as connection:
                connection.execute("DELETE FROM imported")
                connection.executemany("INSERT INTO imported VALUES (?, ?)", now)

    def correct(self, labels: Mapping[bytes, str]) -> None:
        """Answer as if clicked."""
        self._answer(set(zip(self.numbers(list(labels)), labels.values(), strict=True)))

    def name_classes(self, names: Iterable[str]) -> list[int]:
        """The numbers of the classes of these names, which are made if needed."""
        with self.lock:
            self.catch_up()
            for name in names:
                if self.number_of(name) is None:
                    self.add({"kind": "new", "name": name, "images": []})
            return [self.number_of(name) or NONE for name in names]

    def _answer(self, statements: Iterable[tuple[int, str]]) -> None:
        """Answers by the names of classes, which are made if needed."""
        of_label: dict[str, list[int]] = {}
        for image, label in sorted(statements):
            of_label.setdefault(label, []).append(image)
        labels = sorted(of_label)
        answers: dict[int, list[int]] = {}
        with self.lock:
            for label, number in zip(labels, self.name_classes(labels), strict=True):
                fresh = [i for i in of_label[label] if self.state.answers.get(i) != number]
                answers.setdefault(number, []).extend(fresh)
            if any(answers.values()):
                self.add({"kind": "answer", "set": [(n, own) for n, own in answers.items() if own]})


def _file_at(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one of the same name."""
    try:
        about = path.lstat()
    except FileNotFoundError:
        return None
    return about.st_dev, about.st_ino
