"""The images of a pile's page, small and large: made by threads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from semishot.data.decoding import opened
from semishot.data.thumbnails import thumbnail
from semishot.errors import InputError
from semishot.sorter.embedding import ahead, most_threads, read_image
from semishot.sorter.large_pictures import LargePictures
from semishot.sorter.listing import Item
from semishot.system.progress import meter

LABELED_SHOWN = 6
"""The most labeled examples shown at the head of a class."""


@dataclass
class Shown:
    """What is there of the images that are shown."""

    pictures: LargePictures
    kept: Callable[[bytes], bytes | None]
    """A thumbnail that was made when the image was encoded, by its digest."""
    small: dict[Item, bytes | None] = field(default_factory=dict)
    """None for a row of features, and for a file that has changed meanwhile."""

    def examples(self, labeled: Sequence[Item], classes: Sequence[str]) -> dict[str, list[bytes]]:
        """The thumbnails of the first labeled images of each class."""
        first: dict[str, list[Item]] = {name: [] for name in classes}
        for item in labeled:
            first.get(str(item.label), []).append(item)
        chosen = {name: items[:LABELED_SHOWN] for name, items in first.items()}
        self.prepare([item for items in chosen.values() for item in items], large=False)
        found = {name: [self.small[item] for item in items] for name, items in chosen.items()}
        return {name: [one for one in small if one is not None] for name, small in found.items()}

    def prepare(self, items: Sequence[Item], large: bool) -> None:
        """Make the missing ones."""
        with meter("drawing the page", len(items), "images") as progress:
            work = (self.asked(item, large) for item in dict.fromkeys(items))
            for item, small, picture in ahead(self.made, work, most_threads()):
                self.small[item] = small
                if large:  # in order, also those that are there already: their number is limited
                    self.pictures.source(item, picture)
                progress.advance(1)

    def asked(self, item: Item, large: bool) -> tuple[Item, bytes | None, bool]:
        """An image, its thumbnail if there is one, and whether a large picture of it is wanted."""
        digest = self.pictures.digests.get(item)
        small = self.small.get(item) or (self.kept(digest) if digest else None)
        return item, small, large and self.pictures.wanted(item)

    def made(self, asked: tuple[Item, bytes | None, bool]) -> tuple[Item, bytes | None, bytes]:
        """In a thread: an image, its thumbnail, and a large picture if one is wanted."""
        item, small, wanted = asked
        picture = self.pictures.make(item) if wanted else b""
        return item, thumbnail_of(item) if small is None else small, picture


def thumbnail_of(item: Item) -> bytes | None:
    """None for a row of features, and for a file that has changed."""
    if item.path is None:
        return None
    try:
        with opened(read_image(item.path), "it") as image:
            return thumbnail(image)
    except InputError:
        return None
