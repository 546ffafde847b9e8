"""The images of a pile while a person labels it: listed, read and encoded in the background, watched.

A row is an image: its number in the catalog, its files, its features. Rows are only added, never moved.
Letters: P rows of the pile, D features.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semishot.data.decoding import quiet
from semishot.errors import InputError
from semishot.label.catalog import Catalog, Seen, status_of
from semishot.label.requests import LabelRequest
from semishot.sorter.embedding_cache import MOST_BYTES, EmbeddingCache
from semishot.sorter.journal import read_journal, trusted
from semishot.sorter.listing import Item, Listing, Skipped, from_folders
from semishot.system.npy import make_room
from semishot.system.open_tensors import OpenTensors
from semishot.system.progress import Meter, Seconds
from semishot.system.real_paths import real_path

if TYPE_CHECKING:  # torch is imported when the first page has been shown
    from semishot.sorter.embedding import ReadFile
    from semishot.sorter.encoders import ImageEncoder

__all__ = ["CHANGED", "GIVEN", "MISSING", "Library", "Progress", "check_folders", "list_files"]

MISSING, CHANGED, GIVEN = 1, 2, 4
"""Flags of a row: no file of it is left; its file had another content before; it is in --labeled."""
SCRATCH = ".label-features-{}.npy"
TAKEN_AT_ONCE, SECONDS_BETWEEN = 64, 0.5
LOOK_AGAIN, SHARE_OF_TIME = 10.0, 0.02
"""Seconds between two looks at the folder, and the share of time they may take."""
PATIENCE, AFTER_PAGE = 3.0, 0.4
LONGEST_END = 60.0
"""Seconds to wait for the thread: a process that ends while torch is being imported is aborted."""
ROOM = 1024
"""Rows to spare in the file of features."""


class Progress(NamedTuple):
    phase: str
    """listing, reading, ready, or stopped by a problem."""
    done: int
    total: int
    rate: float
    """Images per second, of those that had to be read."""
    skipped: int
    problem: str = ""


class Counted(Meter):
    """A meter that draws nothing: the page shows progress."""

    def __init__(self) -> None:
        self.done, self.bar, self.seconds = 0, None, Seconds()

    def advance(self, amount: int = 1, note: str = "") -> None:
        self.done += amount


@dataclass
class Rows:
    """What is known of each row; guarded by the library's lock."""

    images: list[int] = field(default_factory=list)
    row_of: dict[int, int] = field(default_factory=dict)
    files: dict[int, list[str]] = field(default_factory=dict)
    """Image -> its files that exist."""
    lost: dict[int, list[str]] = field(default_factory=dict)
    """Image -> its files that are gone or hold something else now."""
    changed: set[int] = field(default_factory=set)
    given: dict[int, str] = field(default_factory=dict)
    """Image -> its label in --labeled."""
    corrected: dict[int, str] = field(default_factory=dict)
    """Image -> what was corrected outside of the page: in predictions.csv, or by moving sorted files."""


def check_folders(request: LabelRequest) -> None:
    """Refuse folders that cannot be what they are given as, without looking at what is in them."""
    out, pile = request.folder, request.pile
    if not pile.is_dir():
        raise InputError(f"{pile} is not a folder; it holds the images to label")
    inside = {real_path(folder) for folder in (pile, request.labeled) if folder is not None}
    if real_path(out) in inside:
        raise InputError(f"--out {out} holds your images: choose a folder of its own")


def list_files(request: LabelRequest) -> tuple[Listing, dict[str, Path]]:
    """The files of the pile and of --labeled, and where those lie that were moved by a sorting."""
    check_folders(request)
    out, pile = request.folder, request.pile
    apart = [out, *([request.cache] if request.cache else [])]
    listing = from_folders(request.labeled, [pile], apart)
    moved: dict[str, Path] = {}
    sorting = read_journal(out, trusted(pile))
    if sorting is not None and sorting.how == "move":
        root = real_path(pile)
        for step in sorting.steps:
            target = sorting.target(step)
            if step.source.is_relative_to(root) and not step.source.exists() and target.exists():
                shown = str(pile / step.source.relative_to(root))
                listing.items.append(Item(shown, None, target))
                moved[shown] = target
    return listing, moved


