"""The images of a pile's page: thumbnails in the page, large ones in OUT/pictures; made by threads."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from semishot.data.decoding import opened
from semishot.data.thumbnails import large_thumbnail, thumbnail
from semishot.errors import InputError
from semishot.sorter.embedding import ahead, most_threads, read_image
from semishot.sorter.listing import Item
from semishot.sorter.out_folder import PICTURES
from semishot.system.files import write_whole
from semishot.system.progress import meter

LABELED_SHOWN = 6
"""The most labeled examples shown at the head of a class."""
MOST_LARGE, MOST_LARGE_BYTES = 500, 100_000_000
"""Of images in OUT/pictures: the page links to the originals of the others."""
OUR_NAME = re.compile(r"[0-9a-f]{32}\.jpg")


@dataclass
class PageImages:
    """The images that a page shows, small and large. A large one is named by the original's content."""

    out: Path
    digests: Mapping[Item, bytes]
    cached: Callable[[bytes], bytes | None]
    """A thumbnail that was made when the image was encoded, by its digest."""
    small: dict[Item, bytes | None] = field(default_factory=dict)
    """None for a row of features, and for a file that has changed meanwhile."""
    sizes: dict[str, int] = field(default_factory=dict)
    """The name of each large image of this page, and its bytes."""

    def examples(self, labeled: Sequence[Item], classes: Sequence[str]) -> dict[str, list[bytes]]:
        """The thumbnails of the first labeled images of each class."""
        first: dict[str, list[Item]] = {name: [] for name in classes}
        for item in labeled:
            first.get(str(item.label), []).append(item)
        chosen = {name: items[:LABELED_SHOWN] for name, items in first.items()}
        self.prepare([item for items in chosen.values() for item in items], large=False)
        return {
            name: [small for item in items if (small := self.small[item]) is not None]
            for name, items in chosen.items()
        }

    def prepare(self, items: Sequence[Item], large: bool) -> None:
        """Make the missing ones."""

        def make(wanted: tuple[Item, bytes | None, bool]) -> tuple[Item, bytes | None, bytes]:
            item, small, needs_large = wanted
            picture = _made(item, large_thumbnail) if needs_large else None
            return item, small or _made(item, thumbnail), picture or b""

        with meter("drawing the page", len(items), "images") as progress:
            work = (self._wanted(item, large) for item in dict.fromkeys(items))
            for item, small, picture in ahead(make, work, most_threads()):
                self.small[item] = small
                if large:  # in order, also those that are there already: their number is limited
                    self._keep(item, picture)
                progress.advance(1)

    def _wanted(self, item: Item, large: bool) -> tuple[Item, bytes | None, bool]:
        """An image, its thumbnail if there is one, and whether a large one is to be made."""
        digest, name = self.digests.get(item), self._name(item)
        small = self.small.get(item) or (self.cached(digest) if digest else None)
        there = name in self.sizes or (self.out / PICTURES / name).is_file()
        return item, small, large and bool(name) and self._has_room and not there

    def _keep(self, item: Item, picture: bytes) -> None:
        """Write a large image, unless it is there or there is no room for it."""
        name = self._name(item)
        path = self.out / PICTURES / name
        if not name or name in self.sizes or not self._has_room:
            return
        if not path.is_file() and picture:
            write_whole(path, picture)
        if path.is_file():
            self.sizes[name] = path.stat().st_size

    @property
    def _has_room(self) -> bool:
        return len(self.sizes) < MOST_LARGE and sum(self.sizes.values()) < MOST_LARGE_BYTES

    def _name(self, item: Item) -> str:
        digest = self.digests.get(item)
        return f"{digest.hex()[:32]}.jpg" if digest and item.path is not None else ""

    def large(self, item: Item) -> str:
        """The relative address of an image's large picture; empty without one."""
        name = self._name(item)
        return f"{PICTURES}/{name}" if name in self.sizes else ""

    def remove_others(self) -> None:
        """Remove large images of earlier pages; files of other names stay."""
        folder = self.out / PICTURES
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                if OUR_NAME.fullmatch(path.name) and path.name not in self.sizes:
                    path.unlink()


def _made(item: Item, make: Callable[..., bytes]) -> bytes | None:
    """None for a row of features, and for a file that has changed or is gone."""
    if item.path is None:
        return None
    try:
        with opened(read_image(item.path), "it") as image:
            return make(image)
    except InputError:
        return None


def link_to(original: Path, out: Path) -> str:
    """The relative address of a file, as a page in `out` links to it."""
    relative = os.path.relpath(original.absolute(), out.absolute())
    return quote(os.fsencode(relative.replace(os.sep, "/")))
