"""A pile and the answers about it -> the judged state that the page shows, published in versions.

One thread judges. After each answer, and when images have arrived, it learns anew and publishes a
`Snapshot`; answers that come meanwhile are judged together in the next one.
Letters: P rows of the pile, N classes, D features.
"""

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from semishot.errors import InputError
from semishot.label.last_view import keep_view, kept_view
from semishot.label.near_copies import near_copies
from semishot.label.outside_labels import OutsideLabels
from semishot.label.pile_reader import PileReader
from semishot.label.questions import Questions
from semishot.label.rows import MISSING
from semishot.label.snapshot import (
    ANSWERED_NONE,
    REJECTS,
    Snapshot,
    for_the_page,
    nothing,
    of_kept_view,
)
from semishot.sorter.answer_events import NONE, Event, checked, images_in
from semishot.sorter.answer_state import ConflictError, State
from semishot.sorter.answers import Answers

if TYPE_CHECKING:  # torch is imported when the first page has been shown
    from semishot.label.judge import Judge

__all__ = ["NotReadyError", "Session"]

Array = NDArray[Any]
FIRST = 100
"""Images after which labeling begins."""
SMALLEST = 1e-12
AT_ONCE = 3000
"""Images up to which near copies are found before the pile is shown."""
GROWTH, PATIENCE = 1.25, 15.0
"""While images arrive, the pile is judged anew when it has grown by this factor, or after these seconds."""
SLOWEST = 60.0
"""Seconds to wait for the judging of what has been answered."""


class NotReadyError(InputError):
    """An answer about an image that may still be read: a page from before a restart sends it again."""