class Library:
    """Reads the pile in a thread of its own; `changed` is called when there is something new."""

    def __init__(
        self, request: LabelRequest, catalog: Catalog, changed: Callable[[], None]
    ) -> None:
        self.request, self.catalog, self.changed = request, catalog, changed
        self.lock = threading.Lock()
        self.rows = Rows()
        self.digest_of: dict[int, bytes] = catalog.digests()
        self.status: dict[str, tuple[int, int] | None] = {}
        self.where: dict[str, Path] = {}
        self.problems: dict[str, str] = {}
        self.encoder: ImageEncoder | None = None
        self.wait_for_page = threading.Event()
        self.patience = 0.0
        """Seconds that a page which shows what was known the last time may take before work begins."""
        self.features: NDArray[np.float32] = np.empty((0, 1), np.float32)
        self.cache: EmbeddingCache | None = None
        self.progress = Progress("listing", 0, 0, 0.0, 0)
        self.also: list[Item] = []
        """Labeled images of `classify` that lie elsewhere."""
        self.corrections: dict[str, str] = {}
        self.by_hand: dict[str, Path] = {}
        """Sorted files that were moved by hand: where they are."""
        self.files_before: dict[int, list[str]] | None = None
        self.stamp = 0
        """Grows when something about rows that are there has changed."""
        self.skipped: list[Skipped] = []
        self.stopping = threading.Event()
        self.look_again = threading.Event()
        self.thread = threading.Thread(target=self._run, name="images", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self.wait_for_page.set()
        self.look_again.set()
        self.thread.join(LONGEST_END)
        for number in (0, 1):
            (self.request.folder / SCRATCH.format(number)).unlink(missing_ok=True)

    def path_of(self, image: int) -> Path | None:
        """A file of this image that exists, as far as is known."""
        with self.lock:
            for name in self.rows.files.get(image, self._earlier().get(image, ())):
                return self.where.get(name, Path(name))
        return None

    def _earlier(self) -> dict[int, list[str]]:
        """The files of each image as they were the last time, until the folder has been looked at."""
        if self.progress.phase != "listing":
            self.files_before = None
            return {}
        if self.files_before is None:
            self.files_before = {}
            for name, seen in list(self.catalog.files.items()):
                self.files_before.setdefault(seen.image, []).append(name)
        return self.files_before

    def names_of(self, image: int) -> list[str]:
        """The files of an image, relative to the pile where they lie in it."""
        with self.lock:
            found = [*self.rows.files.get(image, ()), *self.rows.lost.get(image, ())]
            found = found or self._earlier().get(image, [])
        return [self.shown(name) for name in found]

    def shown(self, name: str) -> str:
        for folder in (self.request.pile, self.request.labeled):
            if folder is not None and Path(name).is_relative_to(folder):
                return Path(name).relative_to(folder).as_posix()
        return name

    def flags(self, image: int) -> int:
        """MISSING, CHANGED and GIVEN of an image. The caller holds the lock."""
        missing = MISSING if not self.rows.files.get(image) else 0
        changed = CHANGED if image in self.rows.changed else 0
        return missing | changed | (GIVEN if image in self.rows.given else 0)

    def find(self, text: str, most: int) -> list[int]:
        """Images with a file whose name contains the text."""
        wanted, found = text.casefold(), dict[int, None]()
        with self.lock:
            earlier = self._earlier()
            for image in [*self.rows.images, *earlier]:
                names = (*self.rows.files.get(image, ()), *self.rows.lost.get(image, ()))
                names = names or tuple(earlier.get(image, ()))
                if any(wanted in self.shown(name).casefold() for name in names):
                    found.setdefault(image)
                    if len(found) == most:
                        break
        return list(found)

    def _run(self) -> None:
        try:
            if self.wait_for_page.wait(self.patience) and not self.stopping.is_set():
                self.stopping.wait(min(AFTER_PAGE, self.patience))  # its pictures come first
            if self.stopping.is_set():
                return
            with quiet():
                self._look()
                self._watch()
        except Exception as error:  # shown on the page: a thread has nobody else to tell
            self._stopped(error)

    def _stopped(self, error: Exception) -> None:
        reason = " ".join(str(error).split()) or type(error).__name__
        self.progress = self.progress._replace(phase="stopped", problem=reason[:500])
        self.changed()

    def _watch(self) -> None:
        """Look at the folder again from time to time, for files that came, went or changed."""
        took = 0.0
        while not self.stopping.is_set():
            self.look_again.wait(max(LOOK_AGAIN, took / SHARE_OF_TIME))
            self.look_again.clear()
            if not self.stopping.is_set():
                begun = time.monotonic()
                self._look()
                took = time.monotonic() - begun

    def _look(self) -> None:
        try:
            listing, moved = list_files(self.request)
        except (OSError, InputError) as error:  # a disk was taken out: it may come back
            if not self.status:
                raise
            self._stopped(error)
            return
        if not self.status:
            self._left_by_classify(listing)
        listing.items += self.also
        for name, path in self.by_hand.items():
            if name not in moved and path.exists():
                listing.items.append(Item(name, None, path))
                moved[name] = path
        with self.lock:
            self.where = moved
        now = {item.shown: status_of(item.path) for item in listing.items if item.path}
        fresh = [item for item in listing.items if self.status.get(item.shown) != now[item.shown]]
        gone = [name for name in self.status if now.get(name) is None]
        first = not self.status
        self.status = now
        if gone:
            self._lose(gone)
        if first:
            self._lose_earlier(now)
        if fresh:
            self._take_in(fresh, listing)
        elif gone or first or self.progress.phase == "stopped":
            self._ready(listing)

    def _left_by_classify(self, listing: Listing) -> None:
        """Labels and corrections of `classify` in the same OUT, and where sorted files were moved by hand."""
        from semishot.sorter.corrections import SortedPile, corrected, from_predictions
        from semishot.sorter.out_folder import PREDICTIONS
        from semishot.sorter.sorted_files import find_sorted

        out, listed = self.request.folder, {item.shown for item in listing.items}
        if (out / PREDICTIONS).exists():
            known = from_predictions(out / PREDICTIONS).items
            self.also = [
                item
                for item in known
                if item.label and not item.of_pile and item.path and item.path.is_file()
                if item.shown not in listed
            ]
        sorting = read_journal(out, trusted(self.request.pile))
        before = None
        if sorting is not None and sorting.done:
            before = SortedPile(sorting, find_sorted(sorting))
        for item in corrected(listing.items, self.request.pile, out, before, answers=False):
            if item.correct:
                self.corrections[item.shown] = item.correct
            if item.home is not None and item.path is not None and item.shown not in self.by_hand:
                self.by_hand[item.shown] = item.path

    def _lose(self, names: Iterable[str]) -> None:
        with self.lock:
            self.stamp += 1
            for name in names:
                seen = self.catalog.files.get(name)
                files = self.rows.files.get(seen.image, []) if seen else []
                if seen and name in files:
                    files.remove(name)
                    self.rows.lost.setdefault(seen.image, []).append(name)

    def _lose_earlier(self, now: dict[str, Any]) -> None:
        """Files of an earlier session that are gone: their images stay, and say so."""
        root = str(self.request.pile)
        with self.lock:
            for name, seen in self.catalog.files.items():
                if now.get(name) is None and Path(name).is_relative_to(root):
                    self.rows.lost.setdefault(seen.image, []).append(name)

    def _open(self) -> tuple["ImageEncoder", EmbeddingCache]:
        from semishot.sorter.encoders import DEFAULT, open_encoder
        from semishot.sorter.out_folder import EMBEDDINGS

        if self.encoder is None or self.cache is None:
            encoder = open_encoder(self.request.encoder or DEFAULT)
            folder = self.request.cache or self.request.folder / EMBEDDINGS
            self.cache = EmbeddingCache(folder, encoder.identity, encoder.features)
            self.encoder = encoder
        return self.encoder, self.cache

    def _take_in(self, items: Sequence[Item], listing: Listing) -> None:
        """Rows for files that were not seen before, or not like this: known ones first, then by reading."""
        self.progress = Progress("listing", 0, len(items), 0.0, len(listing.skipped))
        self.changed()
        encoder, cache = self._open()
        self._make_room(len(self.rows.images) + len(items), encoder.features)
        known, unread = [], []
        for item in items:
            seen = self.catalog.files.get(item.shown)
            if seen is not None and seen[1:] == self.status[item.shown]:
                digest = self.digest_of.get(seen.image, b"")
                if digest in cache:
                    known.append((item, digest))
                    continue
            unread.append(item)
        lost = [self.digest_of.get(image, b"") for image in self.rows.lost]
        self._load(cache, [digest for _, digest in known] + [d for d in lost if d in cache])
        self._add(known)
        self._read(self._in_order(unread), len(items))
        self._ready(listing)

    def _in_order(self, items: Sequence[Item]) -> list[Item]:
        """Labeled ones first, then the pile mixed, so that the first hundred are like the rest."""
        order = np.random.default_rng(0).permutation(len(items)).tolist()
        return sorted((items[place] for place in order), key=lambda item: item.label is None)

    def _load(self, cache: EmbeddingCache, digests: Sequence[bytes]) -> None:
        """Rows of known images, a segment of the cache at a time."""
        segments: dict[Path, list[tuple[bytes, int]]] = {}
        for digest in dict.fromkeys(digests):
            if digest in cache.places:
                path, place = cache.places[digest]
                segments.setdefault(path, []).append((digest, place))
        numbers = self.catalog.numbers([d for held in segments.values() for d, _ in held])
        each = iter(numbers)
        for path, held in segments.items():
            with OpenTensors(path, MOST_BYTES) as file:
                features = file["features"]
            for digest, place in held:
                self._add_row(next(each), digest, features[place])

    def _add_row(self, image: int, digest: bytes, features: NDArray[np.float32]) -> None:
        if image in self.rows.row_of or not np.isfinite(features).all():
            return
        row = len(self.rows.images)
        self.features[row] = features
        with self.lock:
            self.digest_of[image] = digest
            self.rows.row_of[image] = row
            self.rows.images.append(image)

    def _add(self, found: Sequence[tuple[Item, bytes]]) -> None:
        """Files whose features are in the cache."""
        assert self.cache is not None
        numbers = self.catalog.numbers([digest for _, digest in found])
        fresh = []
        for (item, digest), image in zip(found, numbers, strict=True):
            if image not in self.rows.row_of:
                self._add_row(image, digest, self.cache[digest])
            if image not in self.rows.row_of:
                self.problems[item.shown] = "the encoder gives features that are not finite"
                continue
            before = self.catalog.files.get(item.shown)
            with self.lock:
                self._place(item, image, before)
            status = self.status.get(item.shown)
            if status is not None:
                fresh.append((item.shown, Seen(image, *status)))
        self.catalog.remember(fresh)

    def _place(self, item: Item, image: int, before: Seen | None) -> None:
        """Note that this file holds this image now."""
        rows, name = self.rows, item.shown
        self.stamp += 1
        if before is not None and before.image != image:
            rows.changed.add(image)
            if name in rows.files.get(before.image, ()):
                rows.files[before.image].remove(name)
            if name not in rows.lost.setdefault(before.image, []):
                rows.lost[before.image].append(name)
        if name in rows.lost.get(image, ()):
            rows.lost[image].remove(name)
        if name not in rows.files.setdefault(image, []):
            rows.files[image].append(name)
        if item.label is not None:
            rows.given[image] = item.label
        if name in self.corrections:
            rows.corrected[image] = self.corrections[name]

    def _read(self, items: Sequence[Item], total: int) -> None:
        if not items:
            return
        before, begun = total - len(items), time.monotonic()
        counted, pending = Counted(), list[tuple[Item, bytes]]()
        last = time.monotonic()
        for seen in self._seen(items, counted):
            if seen.problem:
                self.problems[seen.item.shown] = seen.problem
            else:
                pending.append((seen.item, seen.digest))
            now = time.monotonic()
            if now - last > SECONDS_BETWEEN or len(pending) >= TAKEN_AT_ONCE:
                pending, last = self._take_encoded(pending), now
                rate = counted.done / max(now - begun, 1e-9)
                skipped = self.progress.skipped
                self.progress = Progress("reading", before + counted.done, total, rate, skipped)
                self.changed()
            if self.stopping.is_set():
                return
        self._take_encoded(pending)

    def _seen(self, items: Sequence[Item], counted: Meter) -> Iterator["ReadFile"]:
        from semishot.sorter.embedding import in_this_process

        encoder, cache = self._open()
        read = partial(in_this_process, self.request.device)
        yield from read(items, encoder, cache, counted)
        cache.flush()

    def _take_encoded(self, pending: list[tuple[Item, bytes]]) -> list[tuple[Item, bytes]]:
        """Add the files whose batch is encoded; return the others."""
        assert self.cache is not None
        self._add([found for found in pending if found[1] in self.cache])
        return [found for found in pending if found[1] not in self.cache]

    def _make_room(self, count: int, features: int) -> None:
        if count <= len(self.features) and self.features.shape[1] == features:
            return
        number = 1 if str(getattr(self.features, "filename", "")).endswith("-0.npy") else 0
        path = self.request.folder / SCRATCH.format(number)
        held, rows = self.features, len(self.rows.images)
        self.features = make_room(path, np.float32, (count + ROOM, features))
        self.features[:rows] = held[:rows]

    def _ready(self, listing: Listing) -> None:
        problems = [Skipped(name, reason) for name, reason in self.problems.items()]
        self.skipped = [*listing.skipped, *problems]
        count = len(self.status)
        self.progress = Progress("ready", count, count, self.progress.rate, len(self.skipped))
        self.changed()
