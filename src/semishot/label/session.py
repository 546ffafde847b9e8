"""Labeling while it goes on: answers are taken, and the judged pile is published in versions.

One thread judges. After each answer, and when images have arrived, it learns anew and publishes a
`Snapshot`; answers that come meanwhile are judged together in the next one.
"""

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from semishot.errors import InputError, reason_of
from semishot.label.judged_pile import JudgedPile
from semishot.label.last_view import keep_view, kept_view
from semishot.label.outside_labels import OutsideLabels
from semishot.label.pile_reader import PileReader
from semishot.label.snapshot import Snapshot, for_the_page, nothing, of_kept_view
from semishot.sorter.answer_events import Event, checked, images_in
from semishot.sorter.answer_state import ConflictError, State
from semishot.sorter.answers import Answers

FIRST = 100
"""Images after which labeling begins."""
GROWTH, PATIENCE = 1.25, 15.0
"""While images arrive, the pile is judged anew when it has grown by this factor, or after these seconds."""
SLOWEST = 60.0
"""Seconds to wait for the judging of what has been answered."""


class NotReadyError(InputError):
    """An answer about an image that may still be read: a page from before a restart sends it again."""


class Session:
    """Answers, images and the judging thread; `listeners` are called with each new version."""

    def __init__(self, answers: Answers, reader: PileReader) -> None:
        self.answers, self.reader, self.rows = answers, reader, reader.rows
        self.epoch = secrets.token_hex(8)
        """Differs each time the server starts: versions count anew."""
        self.listeners: list[Callable[[], None]] = []
        self.wake = threading.Event()
        self.stopping = threading.Event()
        self.published = threading.Condition()
        self.pile, self.judged_at = JudgedPile(reader.rows), 0.0
        self.outside_labels = OutsideLabels(answers, reader)
        self.problem = ""
        self.early = False
        """Whether the snapshot is that of the last time."""
        self.kept_version = 0
        self.snapshot = nothing(0, 0, State(), np.empty(0, np.int64))
        self._take_kept()
        self.payload = self._payload()
        self.dirty = True
        self.thread = threading.Thread(target=self._run, name="judge", daemon=True)

    def _take_kept(self) -> None:
        """What the last run showed, if the answers are still the same."""
        request, answers = self.reader.request, self.answers
        kept = kept_view(request, answers.database.name, answers.version)
        if kept is None:
            return
        about, held = kept
        self.early, self.pile.flags, self.pile.copies = True, held["flags"], held["copies"]
        self.snapshot = of_kept_view(about, held, answers.version, answers.state)
        self.pile.questions.images = list(self.snapshot.asked)

    def start(self) -> None:
        self.reader.changed = self._images_changed
        self.reader.start()
        self.thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self._notify()
        self.wake.set()
        self.thread.join(10)
        self.reader.stop()

    def answer(self, body: object, key: str | None = None) -> int:
        """Commit an answer; the number of its event. Near copies that are grouped share it."""
        event = checked(body)
        known = self.rows.row_of
        unknown = [image for image in images_in(event) if image not in known]
        if unknown and not (self.early and np.isin(unknown, self.snapshot.images).all()):
            if self.reader.progress.phase in ("listing", "reading"):
                raise NotReadyError("this image has not been read yet")
            raise ConflictError("this image is not in the pile")
        event = self._with_copies(event)
        if self.answers.add(event, key):
            self.outside_labels.answered_since.update(images_in(event))
            self.dirty = True
            self.wake.set()
        return self.answers.version

    def is_known(self, image: int) -> bool:
        """Whether an image is of the pile, now or, until it has been looked at, the last time."""
        if image in self.rows.row_of:
            return True
        return self.early and bool((self.snapshot.images == image).any())

    def _with_copies(self, event: Event) -> Event:
        """The event, said of near copies too, of those whose answer was the same until now."""
        snapshot, held = self.snapshot, self.answers.state.answers
        if event["kind"] == "apart" or not snapshot.has_copies.any():
            return event

        def whole(images: Sequence[int]) -> list[int]:
            found = dict.fromkeys(images)
            rows = np.flatnonzero(np.isin(snapshot.images, list(images)) & snapshot.has_copies)
            for row in rows.tolist():
                value = held.get(int(snapshot.images[row]))
                same = snapshot.images[snapshot.groups == snapshot.groups[row]].tolist()
                found.update(dict.fromkeys(i for i in same if held.get(i) == value))
            return list(found)

        if "images" in event:
            event = {**event, "images": whole(event["images"])}
        if "set" in event:
            event = {**event, "set": [[value, whole(images)] for value, images in event["set"]]}
        return event

    def _images_changed(self) -> None:
        self.wake.set()
        self._tell()

    def _tell(self) -> None:
        for listener in list(self.listeners):
            listener()

    def _run(self) -> None:
        while not self.stopping.is_set():
            self.wake.wait(1.0)
            self.wake.clear()
            try:
                if self.early and self.reader.progress.phase == "listing":
                    continue
                if self.dirty or self._arrived():
                    self.dirty = False
                    self._publish()
                    self.problem = ""
                elif self.pile.look_for_copies:
                    self.pile.find_copies()
                    self._publish()
                elif self.kept_version != self.snapshot.version:
                    self._keep()
            except Exception as error:  # shown on the page: the answers are safe on disk
                self.problem = f"cannot judge the pile ({reason_of(error)})"
                self._notify()
                self._tell()

    def _keep(self) -> None:
        """When nothing else is to be done: the next start begins with what is shown now."""
        self.kept_version = self.snapshot.version
        if self.reader.progress.phase == "ready" and self.snapshot.event == self.answers.version:
            with contextlib.suppress(OSError):  # only the next start is slower
                keep_view(self.reader.request, self.snapshot.event, self.payload)

    def _arrived(self) -> bool:
        """Whether enough new images are there to look at all of them anew."""
        rows, ready = len(self.rows.images), self.reader.progress.phase == "ready"
        if rows == self.pile.count:
            return self.rows.stamp != self.pile.seen_stamp
        late = time.monotonic() - self.judged_at > PATIENCE
        enough = rows >= FIRST and (rows >= GROWTH * self.pile.count or late)
        return ready or enough

    def _publish(self) -> None:
        self.outside_labels.take()
        rows = len(self.rows.images)
        if self._grown(rows):
            self.pile.grow(rows)
            self.judged_at = time.monotonic()
        self.pile.look_at_rows()
        self.snapshot, self.early = self._judged(), False
        self.payload = self._payload()
        self._notify()
        self._tell()

    def _notify(self) -> None:
        with self.published:
            self.published.notify_all()

    def caught_up(self) -> Snapshot:
        """The snapshot, once it takes into account all answers given until now."""
        wanted = self.answers.version

        def judged() -> bool:
            return self.snapshot.event >= wanted or bool(self.problem) or self.stopping.is_set()

        with self.published:
            self.published.wait_for(judged, SLOWEST)
        if self.snapshot.event < wanted:
            raise NotReadyError(self.problem or "the pile is still being sorted; try again")
        return self.snapshot

    def _grown(self, rows: int) -> bool:
        return rows != self.pile.count and (
            self.reader.progress.phase == "ready" or rows >= max(FIRST, GROWTH * self.pile.count)
        )

    def _judged(self) -> Snapshot:
        """Learn from the answers as they are now."""
        with self.answers.database.lock:
            held, event = self.answers.state, self.answers.version
            state = replace(
                held,
                classes=dict(held.classes),
                answers=dict(held.answers),
                excluded=dict(held.excluded),
            )
        return self.pile.judged(state, event, self.snapshot.version + 1)

    def _payload(self) -> bytes:
        """The snapshot for the page."""
        answers = self.answers
        with answers.database.lock:  # an answer may arrive right now
            about = {
                "epoch": self.epoch,
                "pile": answers.database.name,
                "undo": answers.done[-1].title if answers.done else None,
                "redo": answers.undone[-1].title if answers.undone else None,
            }
        return for_the_page(
            self.snapshot, about, {"flags": self.pile.flags, "copies": self.pile.copies}
        )
