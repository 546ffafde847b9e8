"""A pile and the answers about it -> the judged state that the page shows, published in versions.

One thread judges. After each answer, and when images have arrived, it learns anew and publishes a
`Snapshot`; answers that come meanwhile are judged together in the next one.
Letters: P rows of the pile, N classes, D features.
"""

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from semishot.errors import InputError
from semishot.label.images import MISSING, Library
from semishot.label.last_view import keep_view, kept_view, pack
from semishot.label.near_copies import near_copies
from semishot.sorter.answers import NONE, Answers, ConflictError, Event, State, checked, images_in
from semishot.sorter.listing import STRANGER

if TYPE_CHECKING:  # torch is imported when the first page has been shown
    from semishot.label.judge import Judge, Judgement

__all__ = ["NotReadyError", "Session", "Snapshot", "decisions"]

Array = NDArray[Any]
UNLABELED, NAMED_STRANGER = -1, -2
REJECTS = np.concatenate([[0.001], np.geomspace(0.002, 0.5, 60)]).round(4)
"""The stops of the slider: shares of true members that may be taken for strangers."""
FIRST = 100
"""Images after which labeling begins."""
ASKED, VARIED = 24, 36
SMALLEST = 1e-12
KEPT = 0.75
"""What was asked before is asked still, if it is more uncertain than this share of the others."""
AT_ONCE = 3000
"""Images up to which near copies are found before the pile is shown."""
GROWTH, PATIENCE = 1.25, 15.0
"""While images arrive, the pile is judged anew when it has grown by this factor, or after these seconds."""


class NotReadyError(InputError):
    """An answer about an image that may still be read: a page from before a restart sends it again."""


@dataclass(frozen=True)
class Snapshot:
    """The state of all rows at one version. Index -1: no answer or no guess; -2: none of the classes."""

    version: int
    event: int
    """The number of the last event that it takes into account."""
    state: State
    images: Array
    """(P,) numbers of the catalog."""
    answers: Array
    """(P,), indices into the classes."""
    guesses: Array
    """(P,), the most probable class, whatever the cutoff."""
    sure: Array
    """(P,), the probability of that class, strangers taken into account."""
    stranger: Array
    """(P,), the probability of a stranger."""
    scores: Array
    """(P,), NaN where nothing was judged."""
    groups: Array
    """(P,), the image that stands for its near copies."""
    cutoffs: Array | None
    asked: list[int] = field(default_factory=list)
    """Images."""
    doubtful: list[tuple[int, int, float]] = field(default_factory=list)
    """Image, index of the suggested class, probability."""
    probabilities: Array | None = None
    """(P, N)"""
    strangers: tuple[float, float, float] | None = None
    """How many of the pile are likely strangers, with a 90 % interval."""

    @property
    def classes(self) -> list[int]:
        return list(self.state.classes)

    def cutoff(self) -> float:
        """The score below which a row is taken for a stranger."""
        if self.cutoffs is None:
            return -np.inf
        return float(np.interp(np.log(self.state.reject), np.log(REJECTS), self.cutoffs))


def decisions(snapshot: Snapshot) -> tuple[Array, Array]:
    """(P,) the class of each row, -2 for none, -1 for not known; and (P,) whether a person said so."""
    confirmed = snapshot.answers != -1
    out = (snapshot.guesses >= 0) & (snapshot.scores < snapshot.cutoff())
    guessed = np.where(out, NAMED_STRANGER, snapshot.guesses)
    return np.where(confirmed, snapshot.answers, guessed), confirmed


