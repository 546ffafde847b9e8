"""The pictures that the page of a pile shows large: files in OUT/pictures, and links to the originals."""

import io
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from semishot.data.decoding import opened
from semishot.data.thumbnails import large_thumbnail
from semishot.errors import InputError
from semishot.sorter.embedding import read_image
from semishot.sorter.listing import Item
from semishot.sorter.out_folder import PICTURES
from semishot.system.files import without_name, write_whole

MOST, MOST_BYTES = 500, 100_000_000
"""Of pictures in OUT: the page shows the originals of the others, as far as a browser can."""
MOST_EARLY, MOST_BYTES_EARLY = 4000, 500_000_000
"""Of pictures that are made while images are encoded: later, the images of a page are decoded again."""
OUR_NAME = re.compile(r"[0-9a-f]{32}\.jpg")


@dataclass
class LargePictures:
    """Downsized copies of the originals in a folder beside the page, each named by its content."""

    out: Path
    digests: Mapping[Item, bytes]
    kept: Callable[[bytes], bytes] = lambda digest: b""
    """A picture that was made when the image was encoded, by its digest; nothing if there is none."""
    used: dict[str, int] = field(default_factory=dict)
    """The name of each picture of this page, and its bytes."""

    def source(self, item: Item, made: bytes | None = None) -> str:
        """The relative address of the picture; makes the picture if needed. Empty without a file.

        made: what `make` has returned, in a thread.
        """
        name = self.name_of(item)
        if not name:
            return ""
        if name not in self.used:
            path = self.out / PICTURES / name
            if not self.room or not (path.is_file() or _write(made or self.make(item), path)):
                return ""
            self.used[name] = path.stat().st_size
        return f"{PICTURES}/{name}"

    @property
    def room(self) -> bool:
        """Whether one more picture may be made."""
        return len(self.used) < MOST and sum(self.used.values()) < MOST_BYTES

    def name_of(self, item: Item) -> str:
        digest = self.digests.get(item)
        return _name(digest) if digest and item.path is not None else ""

    def wanted(self, item: Item) -> bool:
        """Whether `make` should be called for it."""
        name = self.name_of(item)
        known = name in self.used or (self.out / PICTURES / name).is_file()
        return bool(name) and self.room and not known

    def make(self, item: Item) -> bytes:
        """The picture; nothing if the original is gone or has changed."""
        assert item.path is not None
        if kept := self.kept(self.digests[item]):
            return kept
        try:
            with opened(read_image(item.path), "it") as image:
                return large_thumbnail(image)
        except InputError:
            return b""

    def remove_others(self) -> None:
        """Remove pictures of earlier pages; files of other names stay."""
        folder = self.out / PICTURES
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                if OUR_NAME.fullmatch(path.name) and path.name not in self.used:
                    path.unlink()


class EarlyPictures:
    """Pictures that are made while their images are decoded to be encoded: of a pile of some thousands, it
    takes less time to make all than to decode those again that the page shows.

    They lie one after the other in a file without a name; those that the page shows get files of their own.
    """

    def __init__(self, out: Path) -> None:
        self.out, self.left, self.room = out, MOST_EARLY, MOST_BYTES_EARLY
        self.lock = threading.Lock()
        self.file: io.FileIO | None = None
        self.places: dict[bytes, tuple[int, int]] = {}
        """First byte and number of bytes, by the digest of the image."""

    def __call__(self, digest: bytes, picture: bytes) -> None:
        """In any thread."""
        with self.lock:
            try:
                self.file = self.file or without_name(self.out)
                first, count = self.file.seek(0, os.SEEK_END), self.file.write(picture)
            except OSError:  # of a full disk: whatever is needed says so
                count = 0
            self.room -= len(picture)
            self.left = self.left - 1 if self.room > 0 and count == len(picture) else 0
            if count == len(picture):
                self.places[digest] = first, count

    def of(self, digest: bytes) -> bytes:
        """The picture, or nothing; in any thread."""
        with self.lock:
            if self.file is None or digest not in self.places:
                return b""
            first, count = self.places[digest]
            self.file.seek(first)
            return self.file.read(count)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def _name(digest: bytes) -> str:
    return f"{digest.hex()[:32]}.jpg"


def _write(picture: bytes, path: Path) -> bool:
    """Whether there was a picture."""
    if picture:
        write_whole(path, picture)
    return bool(picture)


def link_to(original: Path, out: Path) -> str:
    """The relative address of a file, as a page in `out` links to it."""
    relative = os.path.relpath(original.absolute(), out.absolute())
    return quote(os.fsencode(relative.replace(os.sep, "/")))
