"""A labeling session: accepts answers, publishes versioned predictions.

One thread learns. After each answer, and when images have arrived, it learns anew and publishes
`Predictions`; answers that come meanwhile are taken together into the next ones.
"""

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from semishot.errors import InputError, reason_of
from semishot.label.layout import layout
from semishot.label.pile import PileReader
from semishot.label.predictions import PredictedPile, Predictions, no_predictions
from semishot.sorter.audit import audit_result, to_look_at
from semishot.sorter.label_events import (
    NONE,
    UNANSWERED,
    ConflictError,
    GiveAnswers,
    LabelEvent,
    LabelState,
    NewClass,
    RuleOut,
    images_in,
)
from semishot.sorter.labels import LabelStore

FIRST = 100
"""Images after which labeling begins."""
GROWTH, PATIENCE = 1.25, 15.0
"""While images arrive, all are learned anew when there are more by this factor, or after these seconds."""
SLOWEST = 60.0
"""Seconds to wait for predictions that take all answers into account."""
PAUSE = 0.5
"""Seconds without an answer after which kinds are found."""
MOST_WAITING = 12
"""Images of an audit that the page knows of beforehand."""


class NotReadyError(InputError):
    """An answer about an image that may still be read: a page from before a restart sends it again."""


class LabelingSession:
    """Answers, images and the learning thread."""

    def __init__(self, store: LabelStore, reader: PileReader) -> None:
        self.store, self.reader, self.images = store, reader, reader.images
        self.epoch = secrets.token_hex(8)
        """Differs each time the server starts: versions count anew."""
        self.wake = threading.Event()
        self.stopping = threading.Event()
        self.published = threading.Condition()
        self.pile, self.grown_at = PredictedPile(reader.images), 0.0
        self.laying_out, self.map = threading.Lock(), layout(np.empty((0, 1)))
        self.problem = ""
        self.predictions = no_predictions(0, 0, LabelState(), np.empty(0, np.int64))
        self.payload = self._payload()
        self.publishing = threading.Lock()
        self.threads = [
            threading.Thread(target=self._run, name="learning", daemon=True),
            threading.Thread(target=self._group, name="kinds", daemon=True),
        ]

    def start(self) -> None:
        self.reader.changed = self.wake.set
        self.reader.thread.start()
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self._notify()
        self.wake.set()
        for thread in self.threads:
            thread.join(10)
        self.reader.stop()

    def answer(self, event: LabelEvent, key: str | None = None) -> int:
        """Commit an answer; the number of its event. Near copies that are grouped share it."""
        if any(not self.is_known(image) for image in images_in(event)):
            if self.reader.progress.phase in ("listing", "reading"):
                raise NotReadyError("this image has not been read yet")
            raise ConflictError("this image is not in the pile")
        self.store.add(self._with_copies(event), key)
        self.wake.set()
        return self.store.version

    def is_known(self, image: int) -> bool:
        """Whether an image is of this pile."""
        return image in self.images.row_of

    def _with_copies(self, event: LabelEvent) -> LabelEvent:
        """The event, said of near copies too, of those whose answer was the same until now."""
        predictions, answers = self.predictions, self.store.state.answers

        def whole(images: Sequence[int]) -> list[int]:
            named = dict.fromkeys(images)
            rows = np.isin(predictions.images, list(images)) & predictions.has_copies
            for row in np.flatnonzero(rows).tolist():
                value = answers.get(int(predictions.images[row]))
                group = predictions.images[predictions.groups == predictions.groups[row]].tolist()
                named.update(dict.fromkeys(i for i in group if answers.get(i) == value))
            return list(named)

        if isinstance(event, GiveAnswers):
            pairs = [(value, whole(images)) for value, images in event.answers]
            return msgspec.structs.replace(event, answers=pairs)
        if isinstance(event, NewClass | RuleOut):
            return msgspec.structs.replace(event, images=whole(event.images))
        return event

    def _notify(self) -> None:
        with self.published:
            self.published.notify_all()

    def _run(self) -> None:
        while not self.stopping.is_set():
            self.wake.wait(1.0)
            self.wake.clear()
            try:
                self.store.catch_up()
                if self.predictions.event != self.store.version or self._arrived():
                    self._publish()
                    self.problem = ""
            except Exception as error:  # shown on the page: the answers are safe on disk
                self.problem = f"cannot sort the pile ({reason_of(error)})"
                self._notify()

    def _arrived(self) -> bool:
        """Whether files have changed, or so many are new that all are learned anew."""
        count = len(self.images.images)
        if count == self.pile.count:
            return self.images.stamp != self.pile.seen_stamp
        return self._enough(count)

    def _enough(self, count: int) -> bool:
        if self.reader.progress.phase == "ready":
            return True
        late = time.monotonic() - self.grown_at > PATIENCE
        return count >= FIRST and (late or count >= GROWTH * self.pile.count)

    def _publish(self) -> None:
        self._import_names()
        count = len(self.images.images)
        if count != self.pile.count and self._enough(count):
            self.pile.grow(count)
            self.grown_at = time.monotonic()
        self.pile.look_at_files()
        with self.store.lock:
            state, event = self.store.state.copy(), self.store.version
        with self.publishing:
            self.predictions = self.pile.predict(state, event, self.predictions.version + 1)
            self.payload = self._payload()
        self._notify()

    def _group(self) -> None:
        """In a thread of its own, when nobody is answering: kinds, and near copies of a large pile."""
        done = 0
        while not self.stopping.is_set():
            with self.published:
                self.published.wait_for(lambda: self.predictions.version != done, 1.0)  # noqa: B023
                known = self.predictions
                answered = self.published.wait_for(lambda: self.predictions is not known, PAUSE)  # noqa: B023
            if known.version == done or answered:
                continue
            try:
                if self.pile.look_for_copies:
                    self.pile.find_copies()
                    self.wake.set()
                    continue
                kinds = self.pile.find_kinds(known)
            except Exception as error:  # shown on the page
                self.problem = f"cannot group the pile ({reason_of(error)})"
                kinds = []
            with self.publishing:
                self.pile.kinds, done = kinds, known.version
                if self.predictions is known:
                    done += 1
                    self.predictions = replace(known, version=done, kinds=kinds)
                    self.payload = self._payload()
            self._notify()

    def places(self) -> bytes:
        """The map: two float32 for each row."""
        with self.laying_out:
            count = self.pile.count
            if len(self.map) != count:
                self.map = layout(self.images.features[:count])
            return self.map.tobytes()

    def decisions(self) -> dict[int, int]:
        """Image -> class, or NONE, of those of which something is known."""
        return self._decided(self.caught_up())

    def _decided(self, known: Predictions) -> dict[int, int]:
        numbers = np.array([*known.classes, NONE, UNANSWERED])  # by negative index
        rows = known.decisions()[0]
        pairs = zip(known.images.tolist(), numbers[rows].tolist(), strict=True)
        return {image: value for image, value in pairs if value != UNANSWERED}

    def _import_names(self) -> None:
        """The classes of --names, as soon as their features are known."""
        if not self.pile.names and (names := self.images.names):
            numbers = self.store.name_classes(names)
            self.pile.names = dict(zip(numbers, names.values(), strict=True))

    def wait_until(self, good: Callable[[Predictions], bool], seconds: float) -> None:
        """Wait for predictions like these, unless a problem or the end keeps them away."""

        def over() -> bool:
            return good(self.predictions) or bool(self.problem) or self.stopping.is_set()

        with self.published:
            self.published.wait_for(over, seconds)

    def caught_up(self) -> Predictions:
        """The predictions, once they take into account all answers given until now."""
        self.store.check_present()  # what comes out must not make a folder anew that was deleted
        wanted = self.store.version
        self.wait_until(lambda known: known.event >= wanted, SLOWEST)
        if self.predictions.event < wanted:
            raise NotReadyError(self.problem or "the pile is still being sorted; try again")
        return self.predictions

    def _audit(self) -> dict[str, Any] | None:
        """What the audit that has begun shows so far, and the next images to judge."""
        state = self.store.state
        if state.audit is None:
            return None
        result = audit_result(state, self._decided(self.predictions))
        assert result is not None
        waiting = islice((i for i in to_look_at(state) if self.is_known(i)), MOST_WAITING)
        ahead = [(image, state.audit.decisions[image]) for image in waiting]
        return {**result.as_json(), "line": result.line(), "waiting": ahead}

    def _payload(self) -> bytes:
        """The predictions for the page."""
        store = self.store
        with store.lock:  # an answer may arrive right now
            about = {
                "epoch": self.epoch,
                "pile": store.name,
                "undo": store.title,
                "audit": self._audit(),
                "skipped": len(self.reader.skipped) + len(self.reader.unlisted),
                "redo": store.next_title,
            }
        return self.pile.for_the_page(self.predictions, about)