class Session:
    """Answers, images and the judging thread; `tell` is called with each new version."""

    def __init__(self, answers: Answers, library: Library) -> None:
        self.answers, self.library = answers, library
        self.epoch = secrets.token_hex(8)
        """Differs each time the server starts: versions count anew."""
        self.listeners: list[Callable[[], None]] = []
        self.wake = threading.Event()
        self.stopping = threading.Event()
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
        self.asked: list[int] = []
        self.busy = False
        self.problem = ""
        self.corrections_seen = False
        self.answered_since: set[int] = set()
        """Images of which something was said since the start."""
        self.look_for_copies = False
        """Whether near copies are still to be found: in a large pile that takes seconds."""
        self.early = False
        """Whether the snapshot is that of the last time."""
        self.kept_version = 0
        empty, none = np.empty(0, np.int64), np.empty(0)
        self.snapshot = Snapshot(0, 0, State(), empty, empty, empty, none, none, none, empty, None)
        self._take_kept()
        self.payload = payload(self)
        self.dirty = True
        self.thread = threading.Thread(target=self._run, name="judge", daemon=True)

    def _take_kept(self) -> None:
        """What the last run showed, if the answers are still the same."""
        request, answers = self.library.request, self.answers
        kept = kept_view(request, answers.database.name, answers.version)
        if kept is None:
            return
        about, held = kept
        self.early, self.flags, self.copies = True, held["flags"], held["copies"]
        cutoffs = about["cutoffs"]
        self.snapshot = Snapshot(
            0,
            answers.version,
            answers.state,
            held["images"].astype(np.int64),
            held["answers"].astype(np.int64),
            held["guesses"].astype(np.int64),
            held["sure"] / 255,
            held["stranger"] / 255,
            held["scores"].astype(np.float64),
            held["groups"].astype(np.int64),
            None if cutoffs is None else np.array(cutoffs),
            asked=about["asked"],
            doubtful=[(image, index, chance) for image, index, chance in about["doubtful"]],
            strangers=about["strangers"],
        )
        self.asked = list(about["asked"])
        _, inverse, counts = np.unique(
            self.snapshot.groups, return_inverse=True, return_counts=True
        )
        self.alone = counts[inverse] == 1

    def start(self) -> None:
        self.library.changed = self._images_changed
        self.library.start()
        self.thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self.wake.set()
        self.thread.join(10)
        self.library.stop()

    def answer(self, body: object, key: str | None = None) -> int:
        """Commit an answer; the number of its event. Near copies that are grouped share it."""
        event = checked(body)
        known = self.library.rows.row_of
        unknown = [image for image in images_in(event) if image not in known]
        if unknown and not (self.early and np.isin(unknown, self.snapshot.images).all()):
            if self.library.progress.phase in ("listing", "reading"):
                raise NotReadyError("this image has not been read yet")
            raise ConflictError("this image is not of the pile")
        event = self._with_copies(event)
        if self.answers.add(event, key):
            self.answered_since.update(images_in(event))
            self.dirty = True
            self.wake.set()
        return self.answers.version

    def is_known(self, image: int) -> bool:
        """Whether an image is of the pile, now or, until it has been looked at, the last time."""
        if image in self.library.rows.row_of:
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
                if self.early and self.library.progress.phase == "listing":
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
                self._tell()

    def _find_copies(self) -> None:
        """In a large pile, after it has been shown."""
        self.groups = near_copies(self.library.features[: self.judged_rows])
        self.look_for_copies = False
        self._publish()

    def _keep(self) -> None:
        """When nothing else is to be done: the next start begins with what is shown now."""
        self.kept_version = self.snapshot.version
        if self.library.progress.phase == "ready" and self.snapshot.event == self.answers.version:
            keep_view(self.library.request, self.snapshot.event, self.payload)

    def _arrived(self) -> bool:
        """Whether enough new images are there to look at all of them anew."""
        rows, ready = len(self.library.rows.images), self.library.progress.phase == "ready"
        if rows == self.judged_rows:
            return self.library.stamp != self.seen_stamp
        late = time.monotonic() - self.judged_at > PATIENCE
        enough = rows >= FIRST and (rows >= GROWTH * self.judged_rows or late)
        return ready or enough

    def _publish(self) -> None:
        self._import_labels()
        rows = len(self.library.rows.images)
        if self._grown(rows):
            features = self.library.features[:rows]
            self.judge = _judge(features) if rows else None
            self.groups = np.arange(rows)
            self.look_for_copies = rows > AT_ONCE
            if not self.look_for_copies:
                self.groups = near_copies(features)
            self.judged_rows, self.judged_at = rows, time.monotonic()
        self._look_at_rows(self.judged_rows)
        self.snapshot, self.early = self._judged(self.judged_rows), False
        self.payload = payload(self)
        self._tell()

    def _grown(self, rows: int) -> bool:
        return rows != self.judged_rows and (
            self.library.progress.phase == "ready" or rows >= max(FIRST, GROWTH * self.judged_rows)
        )

    def _look_at_rows(self, count: int) -> None:
        """What is known of each row, if it may differ from before."""
        library = self.library
        if library.stamp == self.seen_stamp and len(self.images) == count:
            return
        with library.lock:
            self.seen_stamp, images = library.stamp, library.rows.images[:count]
            flags = [library.flags(image) for image in images]
            copies = [min(255, len(library.rows.files.get(image, ()))) for image in images]
        self.images = np.array(images, np.int64)
        self.flags, self.copies = np.array(flags, np.uint8), np.array(copies, np.uint8)

    def _import_labels(self) -> None:
        """Labels of --labeled become answers once, a class at a time."""
        with self.library.lock:
            given = set(self.library.rows.given.items())
        new = given - self.library.catalog.imported()
        by_label: dict[str, list[int]] = {}
        for image, label in sorted(new):
            by_label.setdefault(label, []).append(image)
        for label, images in by_label.items():
            import_label(self.answers, label, images)
        if new:
            self.library.catalog.add_imported(new)
        self._import_corrections()

    def _import_corrections(self) -> None:
        """What was corrected outside of the page counts once: it is later than the answers."""
        library = self.library
        if library.progress.phase != "ready" or self.corrections_seen:
            return
        self.corrections_seen = True
        with library.lock:
            current = set(library.rows.corrected.items())
        by_label: dict[str, list[int]] = {}
        for image, label in sorted(library.catalog.replace_imported("corrected", current)):
            if image not in self.answered_since:
                by_label.setdefault(label, []).append(image)
        for label, images in by_label.items():
            import_label(self.answers, label, images, over=True)

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
        images, row_of = self.images, self.library.rows.row_of
        index = {number: place for place, number in enumerate(state.classes)}
        answers = np.full(count, -1)
        for image, value in state.answers.items():
            row = row_of.get(image, count)
            if row < count:
                answers[row] = NAMED_STRANGER if value == NONE else index[value]
        excluded = {
            row_of[image]: [index[number] for number in held if number in index]
            for image, held in state.excluded.items()
            if row_of.get(image, count) < count
        }
        groups = self._groups(images, state)
        version = self.snapshot.version + 1
        unknown = np.full(count, np.nan)
        nothing = Snapshot(
            version,
            event,
            state,
            images,
            answers,
            np.full(count, -1),
            unknown,
            unknown,
            unknown,
            groups,
            None,
        )
        used = np.unique(answers[answers >= 0])
        if not len(used) or self.judge is None:
            return _with(nothing, asked=self._varied(nothing))
        return self._learned(nothing, used, excluded)

    def _learned(self, nothing: Snapshot, used: Array, excluded: dict[int, list[int]]) -> Snapshot:
        assert self.judge is not None
        answers, count = nothing.answers, len(nothing.answers)
        place = np.full(len(nothing.classes) + 1, -1)
        place[used] = np.arange(len(used))
        labels = np.where(answers >= 0, place[answers], np.where(answers == -2, -2, UNLABELED))
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
        chance = classes[np.arange(count), best]
        scores = np.where(labels == NAMED_STRANGER, -np.inf, judgement.scores)
        asked = self._worth_asking(nothing, classes, judgement, labels)
        wide = np.zeros((count, len(nothing.classes)), np.float32)
        wide[:, used] = classes
        return _with(
            nothing,
            guesses=used[best],
            sure=chance * (1 - judgement.stranger),
            stranger=judgement.stranger,
            scores=scores,
            cutoffs=judgement.cutoffs,
            asked=asked,
            doubtful=[
                (int(nothing.images[d.row]), int(used[d.suggested]), float(d.probability))
                for d in judgement.doubtful
                if int(nothing.images[d.row]) not in nothing.state.sure
            ],
            probabilities=wide,
            strangers=(
                judgement.strangers.expected,
                judgement.strangers.low,
                judgement.strangers.high,
            ),
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

    def _stands(self, nothing: Snapshot) -> Array:
        """(P,) whether a row may be asked about: not answered, one of its near copies, and there."""
        there = (self.flags & MISSING) == 0
        found: Array = (nothing.answers == -1) & (nothing.groups == nothing.images) & there
        return found

    def _varied(self, nothing: Snapshot) -> list[int]:
        allowed = self._stands(nothing)
        row_of = self.library.rows.row_of
        self.asked = [i for i in self.asked if allowed[row_of[i]]]
        if len(self.asked) < VARIED // 2 and self.judge is not None:
            found = self.judge.varied(VARIED)
            more = [int(nothing.images[row]) for row in found if allowed[row]]
            self.asked = list(dict.fromkeys([*self.asked, *more]))[:VARIED]
        return list(self.asked)

    def _worth_asking(
        self, nothing: Snapshot, classes: Array, judgement: "Judgement", labels: Array
    ) -> list[int]:
        allowed = self._stands(nothing) & (labels == UNLABELED)
        from semishot.label.judge import doubt_of

        assert self.judge is not None
        worth = np.where(allowed, doubt_of(classes, judgement), 0.0)
        row_of = self.library.rows.row_of
        usual = float(np.quantile(worth[allowed], KEPT)) if allowed.any() else 0.0
        kept = [row_of[i] for i in self.asked if worth[row_of[i]] >= max(usual, SMALLEST)]
        if classes.shape[1] == 1 and len(self.asked) > VARIED // 2:
            kept = [
                row_of[i] for i in self.asked if allowed[row_of[i]]
            ]  # still the varied beginning
        rows = self.judge.worth_asking(worth, kept, max(ASKED, len(kept)))
        self.asked = [int(nothing.images[row]) for row in rows]
        return list(self.asked)


def import_label(answers: Answers, label: str, images: Sequence[int], over: bool = False) -> None:
    """Label images in a class of this name, made if needed; those that have an answer only if `over`."""
    name = " ".join("".join(c if c.isprintable() else "?" for c in label).split())[:100] or "?"
    held = {known.casefold(): number for number, known in answers.state.classes.items()}
    number = NONE if label == STRANGER else held.get(name.casefold())
    said = answers.state.answers
    open_images = [
        image for image in images if image not in said or (over and said[image] != number)
    ]
    if number is None:
        answers.add({"kind": "new", "name": name, "images": open_images})
    elif open_images:
        answers.add({"kind": "answer", "set": [[number, open_images]]})


def _judge(features: Array) -> "Judge":
    from semishot.label.judge import Judge

    return Judge(features)


def _with(snapshot: Snapshot, **changes: Any) -> Snapshot:
    return Snapshot(**{**vars(snapshot), **changes})


def payload(session: Session) -> bytes:
    """A snapshot for the page."""
    snapshot, answers = session.snapshot, session.answers
    columns = {
        "images": snapshot.images,
        "groups": snapshot.groups,
        "scores": snapshot.scores,
        "answers": snapshot.answers,
        "guesses": snapshot.guesses,
        "sure": _of_255(snapshot.sure),
        "stranger": _of_255(snapshot.stranger),
        "flags": session.flags,
        "copies": session.copies,
    }
    about = {
        "epoch": session.epoch,
        "pile": answers.database.name,
        "version": snapshot.version,
        "event": snapshot.event,
        "last": answers.version,
        "rows": len(snapshot.images),
        "classes": [[number, name] for number, name in snapshot.state.classes.items()],
        "asked": snapshot.asked,
        "doubtful": snapshot.doubtful,
        "reject": snapshot.state.reject,
        "rejects": REJECTS.tolist(),
        "cutoffs": None if snapshot.cutoffs is None else snapshot.cutoffs.round(5).tolist(),
        "strangers": snapshot.strangers,
        "undo": answers.done[-1].title if answers.done else None,
        "redo": answers.undone[-1].title if answers.undone else None,
    }
    return pack(about, columns)


def _of_255(shares: Array) -> Array:
    bytes_: Array = np.nan_to_num(shares * 255).round().astype(np.uint8)
    return bytes_
