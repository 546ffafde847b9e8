"""A labeling session: accepts answers, publishes versioned predictions.

One thread learns anew from each answer, and from images that have come; answers that come meanwhile are taken
together into the next predictions. Another one finds kinds and near copies when nobody is answering.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from semishot.errors import InputError, reason_of
from semishot.label.pile import WatchedPile
from semishot.label.predictions import (
    NO_ROWS,
    PileRows,
    Predictions,
    for_the_page,
    predict,
    unnamed_kinds,
)
from semishot.label.similarity import layout
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
    """Answers, images, and the threads that learn."""

    def __init__(self, store: LabelStore, pile: WatchedPile) -> None:
        self.store, self.pile = store, pile
        self.epoch = secrets.token_hex(8)
        """Differs each time the server starts: versions count anew."""
        self.wake, self.stopping = threading.Event(), threading.Event()
        self.published = threading.Condition()
        self.rows, self.grown_at = NO_ROWS, 0.0
        self.predictions = predict(self.rows, {}, LabelState(), 0)
        self.kinds: list[list[int]] = []
        self.version, self.problem, self.payload = 0, "", b""
        self.laying_out, self.map = threading.Lock(), layout(np.empty((0, 1)))
        self.threads = [
            threading.Thread(target=self._learn, name="learning", daemon=True),
            threading.Thread(target=self._group, name="kinds", daemon=True),
        ]
        self._publish()

    def start(self) -> None:
        self.pile.changed = self.wake.set
        for thread in (self.pile.thread, *self.threads):
            thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self.wake.set()
        with self.published:
            self.published.notify_all()
        for thread in self.threads:
            thread.join(10)
        self.pile.stop()

    def answer(self, event: LabelEvent, key: str | None = None) -> int:
        """Commit an answer; the number of its event. Near copies that are grouped share it."""
        if not all(self.is_known(image) for image in images_in(event)):
            if self.pile.progress.phase in ("listing", "reading"):
                raise NotReadyError("this image has not been read yet")
            raise ConflictError("this image is not in the pile")
        self.store.add(self._with_copies(event), key)
        self.wake.set()
        return self.store.version

    def is_known(self, image: int) -> bool:
        """Whether an image is of this pile."""
        return image in self.pile.row_of

    def _with_copies(self, event: LabelEvent) -> LabelEvent:
        """The event, said of near copies too, of those whose answer was the same until now."""
        leader_of, answers = self.predictions.leader_of, self.store.state.answers

        def whole(images: Iterable[int]) -> list[int]:
            named = {(leader_of[i], answers.get(i)) for i in images if i in leader_of}
            alike = [i for i, leader in leader_of.items() if (leader, answers.get(i)) in named]
            return list(dict.fromkeys([*images, *alike]))

        if isinstance(event, GiveAnswers):
            pairs = [(value, whole(images)) for value, images in event.answers]
            return msgspec.structs.replace(event, answers=pairs)
        if isinstance(event, NewClass | RuleOut):
            return msgspec.structs.replace(event, images=whole(event.images))
        return event

    # What is known, and who waits for it

    def decisions(self) -> dict[int, int]:
        """Image -> class, or NONE, of those of which something is known."""
        return _decided(self.caught_up())

    def places(self) -> bytes:
        """The map: two float32 for each row."""
        with self.laying_out:
            count = len(self.predictions.rows.images)
            if len(self.map) != count:
                self.map = layout(self.pile.features[:count])
            return self.map.tobytes()

    def wait_until(self, good: Callable[[], bool], seconds: float) -> None:
        """Wait for what is published to be like this, unless a problem or the end keeps it away."""
        with self.published:
            self.published.wait_for(
                lambda: good() or bool(self.problem) or self.stopping.is_set(), seconds
            )

    def caught_up(self) -> Predictions:
        """The predictions, once they take into account all answers given until now."""
        self.store.check_present()  # what comes out must not make a folder anew that was deleted
        wanted = self.store.version
        self.wait_until(lambda: self.predictions.event >= wanted, SLOWEST)
        if self.predictions.event < wanted:
            raise NotReadyError(self.problem or "the pile is still being sorted; try again")
        return self.predictions

    def _publish(
        self, predictions: Predictions | None = None, kinds: list[list[int]] | None = None
    ) -> None:
        """Show these to every page that waits, together with what has not changed."""
        with self.published:
            self.predictions = predictions or self.predictions
            self.kinds = self.kinds if kinds is None else kinds
            with self.store.lock:  # an answer may arrive right now
                about = {
                    "epoch": self.epoch,
                    "version": self.version + 1,
                    "pile": self.store.name,
                    "undo": self.store.title,
                    "redo": self.store.next_title,
                    "audit": self._audit(),
                    "skipped": len(self.pile.skipped),
                }
            self.payload = for_the_page(self.predictions, self.kinds, about)
            self.version, self.problem = self.version + 1, ""
            self.published.notify_all()

    def _fail(self, problem: str) -> None:
        """Let nobody wait any longer; the page shows why. The answers are safe on disk."""
        with self.published:
            self.problem = problem
            self.published.notify_all()

    def _audit(self) -> dict[str, Any] | None:
        """What the audit that has begun shows so far, and the next images to judge."""
        state = self.store.state
        result = audit_result(state, _decided(self.predictions) if state.audit else {})
        if result is None or state.audit is None:
            return None
        waiting = islice((i for i in to_look_at(state) if self.is_known(i)), MOST_WAITING)
        ahead = [(image, state.audit.decisions[image]) for image in waiting]
        return {**result.as_json(), "line": result.line(), "waiting": ahead}

    # The threads

    def _learn(self) -> None:
        while not self.stopping.is_set():
            self.wake.wait(1.0)  # another process may answer, too
            self.wake.clear()
            try:
                self.store.catch_up()
                self._take_rows()
                with self.store.lock:
                    event = self.store.version
                    if self.predictions.event == event and self.predictions.rows is self.rows:
                        continue
                    state = self.store.state.copy()
                self._publish(predict(self.rows, self.pile.names, state, event, self.predictions))
            except Exception as error:
                self._fail(f"cannot sort the pile ({reason_of(error)})")

    def _take_rows(self) -> None:
        """Take in rows if enough have been read since, and the files of those that are known."""
        count, known = len(self.pile.images), len(self.rows.images)
        late = time.monotonic() - self.grown_at > PATIENCE
        ready = self.pile.progress.phase == "ready"
        if count == known:
            if self.pile.stamp != self.rows.stamp:
                self.rows = self.rows.counted(self.pile)
        elif ready or (count >= FIRST and (late or count >= GROWTH * known)):
            self.rows, self.grown_at = PileRows.read(self.pile, count), time.monotonic()

    def _group(self) -> None:
        done = self.predictions
        while not self.stopping.is_set():
            with self.published:
                self.published.wait_for(lambda: self.predictions is not done, 1.0)  # noqa: B023
                known = self.predictions
                answered = self.published.wait_for(
                    lambda: self.predictions is not known,  # noqa: B023
                    PAUSE,
                )
            if known is done or answered:
                continue
            try:
                rows = self.rows
                if rows.grouped:
                    self._publish(kinds=unnamed_kinds(known))
                    done = known
                    continue
                grouped = rows.with_groups(self.pile)
                if self.rows is rows:  # else other rows have come, which are grouped later
                    self.rows = grouped
                    self.wake.set()
            except Exception as error:
                self._fail(f"cannot group the pile ({reason_of(error)})")
                done = known


def _decided(known: Predictions) -> dict[int, int]:
    numbers = np.array([*known.state.classes, NONE, UNANSWERED])  # by negative index
    rows = known.decisions()[0]
    pairs = zip(known.rows.images.tolist(), numbers[rows].tolist(), strict=True)
    return {image: value for image, value in pairs if value != UNANSWERED}
