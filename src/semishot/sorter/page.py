"""A sorted pile as one HTML page: thumbnails by class and certainty, and which to label next."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from semishot.data.thumbnails import data_uri
from semishot.errors import InputError, printable
from semishot.report.template import render
from semishot.system.files import write_whole

__all__ = ["LABELED_SHOWN", "SortedImage", "write_page"]

LABELED_SHOWN = 6
"""Labeled examples at the head of a class, at most."""
MOST_IN_GROUP, MOST_TILES, MOST_GROUPS = 60, 1200, 300
MOST_PICTURE_BYTES = 6_000_000
"""With these the page stays below 10 MB, whatever the pile."""
LONGEST = 160
"""Characters of a name or path; of a longer one the middle is left out."""
LONGEST_SENTENCE = 2000
UNSURE = 0.5


@dataclass(frozen=True)
class SortedImage:
    path: str
    """As shown: relative to the pile."""
    label: str
    """The nearest class, also of an irrelevant image."""
    probability: float
    runner_up: str
    distractor_score: float | None
    irrelevant: bool


@dataclass(frozen=True)
class Tile:
    image: SortedImage
    path: str
    label: str
    runner_up: str
    source: str | None
    """A data URI."""

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name or self.path

    @property
    def tone(self) -> str:
        return "unsure" if self.image.probability < UNSURE else ""


@dataclass(frozen=True)
class Group:
    name: str
    count: int
    """Of all its images, shown or not."""
    labeled: Sequence[str]
    """Data URIs."""
    first: Sequence[Tile]
    """The most certain ones, or all."""
    last: Sequence[Tile]
    """The least certain ones, if not all are shown."""


def write_page(
    path: Path,
    images: Sequence[SortedImage],
    labeled: Mapping[str, Sequence[bytes]],
    next_to_label: Sequence[int],
    thumbnail_of: Callable[[int], bytes | None],
    summary: Mapping[str, str],
) -> None:
    """Write the page.

    labeled: every class in the order of the page, with thumbnails of its first labeled examples.
    next_to_label: places in `images`.
    thumbnail_of: asked for the images that are shown, by their place in `images`; None draws none.
    summary: name and text of each fact about the whole, as in {"encoder": "photos"}.
    """
    text = page(images, labeled, next_to_label, thumbnail_of, summary)
    try:
        write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def page(
    images: Sequence[SortedImage],
    labeled: Mapping[str, Sequence[bytes]],
    next_to_label: Sequence[int],
    thumbnail_of: Callable[[int], bytes | None],
    summary: Mapping[str, str],
) -> str:
    places: dict[str, list[int]] = {name: [] for name in labeled}
    irrelevant: list[int] = []
    for place, image in enumerate(images):
        own = irrelevant if image.irrelevant else places.setdefault(image.label, [])
        own.append(place)
    pictures = Pictures()

    def tiles(chosen: Sequence[int]) -> list[Tile]:
        return [tile(images[place], pictures.uri(thumbnail_of(place))) for place in chosen]

    def group(name: str, own: list[int], examples: Sequence[bytes]) -> Group:
        first, last = ends(own, most)
        shown = [uri for data in examples if (uri := pictures.uri(data))]
        return Group(readable(name), len(own), shown, tiles(first), tiles(last))

    asked = tiles(next_to_label)
    most = max(2, min(MOST_IN_GROUP, MOST_TILES // (len(places) + 1)))
    heads = max(1, min(LABELED_SHOWN, MOST_TILES // (2 * (len(places) + 1))))
    irrelevant.sort(key=lambda place: -(images[place].distractor_score or 0))
    strangers = group("Suspected irrelevant", irrelevant, ())
    groups = []
    for name, own in list(places.items())[:MOST_GROUPS]:
        own.sort(key=lambda place: -images[place].probability)
        groups.append(group(name, own, labeled.get(name, ())[:heads]))
    return render(
        "sorted.html",
        ["page.css", "sorted.css"],
        "sorted.js",
        count=len(images),
        classes=len(places),
        groups=groups,
        strangers=strangers,
        next=asked,
        summary=[(readable(k), readable(v, LONGEST_SENTENCE)) for k, v in summary.items()],
    )


class Pictures:
    """Thumbnails as data URIs, until the page is full."""

    def __init__(self) -> None:
        self.left = MOST_PICTURE_BYTES

    def uri(self, jpeg: bytes | None) -> str | None:
        if jpeg is None or len(jpeg) * 4 // 3 > self.left:
            return None
        uri = data_uri(jpeg)
        self.left -= len(uri)
        return uri


def tile(image: SortedImage, source: str | None) -> Tile:
    return Tile(
        image, readable(image.path), readable(image.label), readable(image.runner_up), source
    )


def ends(places: list[int], most: int) -> tuple[list[int], list[int]]:
    """All of them, or the first two thirds of `most` and the last third."""
    if len(places) <= most:
        return places, []
    last = most // 3
    return places[: most - last], places[len(places) - last :]


def readable(text: str, longest: int = LONGEST) -> str:
    """What can be printed as it is, the rest by its number; not longer than a page can bear."""
    shown = printable(text)
    if len(shown) <= longest:
        return shown
    return f"{shown[: longest // 2]} … {shown[-(longest // 2) :]}"
