"""The images of a pile's page: thumbnails in it; beside it, large pictures of files that no browser shows."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
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
from semishot.system.progress import track

LOOK = Path(__file__).with_name("look.css")
"""The style that this page shares with that of `semishot label`."""
IN_A_BROWSER = re.compile(r"(?i)\.(jpe?g|jpe|jfif|png|gif|bmp|webp)")
OUR_NAME = re.compile(r"[0-9a-f]{32}\.jpg")


class TilePicture(NamedTuple):
    """The pictures of one image."""

    small: bytes | None = None
    """A JPEG. None for a row of features, and for a file that has changed meanwhile."""
    large: str = ""
    """The relative address of a large picture, where a browser does not show the file itself."""


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
        """The pictures of these images, made by threads; large ones of earlier pages are removed."""
        folder, distinct = self.out / PICTURES, list(dict.fromkeys(items))
        digests = (self.digests.get(item) for item in distinct)
        known = (self.cached(digest) if digest else None for digest in digests)
        made = ahead(self._made, zip(distinct, known, strict=True), most_threads())
        pictures = dict(zip(distinct, track(made, "drawing the page", len(distinct)), strict=True))
        shown = {self.out / picture.large for picture in pictures.values()}
        for path in folder.iterdir() if folder.is_dir() else ():
            if OUR_NAME.fullmatch(path.name) and path not in shown:
                path.unlink()
        return pictures

    def _made(self, job: tuple[Item, bytes | None]) -> TilePicture:
        item, small = job
        digest, large = self.digests.get(item), ""
        if (
            digest
            and item.label is None
            and item.path
            and not IN_A_BROWSER.fullmatch(item.path.suffix)
        ):
            path = self.out / PICTURES / f"{digest.hex()[:32]}.jpg"
            if not path.exists() and (picture := _drawn(item, large_thumbnail)):
                path.parent.mkdir(mode=0o700, exist_ok=True)  # as private as the labels
                write_whole(path, picture)
            large = f"{PICTURES}/{path.name}" if path.exists() else ""
        return TilePicture(small or _drawn(item, thumbnail), large)

    def link(self, item: Item) -> str:
        """The relative address of the image itself."""
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
