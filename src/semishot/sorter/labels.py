"""OUT/labels.sqlite: what the user said, in one place; `classify` and `label` read and write it.

An image is known by its content, so copies of a file are one image, and a file that was renamed keeps its
label. The table `events` is only appended to, and an event is on disk before it is acknowledged. Undo and
redo are events too: the state is what the events that are not undone add up to.
"""

import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from semishot.errors import InputError
from semishot.sorter.label_events import (
    NONE,
    UNANSWERED,
    AnyEvent,
    ConflictError,
    GiveAnswers,
    LabelEvent,
    LabelState,
    MoveCutoff,
    NewClass,
    Redo,
    RemoveClass,
    Undo,
)
from semishot.sorter.listing import STRANGER
from semishot.sorter.out_folder import DATABASE
from semishot.system.databases import connect
from semishot.system.structs import decode

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
    except sqlite3.OperationalError:  # the disk refuses
        raise
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"cannot read {path} ({error}): it is damaged, or not semishot's; move it away, or choose "
            "another --out"
        ) from error


class LabelStore:
    """The labels, and the only way to change them: `add` an event. Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, threading.RLock()
        self.connection, self.file = connect(path, SCHEMA), path.stat()
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

    def check_present(self) -> None:
        """Refuse to write to a file that is in no folder any more."""
        if not self.path.exists() or not os.path.samestat(self.path.stat(), self.file):
            raise LostDatabaseError(f"{self.path} was moved or deleted: nothing can be kept")

    def close(self) -> None:
        with self.lock:
            self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Other processes wait; what is written is on disk when the block ends, or not at all."""
        with self.lock:
            self.check_present()
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
        self.done: list[LabelEvent] = []
        """What the state follows from."""
        self.undone: list[LabelEvent] = []
        self.title: str | None = None
        """What was done last, in words."""
        self.next_class, self.version = 1, 0
        """version: the number of the last event."""
        self.catch_up()

    def catch_up(self) -> None:
        """Apply the events that another process has added."""
        with self.lock:
            query = "SELECT number, body FROM events WHERE number > ? ORDER BY number"
            rows = self.rows(query, self.version)
            try:
                for self.version, body in rows:
                    self._take(decode(AnyEvent, body, "event"))
                if rows:
                    self._replay()
            except InputError as error:
                raise InputError(
                    f"{self.path}, event {self.version}: {error}; it is damaged"
                ) from error

    def add(self, event: LabelEvent, key: str | None = None) -> bool:
        """Commit an event and apply it. False: this key was committed before, by a repeated request."""
        with self.lock:
            try:
                with self.transaction() as connection:
                    query = "SELECT 1 FROM events WHERE key = ?"
                    if key is not None and connection.execute(query, (key,)).fetchone():
                        return False
                    self.catch_up()
                    if isinstance(event, NewClass):
                        event = msgspec.structs.replace(event, number=self.next_class)
                    title = event.apply(self.state)  # raises before anything is written
                    self._take(event)
                    if isinstance(event, Undo | Redo):
                        self._replay()
                    else:
                        self.title = title
                    row = (time.time(), key, msgspec.json.encode(event).decode())
                    query = "INSERT INTO events (at, key, body) VALUES (?, ?, ?)"
                    self.version = int(connection.execute(query, row).lastrowid or 0)
            except sqlite3.Error:  # a full disk: what was applied is not stored
                self._restart()
                raise
        return True

    def _take(self, event: LabelEvent) -> None:
        """Add an event to `done`, or move one from list to list."""
        if isinstance(event, Undo | Redo):
            lists = (self.done, self.undone)
            source, target = lists if isinstance(event, Undo) else reversed(lists)
            if not source:
                raise ConflictError(f"nothing to {type(event).__name__.lower()}")
            target.append(source.pop())
            return
        if isinstance(event, MoveCutoff) and self.done and isinstance(self.done[-1], MoveCutoff):
            self.done.pop()  # the slider moves on: one step
        self.done.append(event)
        self.undone.clear()
        if isinstance(event, NewClass):
            self.next_class = max(self.next_class, event.number + 1)

    def _replay(self) -> None:
        state, self.title = LabelState(), None
        for event in self.done:
            self.title = event.apply(state)
        self.state = state

    @property
    def next_title(self) -> str | None:
        """What a redo would do, in words."""
        return self.undone[-1].apply(self.state.copy()) if self.undone else None

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
        return None if answer is None else self.state.name_of(answer)

    def number_of(self, label: str) -> int | None:
        """The class of this name, in any case; NONE for `stranger`."""
        numbers = {name.casefold(): number for number, name in self.state.classes.items()}
        return (numbers | {STRANGER: NONE}).get(label.casefold())

    def name_classes(self, names: Iterable[str]) -> list[int]:
        """The numbers of the classes of these names, which are made if needed."""
        with self.lock:
            self.catch_up()
            for name in names:
                if self.number_of(name) is None:
                    self.add(NewClass(name, []))
            return [self.number_of(name) or NONE for name in names]

    def correct(self, labels: Mapping[bytes, str]) -> None:
        """Answer as if clicked."""
        names, answers = sorted(set(labels.values())), dict[int, list[int]]()
        images = self.numbers(list(labels))
        with self.lock:
            number_of = dict(zip(names, self.name_classes(names), strict=True))
            for image, label in sorted(zip(images, labels.values(), strict=True)):
                if self.state.answers.get(image) != number_of[label]:
                    answers.setdefault(number_of[label], []).append(image)
            if answers:
                self.add(GiveAnswers(list(answers.items())))

    def import_labels(self, labels: Mapping[bytes, str]) -> None:
        """Take over all that --labeled says now.

        What it did not say the last time becomes an answer. What it no longer says is taken back, if the
        answer is still that one. So what was changed or cleared on the page since stays as it is.
        """
        now = dict(zip(labels, self.numbers(list(labels)), strict=True))
        said = {(now[digest], label) for digest, label in labels.items()}
        before = {(int(n), str(s)) for n, s in self.rows("SELECT image, label FROM imported")}
        with self.lock:
            self.catch_up()
            dropped = {(image, self.number_of(label)) for image, label in before - said}
            same = sorted(image for image, _ in dropped & self.state.answers.items())
            if same:
                self.add(GiveAnswers([(UNANSWERED, same)]))
            for number in sorted({number for _, number in dropped if number}):
                if number not in self.state.answers.values():  # its folder was renamed or removed
                    self.add(RemoveClass(number))
            self.correct({d: s for d, s in labels.items() if (now[d], s) not in before})
        if said != before:
            with self.transaction() as connection:
                connection.execute("DELETE FROM imported")
                connection.executemany("INSERT INTO imported VALUES (?, ?)", said)
