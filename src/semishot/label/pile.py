"""The images of a pile: listed, encoded in the background while a person labels, watched for what changes.

An image is known by its content and has a number for good, so copies of a file are one image, and a file
that was renamed keeps its answer. Letters: P rows of the pile, D features, S gray levels of a fingerprint.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
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
from semishot.system.progress import Seconds

if TYPE_CHECKING:  # what encodes is imported when there is an image to encode
    from semishot.sorter.encoders.image_encoder import ImageEncoder

ROOM = 1024
"""Rows to spare, for files that come while a person labels."""
ADDED_AT_ONCE, SECONDS_BETWEEN = 64, 0.5
SHOWN_FIRST = 1000
"""Known images that are shown before the others are read from the cache."""
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
    """As in `WatchedPile.folders`; "." is the pile itself."""
    first: str = ""
    last: str = ""


class ReadingProgress(NamedTuple):
    """How far reading is, as the page shows it."""

    phase: str
    """listing, reading, ready, or stopped by a problem."""
    done: int = 0
    total: int = 0
    rate: float = 0.0
    """Images per second, of those that had to be read."""
    problem: str = ""


class WatchedPile:
    """The images of a pile, and the thread that reads them; `changed` is called when there is something new.

    Only this thread writes: rows and names are only added, the rest is replaced whole, so others may read.
    """

    def __init__(self, request: LabelRequest, store: LabelStore) -> None:
        self.request, self.store = request, store
        self.images: list[int] = []
        """(P), by row"""
        self.row_of: dict[int, int] = {}
        self.features: NDArray[np.float32] = np.empty((0, 1), np.float32)
        """(P or more, D)"""
        self.looks: NDArray[np.uint8] = np.empty((0, PIXELS), np.uint8)
        """(P or more, S), by which near copies are found."""
        self.names: dict[int, NDArray[np.float32]] = {}
        """Class -> features of its name, from --names."""
        self.digest_of: dict[int, bytes] = store.digests()
        self.listed: dict[str, Item] = {}
        """The files that are there, by name."""
        self.files: dict[int, tuple[str, ...]] = {}
        """Image -> the names of its files, those included that are gone."""
        self.stamp = 0
        """Grows when the files of an image have changed."""
        self.status: dict[str, FileStatus] = {}
        self.skipped: dict[str, str] = {}
        """Files that are not images of the pile, and why."""
        self.opened: tuple[ImageEncoder, EmbeddingCache] | None = None
        """What encodes, and where features are kept, from the first image on."""
        self.progress = ReadingProgress("listing")
        self.changed: Callable[[], None] = lambda: None
        self.stopping, self.look_again = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._watch, name="images", daemon=True)

    # For others

    def path_of(self, image: int) -> Path | None:
        """Where a file of this image is, as far as is known."""
        return next((item.path for item in self.present(image)), None)

    def present(self, image: int) -> list[Item]:
        """The files of an image that exist."""
        listed = self.listed
        return [listed[name] for name in self.files.get(image, ()) if name in listed]

    def names_of(self, image: int) -> list[str]:
        """The files of an image, relative to the pile where they lie in it, those that are gone last."""
        names = sorted(self.files.get(image, ()), key=lambda name: name not in self.listed)
        return [self.shown(name) for name in names]

    def shown(self, name: str) -> str:
        """The name of a file relative to the pile, or to --labeled, where it lies in one of them."""
        for folder in (self.request.pile, self.request.labeled):
            if folder is not None and Path(name).is_relative_to(folder):
                return Path(name).relative_to(folder).as_posix()
        return name

    def find(self, wanted: ImageFilter) -> list[int]:
        """Images with a file that fits."""

        def fits(name: str) -> bool:
            shown, seen = self.shown(name), self.store.files.get(name)
            day = date.fromtimestamp(seen.changed / 1e9).isoformat() if seen else ""
            return (
                wanted.text.casefold() in shown.casefold()
                and (not wanted.folder or PurePath(shown).parent == PurePath(wanted.folder))
                and wanted.first <= day <= (wanted.last or day)
            )

        return [image for image in self.images[:] if any(map(fits, self.files[image]))]

    def folders(self) -> list[tuple[str, int]]:
        """Folders of the pile that hold files, and how many."""
        items = [item for image in self.images[:] for item in self.present(image)]
        parents = Counter(PurePath(self.shown(i.shown)).parent.as_posix() for i in items)
        return sorted(("" if folder == "." else folder, n) for folder, n in parents.items())

    def stop(self) -> None:
        self.stopping.set()
        self.look_again.set()
        self.thread.join(LONGEST_END)

    # In the thread

    def _watch(self) -> None:
        """Look at the folder, and again from time to time, for files that came, went or changed."""
        while not self.stopping.is_set():
            begun = time.monotonic()
            try:
                with quiet():
                    self._look()
            except Exception as error:  # shown on the page; a disk that was taken out may come back
                self.status = {}
                self._show(self.progress._replace(phase="stopped", problem=reason_of(error)))
            took = time.monotonic() - begun
            self.look_again.wait(max(LOOK_AGAIN, took / SHARE_OF_TIME))
            self.look_again.clear()

    def _show(self, progress: ReadingProgress) -> None:
        self.progress = progress
        self.changed()

    def _look(self) -> None:
        listing, before = list_files(self.request), self.status
        paths = {item.shown: item.path for item in listing.items if item.path is not None}
        self.status = {n: now for n, path in paths.items() if (now := status_of(path))}
        self.listed = {item.shown: item for item in listing.items if item.shown in self.status}
        fresh = [i for name, i in self.listed.items() if self.status[name] != before.get(name)]
        self.skipped = {name: why for name, why in self.skipped.items() if name in self.listed}
        self.skipped |= {skipped.shown: skipped.reason for skipped in listing.skipped}
        seen, inside = self.store.files, str(self.request.pile / "_")[:-1]
        earlier = before or [name for name in seen if name.startswith(inside)]
        gone = [name for name in earlier if name not in self.listed]
        for name in gone:
            if name in seen:
                self._name(seen[name].image, name)
        if fresh:
            self._take_in(fresh)
        if (fresh or gone or not before) and not self.stopping.is_set():
            self._import_labels()
            count = len(self.listed)
            self._show(ReadingProgress("ready", count, count, self.progress.rate))

    def _open(self) -> tuple["ImageEncoder", EmbeddingCache]:
        from semishot.sorter.encoders.names import DEFAULT, open_encoder
        from semishot.sorter.labeled_images import features_of_names
        from semishot.sorter.out_folder import EMBEDDINGS

        request = self.request
        if self.opened is None:
            encoder = open_encoder(request.encoder or DEFAULT, view=request.view)
            encoder = encoder.with_boxes(request.crop)
            folder = request.cache or request.folder / EMBEDDINGS
            cache = EmbeddingCache(folder, encoder.cached_as, encoder.features)
            if request.names is not None:
                names = features_of_names(encoder, request.names)
                numbers = self.store.name_classes(names)
                self.names = dict(zip(numbers, names.values(), strict=True))
            self.opened = encoder, cache
        return self.opened

    def _take_in(self, items: Sequence[Item]) -> None:
        """Rows for files that were not seen before, or not like this: known ones first, then by reading."""
        encoder, cache = self._open()
        self._show(ReadingProgress("listing", 0, len(items)))
        elsewhere = {*self.files, *self.store.state.answers} - self.row_of.keys()  # without a file
        self._make_room(len(items) + len(elsewhere), encoder.features)
        for image in elsewhere:
            if (digest := self.digest_of.get(image, b"")) in cache:
                self._add_row(image, digest, cache)
        known, unread = list[Item](), list[Item]()
        for item in items:
            seen = self.store.files.get(item.shown)
            digest = self.digest_of.get(seen.image, b"") if seen else b""
            if seen is not None and seen[1:] == self.status[item.shown] and digest in cache:
                known.append(replace(item, digest=digest))
            else:
                unread.append(item)
        for first, last in ((0, SHOWN_FIRST), (SHOWN_FIRST, len(known))):
            self._add(known[first:last], cache)
            self._show(self.progress._replace(done=min(last, len(known))))
        order = np.random.default_rng(0).permutation(len(unread)).tolist()
        mixed = [unread[index] for index in order]  # so that the first hundred are like the rest
        self._read([item for item in mixed if item.label is not None], encoder, cache)
        if not self.stopping.is_set():
            self._import_labels()
            self._read([item for item in mixed if item.label is None], encoder, cache)

    def _read(self, items: Sequence[Item], encoder: "ImageEncoder", cache: EmbeddingCache) -> None:
        from semishot.sorter.embedding import encode_files

        before, pending = self.progress, list[Item]()
        begun = last = time.monotonic()
        files = encode_files(self.request.device, items, encoder, cache, Seconds())
        for count, (item, file) in enumerate(zip(items, files, strict=True), 1):
            if isinstance(file, Skipped):
                self.skipped[item.shown] = file.reason
            else:
                self.skipped.pop(item.shown, None)
                pending.append(file)
            now = time.monotonic()
            if now - last > SECONDS_BETWEEN or len(pending) >= ADDED_AT_ONCE or count == len(items):
                self._add(pending, cache)
                pending, last = [], now
                rate, done = count / max(now - begun, 1e-9), before.done + count
                self._show(ReadingProgress("reading", done, before.total, rate))
            if self.stopping.is_set():
                return
        cache.flush()

    def _make_room(self, count: int, features: int) -> None:
        """For this many more rows, with this many features each."""
        rows = len(self.images)
        if rows + count <= len(self.features):
            return
        room = np.empty((rows + count + ROOM, features), np.float32)
        looks = np.empty((len(room), PIXELS), np.uint8)
        room[:rows], looks[:rows] = self.features[:rows], self.looks[:rows]
        self.features, self.looks = room, looks

    def _add(self, items: Sequence[Item], cache: EmbeddingCache) -> None:
        """Files whose features are in the cache."""
        numbers = self.store.numbers([item.digest for item in items])
        seen = {
            item.shown: SeenFile(image, *self.status[item.shown])
            for item, image in zip(items, numbers, strict=True)
            if self._add_row(image, item.digest, cache)
        }
        for name in seen.keys() & self.store.files.keys():  # it may have held something else
            image = self.store.files[name].image
            self.files[image] = tuple(n for n in self.files.get(image, ()) if n != name)
        self.store.remember_files(seen.items())
        for name, file in seen.items():
            self._name(file.image, name)

    def _add_row(self, image: int, digest: bytes, cache: EmbeddingCache) -> bool:
        """A row for an image that has none; False if its features are not finite."""
        if image not in self.row_of:
            features, row = cache[digest], len(self.images)
            if not np.isfinite(features).all():
                return False
            self.features[row] = features
            self.looks[row] = np.frombuffer(cache.fingerprint(digest), np.uint8)
            self.digest_of[image], self.row_of[image] = digest, row
            self.files.setdefault(image, ())
            self.images.append(image)
        return True

    def _name(self, image: int, name: str) -> None:
        """Note that a file holds this image, or has held it."""
        self.stamp += 1
        self.files[image] = tuple(dict.fromkeys((*self.files.get(image, ()), name)))

    def _import_labels(self) -> None:
        """What --labeled says now, when all of it has been read."""
        labels = {}
        for name, item in self.listed.items():
            seen = self.store.files.get(name)
            if item.label is not None and seen is not None and seen[1:] == self.status[name]:
                labels[self.digest_of[seen.image]] = item.label
        if labels:
            self.store.import_labels(labels)
            self.changed()