class Session:
    """Answers, images and the judging thread; `tell` is called with each new version."""

    def __init__(self, answers: Answers, reader: PileReader) -> None:
        self.answers, self.reader, self.rows = answers, reader, reader.rows
        self.epoch = secrets.token_hex(8)
        """Differs each time the server starts: versions count anew."""
        self.listeners: list[Callable[[], None]] = []
        self.wake = threading.Event()
        self.stopping = threading.Event()
        self.published = threading.Condition()
        self.judge: Judge | None = None
        self.judged_rows, self.judged_at = 0, 0.0
        self.groups: Array = np.empty(0, np.int64)
        """(P,), the first row of its near copies."""
        self.alone: Array = np.empty(0, bool)
        """(P,), whether a row of the snapshot has no near copies."""
        self.images: Array = np.empty(0, np.int64)
        self.flags: Array = np.empty(0, np.uint8)
        self.copies: Array = np.empty(0, np.uint8)
        """(P,), how many files hold the same image."""
        self.seen_stamp = -1
        self.questions = Questions(reader.rows)
        self.outside_labels = OutsideLabels(answers, reader)
        self.problem = ""
        self.look_for_copies = False
        """Whether near copies are still to be found: in a large pile that takes seconds."""
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
        self.early, self.flags, self.copies = True, held["flags"], held["copies"]
        self.snapshot = of_kept_view(about, held, answers.version, answers.state)
        self.questions.images = list(self.snapshot.asked)
        _, inverse, counts = np.unique(
            self.snapshot.groups, return_inverse=True, return_counts=True
        )
        self.alone = counts[inverse] == 1

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
            raise ConflictError("this image is not of the pile")
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
        if event["kind"] == "apart" or len(self.alone) != len(snapshot.groups) or self.alone.all():
            return event

        def whole(images: Sequence[int]) -> list[int]:
            found = dict.fromkeys(images)
            rows = np.flatnonzero(np.isin(snapshot.images, list(images)) & ~self.alone)
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
                elif self.look_for_copies:
                    self._find_copies()
                elif self.kept_version != self.snapshot.version:
                    self._keep()
            except Exception as error:  # shown on the page: the answers are safe on disk
                self.problem = f"cannot judge the pile ({' '.join(str(error).split())[:300]})"
                self._notify()
                self._tell()

    def _find_copies(self) -> None:
        """In a large pile, after it has been shown."""
        self.groups = near_copies(self.rows.features[: self.judged_rows])
        self.look_for_copies = False
        self._publish()

    def _keep(self) -> None:
        """When nothing else is to be done: the next start begins with what is shown now."""
        self.kept_version = self.snapshot.version
        if self.reader.progress.phase == "ready" and self.snapshot.event == self.answers.version:
            with contextlib.suppress(OSError):  # only the next start is slower
                keep_view(self.reader.request, self.snapshot.event, self.payload)

    def _arrived(self) -> bool:
        """Whether enough new images are there to look at all of them anew."""
        rows, ready = len(self.rows.images), self.reader.progress.phase == "ready"
        if rows == self.judged_rows:
            return self.rows.stamp != self.seen_stamp
        late = time.monotonic() - self.judged_at > PATIENCE
        enough = rows >= FIRST and (rows >= GROWTH * self.judged_rows or late)
        return ready or enough

    def _publish(self) -> None:
        self.outside_labels.take()
        rows = len(self.rows.images)
        if self._grown(rows):
            features = self.rows.features[:rows]
            self.judge = _judge(features) if rows else None
            self.groups = np.arange(rows)
            self.look_for_copies = rows > AT_ONCE
            if not self.look_for_copies:
                self.groups = near_copies(features)
            self.judged_rows, self.judged_at = rows, time.monotonic()
        self._look_at_rows(self.judged_rows)
        self.snapshot, self.early = self._judged(self.judged_rows), False
        self.payload = self._payload()
        self._notify()
        self._tell()

    def _notify(self) -> None:
        with self.published:
            self.published.notify_all()

    def caught_up(self, seconds: float = SLOWEST) -> Snapshot:
        """The snapshot, once it takes into account all answers given until now."""
        wanted = self.answers.version

        def judged() -> bool:
            return self.snapshot.event >= wanted or bool(self.problem) or self.stopping.is_set()

        with self.published:
            self.published.wait_for(judged, seconds)
        if self.snapshot.event < wanted:
            raise NotReadyError(self.problem or "the pile is still being judged; try again")
        return self.snapshot

    def _grown(self, rows: int) -> bool:
        return rows != self.judged_rows and (
            self.reader.progress.phase == "ready" or rows >= max(FIRST, GROWTH * self.judged_rows)
        )

    def _look_at_rows(self, count: int) -> None:
        """What is known of each row, if it may differ from before."""
        rows = self.rows
        if rows.stamp == self.seen_stamp and len(self.images) == count:
            return
        with rows.lock:
            self.seen_stamp, images = rows.stamp, rows.images[:count]
            flags = [rows.flags(image) for image in images]
            copies = [min(255, len(rows.files.get(image, ()))) for image in images]
        self.images = np.array(images, np.int64)
        self.flags, self.copies = np.array(flags, np.uint8), np.array(copies, np.uint8)

    def _judged(self, count: int) -> Snapshot:
        """Learn from the answers as they are now."""
        with self.answers.database.lock:
            state = State(
                dict(self.answers.state.classes),
                dict(self.answers.state.answers),
                dict(self.answers.state.excluded),
                self.answers.state.apart,
                self.answers.state.sure,
                self.answers.state.reject,
            )
            event = self.answers.version
        images, row_of = self.images, self.rows.row_of
        index = {number: place for place, number in enumerate(state.classes)}
        answers = np.full(count, -1)
        for image, value in state.answers.items():
            row = row_of.get(image, count)
            if row < count:
                answers[row] = ANSWERED_NONE if value == NONE else index[value]
        excluded = {
            row_of[image]: [index[number] for number in held if number in index]
            for image, held in state.excluded.items()
            if row_of.get(image, count) < count
        }
        known = replace(
            nothing(self.snapshot.version + 1, event, state, images),
            answers=answers,
            groups=self._groups(images, state),
        )
        used = np.unique(answers[answers >= 0])
        if not len(used) or self.judge is None:
            asked = self.questions.begin(self.judge, known, self._may_be_asked(known))
            return replace(known, asked=asked)
        return self._learned(known, used, excluded)

    def _learned(self, known: Snapshot, used: Array, excluded: dict[int, list[int]]) -> Snapshot:
        from semishot.label.judge import NAMED_STRANGER, UNLABELED, doubt_of

        assert self.judge is not None
        answers, count = known.answers, len(known.answers)
        place = np.full(len(known.classes) + 1, -1)
        place[used] = np.arange(len(used))
        others = np.where(answers == ANSWERED_NONE, NAMED_STRANGER, UNLABELED)
        labels = np.where(answers >= 0, place[answers], others)
        for row, held in excluded.items():
            if answers[row] == -1 and set(used.tolist()) <= set(held):
                labels[row] = NAMED_STRANGER  # none of the classes there are
        judgement = self.judge.learn(labels, REJECTS)
        classes = judgement.classes.copy()
        for row, held in excluded.items():
            classes[row] += SMALLEST  # where all the rest is zero, it is shared by the others
            classes[row, [p for p in place[held] if p >= 0]] = 0
        classes /= np.maximum(classes.sum(1, keepdims=True), SMALLEST)
        best = classes.argmax(1)
        allowed = self._may_be_asked(known) & (labels == UNLABELED)
        wide = np.zeros((count, len(known.classes)), np.float32)
        wide[:, used] = classes
        return replace(
            known,
            guesses=used[best],
            sure=classes[np.arange(count), best] * (1 - judgement.stranger),
            stranger=judgement.stranger,
            scores=np.where(labels == NAMED_STRANGER, -np.inf, judgement.scores),
            cutoffs=judgement.cutoffs,
            asked=self.questions.follow(self.judge, known, allowed, doubt_of(classes, judgement)),
            doubtful=[
                (int(known.images[d.row]), int(used[d.suggested]), float(d.probability))
                for d in judgement.doubtful
                if int(known.images[d.row]) not in known.state.sure
            ],
            probabilities=wide,
            strangers=judgement.strangers,
        )

    def _groups(self, images: Array, state: State) -> Array:
        """(P,) the image that stands for the near copies of a row."""
        groups = self.groups[: len(images)].copy()
        if state.apart:
            apart = np.isin(images, list(state.apart))
            groups[apart] = len(images) + np.flatnonzero(apart)
        _, first, inverse, counts = np.unique(
            groups, return_index=True, return_inverse=True, return_counts=True
        )
        self.alone = counts[inverse] == 1
        leaders: Array = images[first[inverse]]
        return leaders

    def _may_be_asked(self, known: Snapshot) -> Array:
        """(P,) whether a row has no answer, stands for its near copies, and is there."""
        there = (self.flags & MISSING) == 0
        found: Array = (known.answers == -1) & (known.groups == known.images) & there
        return found

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
        return for_the_page(self.snapshot, about, {"flags": self.flags, "copies": self.copies})


def _judge(features: Array) -> "Judge":
    from semishot.label.judge import Judge

    return Judge(features)
