"""A pile read in the background while a person labels it: listed, encoded, and watched for what changes."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from semishot.data.decoding import quiet
from semishot.errors import InputError, reason_of
from semishot.label.catalog import Catalog, Seen, Status, status_of
from semishot.label.pile_files import LeftByClassify, left_by_classify, list_files
from semishot.label.requests import LabelRequest
from semishot.label.rows import Rows
from semishot.sorter.embedding_cache import MOST_BYTES, EmbeddingCache
from semishot.sorter.listing import Item, Listing, Skipped
from semishot.system.progress import Meter, Seconds
from semishot.system.tensor_files import OpenTensors

if TYPE_CHECKING:  # torch is imported when the first page has been shown
    from semishot.sorter.embedding import ReadFile
    from semishot.sorter.encoders.image_encoder import ImageEncoder

TAKEN_AT_ONCE, SECONDS_BETWEEN = 64, 0.5
LOOK_AGAIN, SHARE_OF_TIME = 10.0, 0.02
"""Seconds between two looks at the folder, and the share of time they may take."""
PATIENCE, AFTER_PAGE = 3.0, 0.4
LONGEST_END = 60.0
"""Seconds to wait for the thread: a process that ends while torch is being imported is aborted."""


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


class PileReader:
    """Reads the pile in a thread of its own; `changed` is called when there is something new."""

    def __init__(self, request: LabelRequest, catalog: Catalog) -> None:
        self.request, self.catalog = request, catalog
        self.changed: Callable[[], None] = lambda: None
        self.rows = Rows(request, catalog)
        self.status: dict[str, Status | None] = {}
        self.problems: dict[str, str] = {}
        self.encoder: ImageEncoder | None = None
        self.wait_for_page = threading.Event()
        self.patience = 0.0
        """Seconds that a page which shows what was known the last time may take before work begins."""
        self.cache: EmbeddingCache | None = None
        self.progress = Progress("listing", 0, 0, 0.0, 0)
        self.left = LeftByClassify()
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
        self.rows.remove_scratch()

    def _show(self, progress: Progress) -> None:
        self.progress = progress
        self.rows.listing = progress.phase == "listing"
        self.changed()

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
        self._show(self.progress._replace(phase="stopped", problem=reason_of(error)))

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
            self.left = left_by_classify(self.request, listing)
        listing.items += self.left.labeled
        for name, path in self.left.by_hand.items():
            if name not in moved and path.exists():
                listing.items.append(Item(name, None, path))
                moved[name] = path
        with self.rows.lock:
            self.rows.where = moved
        now = {item.shown: status_of(item.path) for item in listing.items if item.path}
        fresh = [item for item in listing.items if self.status.get(item.shown) != now[item.shown]]
        gone = [name for name in self.status if now.get(name) is None]
        first = not self.status
        self.status = now
        if gone:
            self.rows.lose(gone)
        if first:
            self.rows.lose_earlier(now)
        if fresh:
            self._take_in(fresh, listing)
        elif gone or first or self.progress.phase == "stopped":
            self._ready(listing)

    def _open(self) -> tuple["ImageEncoder", EmbeddingCache]:
        from semishot.sorter.encoders.image_encoder import open_encoder
        from semishot.sorter.encoders.saved_files import DEFAULT
        from semishot.sorter.out_folder import EMBEDDINGS

        if self.encoder is None or self.cache is None:
            encoder = open_encoder(self.request.encoder or DEFAULT)
            folder = self.request.cache or self.request.folder / EMBEDDINGS
            self.cache = EmbeddingCache(folder, encoder.identity, encoder.features)
            self.encoder = encoder
        return self.encoder, self.cache

    def _take_in(self, items: Sequence[Item], listing: Listing) -> None:
        """Rows for files that were not seen before, or not like this: known ones first, then by reading."""
        self._show(Progress("listing", 0, len(items), 0.0, len(listing.skipped)))
        encoder, cache = self._open()
        self.rows.make_room(len(self.rows.images) + len(items), encoder.features)
        known, unread = [], []
        for item in items:
            seen = self.catalog.files.get(item.shown)
            if seen is not None and seen[1:] == self.status[item.shown]:
                digest = self.rows.digest_of.get(seen.image, b"")
                if digest in cache:
                    known.append((item, digest))
                    continue
            unread.append(item)
        lost = [self.rows.digest_of.get(image, b"") for image in self.rows.lost]
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
                self.rows.add(next(each), digest, features[place])

    def _add(self, found: Sequence[tuple[Item, bytes]]) -> None:
        """Files whose features are in the cache."""
        assert self.cache is not None
        numbers = self.catalog.numbers([digest for _, digest in found])
        fresh = []
        for (item, digest), image in zip(found, numbers, strict=True):
            if image not in self.rows.row_of:
                self.rows.add(image, digest, self.cache[digest])
            if image not in self.rows.row_of:
                self.problems[item.shown] = "the encoder gives features that are not finite"
                continue
            self.rows.place(item, image, self.left.corrections.get(item.shown))
            status = self.status.get(item.shown)
            if status is not None:
                fresh.append((item.shown, Seen(image, *status)))
        self.catalog.remember(fresh)

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
                self._show(Progress("reading", before + counted.done, total, rate, skipped))
            if self.stopping.is_set():
                return
        self._take_encoded(pending)

    def _seen(self, items: Sequence[Item], counted: Meter) -> Iterator["ReadFile"]:
        from semishot.sorter.embedding import in_this_process

        encoder, cache = self._open()
        yield from in_this_process(self.request.device, items, encoder, cache, counted)
        cache.flush()

    def _take_encoded(self, pending: list[tuple[Item, bytes]]) -> list[tuple[Item, bytes]]:
        """Add the files whose batch is encoded; return the others."""
        assert self.cache is not None
        self._add([found for found in pending if found[1] in self.cache])
        return [found for found in pending if found[1] not in self.cache]

    def _ready(self, listing: Listing) -> None:
        problems = [Skipped(name, reason) for name, reason in self.problems.items()]
        self.skipped = [*listing.skipped, *problems]
        count = len(self.status)
        self._show(Progress("ready", count, count, self.progress.rate, len(self.skipped)))
