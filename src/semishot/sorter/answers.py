"""Answers given in the page of `label`: events in SQLite, on disk before acknowledged, and their fold.

The table `events` is only appended to. Undo and redo are events too: the state is what the events that
are not undone add up to, so a history of any length can be walked back and forth, and a kill at any instant
leaves the events that were committed.
"""

import json
import time

from semishot.errors import InputError
from semishot.sorter.answer_events import Event, checked
from semishot.sorter.answer_state import ConflictError, State, Step, step_of, take_over
from semishot.sorter.labels_database import Database


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
            event = self._checked_saved(number, body)
            self._take(event, self._step(event))
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
            take_over(self.state, last.before)
            self.undone.append(last)
        elif kind == "redo":
            last = self.undone.pop()
            take_over(self.state, last.after)
            self.done.append(last)
        elif step is not None:
            take_over(self.state, step.after)
            self.done.append(step)
            self.undone.clear()
            if kind == "new":
                self.next_class = max(self.next_class, event["class"] + 1)
