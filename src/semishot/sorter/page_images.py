"""The images of a pile's page: thumbnails in the page, large ones in OUT/pictures; made by threads."""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from semishot.data.decoding import opened
from semishot.data.thumbnails import large_thumbnail, thumbnail
from semishot.errors import InputError
from semishot.sorter.embedding import ahead, most_threads, read_image
from semishot.sorter.listing import Item
from semishot.sorter.out_folder import PICTURES
from semishot.system.files import write_whole
from semishot.system.progress import meter

LOOK = Path(__file__).with_name("look.css")
"""The style that this page shares with that of `semishot label`."""
MOST_DRAWN, MOST_LARGE = 1200, 500
"""Images that have a thumbnail, and those in OUT/pictures: the page shows the files of the others."""
OUR_NAME = re.compile(r"[0-9a-f]{32}\.jpg")


class TilePicture(NamedTuple):
    """The pictures of one image."""

    small: bytes | None = None
    """A JPEG. None for a row of features, and for a file that has changed meanwhile."""
    large: str = ""
    """The relative address of a large picture, if there is one."""
    link: str = ""
    """The relative address of the image itself."""


@dataclass(frozen=True)
class PageImages:
    """Makes the pictures of a page: large ones of unlabeled images, named by the original's content."""

    out: Path
    digests: Mapping[Item, bytes]
    cached: Callable[[bytes], bytes | None]
    """A thumbnail that was made when the image was encoded, by its digest."""
    targets: Mapping[Path, Path]
    """Where files are about to be moved to."""

    def pictures(self, items: Sequence[Item]) -> dict[Item, TilePicture]:
        """The pictures of all images that are shown; large ones of earlier pages are removed."""
        folder = self.out / PICTURES
        there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        names = dict.fromkeys(name for item in items if (name := self._name(item)))
        large = set(list(names)[:MOST_LARGE])
        pictures = {item: TilePicture(link=self._link(item)) for item in items}
        for item, small, picture in self._made(items[:MOST_DRAWN], large - there):
            name = self._name(item)
            if picture:
                folder.mkdir(mode=0o700, exist_ok=True)  # as private as the labels
                write_whole(folder / name, picture)
            has_large = picture or (name in large & there)
            address = f"{PICTURES}/{name}" if has_large else ""
            pictures[item] = TilePicture(small, address, self._link(item))
        for name in sorted(there - large):
            if OUR_NAME.fullmatch(name):
                (folder / name).unlink()
        return pictures

    def _made(
        self, items: Sequence[Item], missing: Collection[str]
    ) -> Iterator[tuple[Item, bytes | None, bytes | None]]:
        """Each image, its thumbnail, and a large picture if its name is in `missing`."""

        def make(job: tuple[Item, bytes | None]) -> tuple[Item, bytes | None, bytes | None]:
            item, small = job
            picture = _drawn(item, large_thumbnail) if self._name(item) in missing else None
            return item, small or _drawn(item, thumbnail), picture

        distinct = list(dict.fromkeys(items))
        digests = (self.digests.get(item) for item in distinct)
        known = (self.cached(digest) if digest else None for digest in digests)
        with meter("drawing the page", len(distinct), "images") as progress:
            for made in ahead(make, zip(distinct, known, strict=True), most_threads()):
                yield made
                progress.advance(1)

    def _name(self, item: Item) -> str:
        digest = self.digests.get(item)
        return f"{digest.hex()[:32]}.jpg" if digest and item.label is None else ""

    def _link(self, item: Item) -> str:
        if item.path is None or item.source is None:
            return ""
        original = self.targets.get(item.source, item.path)
        relative = os.path.relpath(original.absolute(), self.out.absolute())
        return quote(os.fsencode(relative.replace(os.sep, "/")))


def _drawn(item: Item, make: Callable[..., bytes]) -> bytes | None:
    """None for a row of features, and for a file that has changed or is gone."""
    if item.path is None:
        return None
    try:
        with opened(read_image(item.path), "it") as image:
            return make(image)
    except InputError:
        return None
