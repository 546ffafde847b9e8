"""A classified pile as one HTML page: thumbnails by class and certainty, and which to label next."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from semishot.data.decoding import quiet
from semishot.data.thumbnails import data_uri
from semishot.errors import counted, printable
from semishot.report.render import PAGE_STYLE, render
from semishot.sorter.listing import Item
from semishot.sorter.page_images import LOOK, PageImages, TilePicture
from semishot.sorter.predictions import Prediction
from semishot.sorter.summary import PileSummary
from semishot.system.files import write_whole

if TYPE_CHECKING:  # it imports scipy
    from semishot.sorter.learning import FittedPile

FOLDER = Path(__file__).parent
NARROW = "\u202f"
"""A narrow space at which no line is broken."""
MOST_TILES, MOST_GROUPS, MOST_EXAMPLES = 4000, 300, 6
MOST_PICTURE_BYTES = 5_000_000
"""Limits that keep the page below 10 MB, whatever the size of the pile."""
LONGEST = 160
"""The most characters of a name or path that are shown."""
LONGEST_SENTENCE = 2000
UNSURE, MAYBE = 0.5, 0.2


@dataclass(frozen=True)
class PilePage:
    """The content of the page."""

    predictions: Sequence[Prediction]
    labeled: Mapping[str, Sequence[Item]]
    """Every class in the order of the page, with its first labeled examples."""
    next_to_label: Sequence[int]
    """Indices into `predictions`."""
    pictures: Callable[[Sequence[Item]], Mapping[Item, TilePicture]]
    """Called once with all images that will be shown, in order."""
    about: Mapping[str, str]
    """The name and text of each fact about the pile, as in {"Encoder": "photos"}."""
    strangers: str = ""
    """How many strangers there likely are, how many of them are found, and how many missed."""
    out: str = "OUT"
    """The folder that `semishot label` continues from."""


class PageTile(NamedTuple):
    """An image on the page, with printable names."""

    name: str
    nearest: str
    runner_up: str
    tone: str
    caption: str
    source: str | None
    """A data URI."""
    maybe: bool
    """Whether it may well be a stranger, though it is not taken for one."""
    facts: dict[str, str]
    """What the dialog says, by the name of the field, and the addresses of the image."""


@dataclass(frozen=True)
class PageGroup:
    """A class, or the strangers."""

    name: str
    count: int
    """The number of all its images, shown or not."""
    labeled: Sequence[str]
    """Data URIs."""
    first: Sequence[PageTile]
    """The most certain ones, or all."""
    last: Sequence[PageTile]
    """The least certain ones, if not all are shown."""


def write_pile_page(
    path: Path,
    fitted: "FittedPile",
    next_to_label: Sequence[int],
    summary: PileSummary,
    targets: Mapping[Path, Path],
) -> None:
    """The page of a classified pile; the images it shows are read again.

    targets: where files are about to be moved to, for the links.
    """
    digests = dict(zip(fitted.rows.items, fitted.rows.digests, strict=True))
    images = PageImages(path.parent, digests, fitted.rows.thumbnail, targets)
    about = {"Encoder": summary.encoder, "Verdict": " ".join(summary.verdict())}
    if summary.notes:
        about["Notes"] = "; ".join(summary.notes)
    if summary.skipped:
        about["Skipped"] = f"{counted(summary.skipped, 'file')}; skipped.csv says why"
    examples: dict[str, list[Item]] = {name: [] for name in summary.accepted}
    for item in fitted.labeled_items:
        if len(own := examples.get(str(item.label), [])) < MOST_EXAMPLES:
            own.append(item)
    strangers = summary.about_strangers()
    content = (fitted.predictions, examples, next_to_label, images.pictures, about, strangers)
    with quiet():
        write_page(path, PilePage(*content, str(path.parent)))


def write_page(path: Path, page: PilePage) -> None:
    write_whole(path, as_html(page))


def as_html(page: PilePage) -> str:
    of_class, outside = _surest_first(page)
    most = max(3, MOST_TILES // (len(of_class) + 1))
    examples = max(1, min(MOST_EXAMPLES, MOST_TILES // (6 * (len(of_class) + 1))))
    asked = [page.predictions[index] for index in page.next_to_label]
    shown = {name: _ends(own, most) for name, own in list(of_class.items())[:MOST_GROUPS]}
    apart = _ends(outside, most)
    tiled = [*asked, *(p for ends in (apart, *shown.values()) for end in ends for p in end)]
    labeled = {name: page.labeled.get(name, ())[:examples] for name in shown}
    heads = [item for items in labeled.values() for item in items]
    pictures = page.pictures([*heads, *(prediction.item for prediction in tiled)])
    left = MOST_PICTURE_BYTES

    def uri(item: Item) -> str | None:
        """A thumbnail, until the page is full."""
        nonlocal left
        jpeg = pictures[item].small if item in pictures else None
        if jpeg is None or len(jpeg) * 4 // 3 > left:
            return None
        address = data_uri(jpeg)
        left -= len(address)
        return address

    def tiles(predictions: Sequence[Prediction]) -> list[PageTile]:
        return [_tile(p, pictures.get(p.item, TilePicture()), uri(p.item)) for p in predictions]

    next_tiles = tiles(asked)
    strangers = PageGroup("Strangers", len(outside), (), *map(tiles, apart))
    groups = [
        PageGroup(
            *(readable(name), len(of_class[name])),
            [head for item in labeled[name] if (head := uri(item))],
            *map(tiles, ends),
        )
        for name, ends in shown.items()
    ]
    return render(
        FOLDER / "sorted.html",
        [PAGE_STYLE, LOOK, FOLDER / "sorted.css"],
        FOLDER / "sorted.js",
        count=len(page.predictions),
        classes=len(of_class),
        groups=groups,
        strangers=strangers,
        about_strangers=page.strangers,
        out=readable(page.out),
        next=next_tiles,
        summary=[(readable(k), readable(v, LONGEST_SENTENCE)) for k, v in page.about.items()],
    )


def _surest_first(page: PilePage) -> tuple[dict[str, list[Prediction]], list[Prediction]]:
    """The predictions of each class, and the strangers."""
    of_class: dict[str, list[Prediction]] = {name: [] for name in page.labeled}
    outside: list[Prediction] = []
    for prediction in page.predictions:
        own = outside if prediction.stranger else of_class.setdefault(prediction.label, [])
        own.append(prediction)

    for own in of_class.values():
        own.sort(key=lambda p: -p.sure)
    outside.sort(key=lambda p: -p.stranger_probability)
    return of_class, outside


def _ends(group: list[Prediction], most: int) -> tuple[list[Prediction], list[Prediction]]:
    """All of them, or the first two thirds of `most` and the last third."""
    if len(group) <= most:
        return group, []
    last = most // 3
    return group[: most - last], group[len(group) - last :]


def _tile(prediction: Prediction, picture: TilePicture, source: str | None) -> PageTile:
    """The caption says how sure it is: of being a stranger if labeled as one, else of its class."""
    path, nearest = readable(prediction.item.shown), readable(prediction.nearest_class)
    facts = {
        "path": path,
        "label": readable(prediction.label),
        "nearest": nearest if prediction.stranger else "",
        "sure": percent(prediction.sure),
        "stranger": percent(prediction.stranger_probability),
        "conditional": percent(prediction.probability),
        "runner-up": readable(prediction.runner_up),
        "large": picture.large,
        "link": picture.link,
    }
    caption = f"stranger {facts['stranger']}" if prediction.stranger else facts["sure"]
    unsure = prediction.sure < UNSURE
    name, tone = PurePosixPath(path).name or path, "unsure" if unsure else ""
    likely = prediction.stranger_probability or 0
    maybe = not prediction.stranger and likely >= MAYBE
    return PageTile(name, nearest, facts["runner-up"], tone, caption, source, maybe, facts)


def percent(share: float) -> str:
    """A share in whole percent, and never 100 % or 0 %: nothing is certain."""
    if share > 0.995:
        return f">{NARROW}99{NARROW}%"
    return f"<{NARROW}1{NARROW}%" if share < 0.005 else f"{100 * share:.0f}{NARROW}%"


def readable(text: str, longest: int = LONGEST) -> str:
    """Printable characters as they are, others as escapes; the middle of a long text is left out."""
    shown = printable(text)
    if len(shown) <= longest:
        return shown
    return f"{shown[: longest // 2]} … {shown[-(longest // 2) :]}"
