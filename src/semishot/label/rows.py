"""What is known of each image of a pile: its row, its files, its features.

A row is an image, by its number in the catalog. Rows are only added, never moved.
Letters: P rows of the pile, D features.
"""

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from semishot.label.catalog import Catalog, Status
from semishot.label.pile_files import moved_files
from semishot.label.requests import LabelRequest
from semishot.sorter.listing import Item
from semishot.system.npy import make_room

MISSING, CHANGED, GIVEN = 1, 2, 4
"""Flags of a row: no file of it is left; its file had another content before; it is in --labeled."""
SCRATCH = ".label-features.npy"
ROOM = 1024
"""Rows to spare in the file of features."""


class Rows:
    """Written by the thread that reads the pile; others hold `lock` while they look at files or flags."""

    def __init__(self, request: LabelRequest, catalog: Catalog) -> None:
        self.request, self.catalog = request, catalog
        self.lock = threading.Lock()
        self.images: list[int] = []
        self.row_of: dict[int, int] = {}
        self.features: NDArray[np.float32] = np.empty((0, 1), np.float32)
        """(P or more, D), on disk."""
        self.digest_of: dict[int, bytes] = catalog.digests()
        self.files: dict[int, list[str]] = {}
        """Image -> its files that exist."""
        self.lost: dict[int, list[str]] = {}
        """Image -> its files that are gone or hold something else now."""
        self.where: dict[str, Path] = {}
        """File -> where it is, if it was moved by a sorting or by hand."""
        self.changed: set[int] = set()
        self.given: dict[int, str] = {}
        """Image -> its label in --labeled."""
        self.corrected: dict[int, str] = {}
        """Image -> what was corrected outside of the page: in predictions.csv, or by moving sorted files."""
        self.stamp = 0
        """Grows when something about rows that are there has changed."""
        self.listing = True
        """Whether the folder is being looked at: until then files are as they were the last time."""
        self.files_before: dict[int, list[str]] | None = None
        self.moved_before: dict[str, Path] | None = None
        """What `where` will hold of a sorting once the folder has been looked at; read when it is needed."""

    def path_of(self, image: int) -> Path | None:
        """A file of this image that exists, as far as is known."""
        with self.lock:
            for name in self.files.get(image, self._earlier().get(image, ())):
                path = self.where.get(name, Path(name))
                if self.listing and not path.exists():
                    if self.moved_before is None:
                        self.moved_before = moved_files(self.request)
                    return self.moved_before.get(name, path)
                return path
        return None

    def _earlier(self) -> dict[int, list[str]]:
        """The files of each image as they were the last time, until the folder has been looked at."""
        if not self.listing:
            self.files_before = None
            return {}
        if self.files_before is None:
            self.files_before = {}
            for name, seen in list(self.catalog.files.items()):
                self.files_before.setdefault(seen.image, []).append(name)
        return self.files_before

    def _files(self, image: int) -> list[str]:
        """The files of an image, those that are gone last. The caller holds the lock."""
        found = [*self.files.get(image, ()), *self.lost.get(image, ())]
        return found or self._earlier().get(image, [])

    def names_of(self, image: int) -> list[str]:
        """The files of an image, relative to the pile where they lie in it."""
        with self.lock:
            found = self._files(image)
        return [self.shown(name) for name in found]

    def shown(self, name: str) -> str:
        for folder in (self.request.pile, self.request.labeled):
            if folder is not None and Path(name).is_relative_to(folder):
                return Path(name).relative_to(folder).as_posix()
        return name

    def flags(self, image: int) -> int:
        """MISSING, CHANGED and GIVEN of an image. The caller holds the lock."""
        missing = MISSING if not self.files.get(image) else 0
        changed = CHANGED if image in self.changed else 0
        return missing | changed | (GIVEN if image in self.given else 0)

    def find(self, text: str, most: int) -> list[int]:
        """Images with a file whose name contains the text."""
        wanted, found = text.casefold(), dict[int, None]()
        with self.lock:
            for image in [*self.images, *self._earlier()]:
                if any(wanted in self.shown(name).casefold() for name in self._files(image)):
                    found.setdefault(image)
                    if len(found) == most:
                        break
        return list(found)

    def make_room(self, count: int, features: int) -> None:
        """For this many rows in all, with this many features each."""
        if count <= len(self.features) and self.features.shape[1] == features:
            return
        rows = len(self.images)
        held = self.features  # it stays mapped, though its file has no name
        path = self.request.folder / SCRATCH
        room = make_room(path, np.float32, (count + ROOM, features))
        room[:rows] = held[:rows]
        self.features = room

    def remove_scratch(self) -> None:
        (self.request.folder / SCRATCH).unlink(missing_ok=True)

    def add(self, image: int, digest: bytes, features: NDArray[np.float32]) -> None:
        """A row for an image that has none, if its features are finite."""
        if image in self.row_of or not np.isfinite(features).all():
            return
        row = len(self.images)
        self.features[row] = features
        with self.lock:
            self.digest_of[image] = digest
            self.row_of[image] = row
            self.images.append(image)

    def place(self, item: Item, image: int, correction: str | None) -> None:
        """Note that this file holds this image now, and how it was corrected outside of the page."""
        name, before = item.shown, self.catalog.files.get(item.shown)
        with self.lock:
            self.stamp += 1
            if before is not None and before.image != image:
                self.changed.add(image)
                if name in self.files.get(before.image, ()):
                    self.files[before.image].remove(name)
                if name not in self.lost.setdefault(before.image, []):
                    self.lost[before.image].append(name)
            if name in self.lost.get(image, ()):
                self.lost[image].remove(name)
            if name not in self.files.setdefault(image, []):
                self.files[image].append(name)
            if item.label is not None:
                self.given[image] = item.label
            if correction is not None:
                self.corrected[image] = correction

    def lose(self, names: Iterable[str]) -> None:
        """Note that these files are gone."""
        with self.lock:
            self.stamp += 1
            for name in names:
                seen = self.catalog.files.get(name)
                files = self.files.get(seen.image, []) if seen else []
                if seen and name in files:
                    files.remove(name)
                    self.lost.setdefault(seen.image, []).append(name)

    def lose_earlier(self, now: Mapping[str, Status | None]) -> None:
        """Files of an earlier session that are gone: their images stay, and say so."""
        root = str(self.request.pile)
        with self.lock:
            for name, seen in self.catalog.files.items():
                if now.get(name) is None and Path(name).is_relative_to(root):
                    self.lost.setdefault(seen.image, []).append(name)
