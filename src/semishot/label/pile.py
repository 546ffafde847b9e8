"""The images of a pile: listed, encoded in the background while a person labels, watched for what changes.

An image is known by its content and has a number for good, so copies of a file are one image, and a file
that was renamed keeps its answer. Letters: P rows of the pile, D features.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from semishot.data.decoding import quiet
from semishot.errors import InputError, reason_of
from semishot.label import LabelRequest
from semishot.sorter.embedding_cache import PIXELS, EmbeddingCache
from semishot.sorter.labels import FileStatus, LabelStore, SeenFile, status_of
from semishot.sorter.listing import Item, Listing, Skipped, from_folders, to_unpack
from semishot.sorter.moving.journal import moved_files
from semishot.system.files import real_path
from semishot.system.progress import Meter, Seconds

if TYPE_CHECKING:  # what encodes is imported when there is an image to encode
    from semishot.sorter.encoders.image_encoder import ImageEncoder

ROOM = 1024
"""Rows to spare, for files that come while a person labels."""
ADDED_AT_ONCE, SECONDS_BETWEEN = 64, 0.5
LOOK_AGAIN, SHARE_OF_TIME = 10.0, 0.02
"""Seconds between two looks at the folder, and the share of time they may take."""
LONGEST_END = 60.0
"""Seconds to wait for the reading thread when the server stops."""


def check_folders(request: LabelRequest) -> None:
    """Refuse folders that cannot be what they are given as, without looking at what is in them."""
    out, pile = request.folder, request.pile
    if not pile.is_dir():
        raise InputError(f"{pile} is not a folder{to_unpack(pile)}; it holds the images to label")
    inside = {real_path(folder) for folder in (pile, request.labeled) if folder is not None}
    if real_path(out) in inside:
        raise InputError(f"--out {out} holds your images: choose a folder of its own")


def list_files(request: LabelRequest) -> Listing:
    """The files of --labeled and of the pile, those included that a sorting has moved."""
    check_folders(request)
    apart = [request.folder, *([request.cache] if request.cache else [])]
    moved = moved_files(request.folder, request.pile)
    return from_folders(request.labeled, [request.pile], apart, moved)


class ImageFilter(msgspec.Struct, frozen=True):
    """What a person looks for: a part of the name, a folder, files of these days."""

    text: str = ""
    folder: str = ""
    """As in `PileImages.folders`; "." is the pile itself."""
    first: str = ""
    last: str = ""


class PileImages:
    """What is known of each image: its row, features and files. Rows are only added, never moved.

    The reading thread writes; others hold `lock` while they look at files or flags.
    """

    def __init__(self, request: LabelRequest, store: LabelStore) -> None:
        self.request, self.store = request, store
        self.lock = threading.Lock()
        self.images: list[int] = []
        self.row_of: dict[int, int] = {}
        self.features: NDArray[np.float32] = np.empty((0, 1), np.float32)
        """(P or more, D)"""
        self.looks: NDArray[np.uint8] = np.empty((0, PIXELS), np.uint8)
        """(P or more, S), by which near copies are found."""
        self.digest_of: dict[int, bytes] = store.digests()
        self.files: dict[int, list[str]] = {}
        """Image -> its files, those included that are gone."""
        self.gone: set[str] = set()
        self.moved: dict[str, Path] = {}
        """File -> where it is, if a sorting has moved it."""
        self.given: dict[int, str] = {}
        """Image -> its label in --labeled."""
        self.names: dict[str, NDArray[np.float32]] = {}
        """Features of the names of classes that --names gives."""
        self.stamp = 0
        """Grows when something about rows that are there has changed."""

    def path_of(self, image: int) -> Path | None:
        """A file of this image that exists, as far as is known."""
        with self.lock:
            names = self.present(image)
            return self.moved.get(names[0], Path(names[0])) if names else None

    def present(self, image: int) -> list[str]:
        """The files of an image that exist. The caller holds the lock."""
        return [name for name in self.files.get(image, ()) if name not in self.gone]

    def names_of(self, image: int) -> list[str]:
        """The files of an image, relative to the pile where they lie in it, those that are gone last."""
        with self.lock:
            names = sorted(self.files.get(image, ()), key=self.gone.__contains__)
        return [self.shown(name) for name in names]

    def shown(self, name: str) -> str:
        for folder in (self.request.pile, self.request.labeled):
            if folder is not None and Path(name).is_relative_to(folder):
                return Path(name).relative_to(folder).as_posix()
        return name

    def find(self, wanted: "ImageFilter") -> list[int]:
        """Images with a file that fits."""
        with self.lock:
            names = {image: [*self.files.get(image, ())] for image in self.images}
        return [i for i, own in names.items() if any(self._fits(name, wanted) for name in own)]

    def _fits(self, name: str, wanted: "ImageFilter") -> bool:
        shown, seen = self.shown(name), self.store.files.get(name)
        if wanted.text.casefold() not in shown.casefold():
            return False
        if wanted.folder and PurePath(shown).parent != PurePath(wanted.folder):
            return False
        if not (wanted.first or wanted.last):
            return True
        day = date.fromtimestamp(seen.changed / 1e9).isoformat() if seen else ""
        return bool(day) and wanted.first <= day <= (wanted.last or day)

    def folders(self) -> list[tuple[str, int]]:
        """Folders of the pile that hold files, and how many."""
        with self.lock:
            names = [name for image in self.files for name in self.present(image)]
        parents = Counter(PurePath(self.shown(name)).parent.as_posix() for name in names)
        return sorted(("" if folder == "." else folder, n) for folder, n in parents.items())

    def make_room(self, count: int, features: int) -> None:
        """For this many more rows, with this many features each."""
        rows = len(self.images)
        if rows + count <= len(self.features):
            return
        room = np.empty((rows + count + ROOM, features), np.float32)
        looks = np.empty((len(room), PIXELS), np.uint8)
        room[:rows], looks[:rows] = self.features[:rows], self.looks[:rows]
        self.features, self.looks = room, looks

    def add(self, image: int, digest: bytes, cache: EmbeddingCache) -> None:
        """A row for an image that has none, if its features are finite."""
        features = cache[digest]
        if image in self.row_of or not np.isfinite(features).all():
            return
        row = len(self.images)
        self.features[row] = features
        self.looks[row] = np.frombuffer(cache.fingerprint(digest), np.uint8)
        with self.lock:
            self.digest_of[image] = digest
            self.row_of[image] = row
            self.images.append(image)

    def has_file(self, item: Item, image: int) -> None:
        """Note that this file holds this image now."""
        name, before = item.shown, self.store.files.get(item.shown)
        with self.lock:
            self.stamp += 1
            if before is not None and name in self.files.get(before.image, ()):
                self.files[before.image].remove(name)  # it may hold something else now
            self.gone.discard(name)
            self.files.setdefault(image, []).append(name)
            if item.label is not None:
                self.given[image] = item.label

    def lose(self, names: Iterable[str]) -> None:
        """Note that these files are gone: their images stay, and say so."""
        with self.lock:
            self.stamp += 1
            for name in names:
                seen = self.store.files.get(name)
                if seen and name not in self.files.setdefault(seen.image, []):
                    self.files[seen.image].append(name)
                self.gone.add(name)


class ReadingProgress(NamedTuple):
    """How far reading is, as the page shows it."""

    phase: str
    """listing, reading, ready, or stopped by a problem."""
    done: int
    total: int
    rate: float
    """Images per second, of those that had to be read."""
    problem: str = ""


class SilentMeter(Meter):
    """A meter that draws nothing: the page shows progress."""

    def __init__(self) -> None:
        self.done, self.bar, self.seconds = 0, None, Seconds()

    def advance(self, amount: int = 1, note: str = "") -> None:
        self.done += amount


class PileReader:
    """Reads the pile in a thread of its own; `changed` is called when there is something new."""

    def __init__(self, request: LabelRequest, store: LabelStore) -> None:
        self.request, self.store = request, store
        self.images = PileImages(request, store)
        self.changed: Callable[[], None] = lambda: None
        self.status: dict[str, FileStatus | None] = {}
        self.encoder: ImageEncoder | None = None
        self.cache: EmbeddingCache | None = None
        self.progress = ReadingProgress("listing", 0, 0, 0.0)
        self.skipped: dict[str, str] = {}
        """Files that are not images of the pile, and why."""
        self.unlisted: dict[str, str] = {}
        """Files that the listing skips, and why."""
        self.imported: dict[bytes, str] = {}
        """The labels of --labeled that are in the store."""
        self.stopping = threading.Event()
        self.look_again = threading.Event()
        self.thread = threading.Thread(target=self._run, name="images", daemon=True)

    def all_skipped(self) -> list[tuple[str, str]]:
        """Every file that is not in the pile, by its name, and why."""
        known = self.unlisted | self.skipped
        return sorted((self.images.shown(name), reason) for name, reason in known.items())

    def stop(self) -> None:
        self.stopping.set()
        self.look_again.set()
        self.thread.join(LONGEST_END)

    def _show(self, progress: ReadingProgress) -> None:
        self.progress = progress
        self.changed()

    def _run(self) -> None:
        try:
            with quiet():
                self._watch()
        except Exception as error:  # shown on the page: a thread has nobody else to tell
            self._stopped(error)

    def _stopped(self, error: Exception) -> None:
        self._show(self.progress._replace(phase="stopped", problem=reason_of(error)))

    def _watch(self) -> None:
        """Look at the folder, and again from time to time, for files that came, went or changed."""
        while not self.stopping.is_set():
            begun = time.monotonic()
            self._look()
            took = time.monotonic() - begun
            self.look_again.wait(max(LOOK_AGAIN, took / SHARE_OF_TIME))
            self.look_again.clear()

    def _look(self) -> None:
        first = not self.status
        try:
            listing = list_files(self.request)
        except (OSError, InputError) as error:  # a disk was taken out: it may come back
            if first:
                raise
            self._stopped(error)
            return
        self.images.moved = {i.shown: i.path for i in listing.items if i.home and i.path}
        self.unlisted = {skipped.shown: skipped.reason for skipped in listing.skipped}
        now = {item.shown: status_of(item.path) for item in listing.items if item.path}
        fresh = [item for item in listing.items if self.status.get(item.shown) != now[item.shown]]
        earlier = self._seen_in_pile() if first else list(self.status)
        gone = [name for name in earlier if now.get(name) is None]
        self.status = now
        self.skipped = {name: why for name, why in self.skipped.items() if name in now}
        if gone:
            self.images.lose(gone)
        if fresh:
            self._take_in(fresh)
        if self.stopping.is_set():
            return
        if fresh or gone or first or self.progress.phase == "stopped":
            self._import_labels()
            count = len(now)
            self._show(ReadingProgress("ready", count, count, self.progress.rate))

    def _seen_in_pile(self) -> list[str]:
        """Files of the pile that were seen when it was labeled before."""
        return [name for name in self.store.files if Path(name).is_relative_to(self.request.pile)]

    def _open(self) -> tuple["ImageEncoder", EmbeddingCache]:
        from semishot.sorter.encoders.names import DEFAULT, open_encoder
        from semishot.sorter.labeled_images import features_of_names
        from semishot.sorter.out_folder import EMBEDDINGS

        if self.encoder is None or self.cache is None:
            encoder = open_encoder(self.request.encoder or DEFAULT, view=self.request.view)
            encoder = encoder.with_boxes(self.request.crop)
            folder = self.request.cache or self.request.folder / EMBEDDINGS
            self.cache = EmbeddingCache(folder, encoder.cached_as, encoder.features)
            if self.request.names is not None:
                self.images.names = features_of_names(encoder, self.request.names)
            self.encoder = encoder
        return self.encoder, self.cache

    def _take_in(self, items: Sequence[Item]) -> None:
        """Rows for files that were not seen before, or not like this: known ones first, then by reading."""
        self._show(ReadingProgress("listing", 0, len(items), 0.0))
        encoder, cache = self._open()
        known_rows = self.images.row_of.keys()
        elsewhere = {*self.images.files, *self.store.state.answers} - known_rows  # without a file
        self.images.make_room(len(items) + len(elsewhere), encoder.features)
        known, unread = list[Item](), list[Item]()
        for item in items:
            seen = self.store.files.get(item.shown)
            digest = self.images.digest_of.get(seen.image, b"") if seen else b""
            if seen is not None and seen[1:] == self.status[item.shown] and digest in cache:
                known.append(replace(item, digest=digest))
            else:
                unread.append(item)
        for image in elsewhere:
            if (digest := self.images.digest_of.get(image, b"")) in cache:
                self.images.add(image, digest, cache)
        self._add(known)
        order = np.random.default_rng(0).permutation(len(unread)).tolist()
        mixed = [unread[index] for index in order]  # so that the first hundred are like the rest
        labeled = [item for item in mixed if item.label is not None]
        self._read(labeled, len(unread) - len(labeled), len(items))
        if not self.stopping.is_set():
            self._import_labels()
        self._read([item for item in mixed if item.label is None], 0, len(items))

    def _import_labels(self) -> None:
        """What --labeled says, when all of it has been read."""
        labels = {self.images.digest_of[image]: label for image, label in self.images.given.items()}
        if labels != self.imported:
            self.store.import_labels(labels)
            self.imported = labels
            self.changed()

    def _add(self, items: Sequence[Item]) -> None:
        """Files whose features are in the cache."""
        assert self.cache is not None
        numbers = self.store.numbers([item.digest for item in items])
        fresh = []
        for item, image in zip(items, numbers, strict=True):
            if image not in self.images.row_of:
                self.images.add(image, item.digest, self.cache)
            status = self.status.get(item.shown)
            if image in self.images.row_of and status is not None:
                self.images.has_file(item, image)
                fresh.append((item.shown, SeenFile(image, *status)))
        self.store.remember_files(fresh)

    def _read(self, items: Sequence[Item], later: int, total: int) -> None:
        """Read and encode items; `later` others follow them."""
        from semishot.sorter.embedding import encode_files

        if not items or self.stopping.is_set():
            return
        encoder, cache = self._open()
        before = total - len(items) - later
        meter, pending = SilentMeter(), list[Item]()
        begun = last = time.monotonic()
        files = encode_files(self.request.device, items, encoder, cache, meter)
        for item, file in zip(items, files, strict=True):
            if isinstance(file, Skipped):
                self.skipped[item.shown] = file.reason
            else:
                self.skipped.pop(item.shown, None)
                pending.append(file)
            now = time.monotonic()
            if now - last > SECONDS_BETWEEN or len(pending) >= ADDED_AT_ONCE:
                self._add(pending)
                pending, last = [], now
                rate, done = meter.done / max(now - begun, 1e-9), before + meter.done
                self._show(ReadingProgress("reading", done, total, rate))
            if self.stopping.is_set():
                return
        cache.flush()
        self._add(pending)
