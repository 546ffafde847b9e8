"""A classified pile as one HTML page: every image by class and certainty, and which to label next."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from semishot.data.decoding import quiet
from semishot.data.thumbnails import data_uri
from semishot.errors import counted, printable
from semishot.report.render import PAGE_STYLE, render
from semishot.sorter.listing import Item
from semishot.sorter.page_images import LOOK, PageImages
from semishot.sorter.predictions import Prediction
from semishot.sorter.summary import PileSummary
from semishot.system.files import write_whole

if TYPE_CHECKING:  # it imports scipy
    from semishot.sorter.learning import FittedPile

FOLDER = Path(__file__).parent
MOST_IMAGES, MOST_DRAWN, MOST_EXAMPLES = 100_000, 1200, 6
"""Images on the page; those with a thumbnail in it, while of others it shows the files; labeled examples of a
class."""
MOST_PICTURE_BYTES = 5_000_000
LONGEST, LONGEST_SENTENCE = 160, 2000
"""The most characters of a name or path that are shown, and of a fact."""


@dataclass(frozen=True)
class PilePage:
    """The content of the page."""

    predictions: Sequence[Prediction]
    labeled: Mapping[str, Sequence[Item]]
    """Every class in the order of the page, with its first labeled examples."""
    next_to_label: Sequence[int]
    """Indices into `predictions`."""
    images: PageImages
    about: Mapping[str, str]
    """The name and text of each fact about the pile, as in {"Encoder": "photos"}."""
    strangers: str = ""
    """How many strangers there likely are, how many of them are found, and how many missed."""
    out: str = "OUT"
    """The folder that `semishot label` continues from."""


@dataclass(frozen=True)
class PageGroup:
    """A class, or the strangers."""

    id: str
    name: str
    count: int
    """The number of all its images, shown or not."""
    left_out: int
    """The surest ones, of a very large pile."""
    labeled: Sequence[str]
    """Data URIs."""


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
    labeled: dict[str, list[Item]] = {name: [] for name in summary.accepted}
    for item in fitted.labeled_items:
        if item.label in labeled:
            labeled[item.label].append(item)
    strangers = summary.about_strangers()
    content = (fitted.predictions, labeled, next_to_label, images, about, strangers)
    with quiet():
        write_page(path, PilePage(*content, str(path.parent)))


def write_page(path: Path, page: PilePage) -> None:
    write_whole(path, as_html(page))


def as_html(page: PilePage) -> str:
    """The texts, and all images as JSON: the script shows them when they come into view."""
    of_class, strangers = _surest_first(page)
    sections = [
        (f"group-{n}", readable(name), of_class[name]) for n, name in enumerate(of_class, 1)
    ]
    sections += [("strangers", "Strangers", strangers)] if strangers else []
    asked = [page.predictions[index] for index in page.next_to_label]
    heads = [page.labeled.get(name, ())[:MOST_EXAMPLES] for name in of_class]
    by_rank = chain.from_iterable(zip_longest(*(own for _, _, own in sections)))  # the surest first
    tiled = (p.item for p in chain(asked, filter(None, by_rank)))
    drawn = list(islice(chain(*heads, tiled), MOST_DRAWN))
    small, left = dict[Item, str](), MOST_PICTURE_BYTES
    pictures = page.images.pictures(drawn)
    for item, picture in pictures.items():
        left -= len(uri := data_uri(picture.small) if picture.small else "")
        small[item] = uri if left >= 0 else ""
    index = {name: number for number, name in enumerate(of_class)}
    share = min(1.0, MOST_IMAGES / max(1, len(page.predictions)))
    shown = [own[len(own) - int(len(own) * share) :] for _, _, own in sections]

    def tiles(predictions: Sequence[Prediction]) -> list[list[Any]]:
        """What `tileOf` of the script takes."""
        return [
            [
                *(readable(p.item.shown), page.images.link(p.item), small.get(p.item, "")),
                pictures[p.item].large if p.item in pictures else "",
                *(index.get(p.nearest_class, -1), index.get(p.runner_up, -1)),
                *(p.probability, p.stranger_probability, int(p.stranger)),
            ]
            for p in predictions
        ]

    pile = {
        "classes": [readable(name) for name in of_class],
        "groups": [*map(tiles, shown)],
        "next": tiles(asked),
    }
    return render(
        FOLDER / "sorted.html",
        [PAGE_STYLE, LOOK, FOLDER / "sorted.css"],
        FOLDER / "sorted.js",
        pile=Markup(json.dumps(pile, separators=(",", ":")).replace("<", "\\u003c")),
        count=len(page.predictions),
        classes=len(of_class),
        groups=[
            PageGroup(
                id, name, len(own), len(own) - len(some), [*filter(None, map(small.get, items))]
            )
            for (id, name, own), some, items in zip(sections, shown, [*heads, ()], strict=False)
        ],
        about_strangers=page.strangers,
        out=readable(page.out),
        next=len(asked),
        summary=[(readable(k), readable(v, LONGEST_SENTENCE)) for k, v in page.about.items()],
    )


def _surest_first(page: PilePage) -> tuple[dict[str, list[Prediction]], list[Prediction]]:
    """The predictions of each class, and the strangers."""
    of_class: dict[str, list[Prediction]] = {name: [] for name in page.labeled}
    for prediction in page.predictions:
        if not prediction.stranger:
            of_class.setdefault(prediction.label, []).append(prediction)
    for own in of_class.values():
        own.sort(key=lambda p: -p.sure)
    strangers = [prediction for prediction in page.predictions if prediction.stranger]
    return of_class, sorted(strangers, key=lambda p: -p.stranger_probability)


def readable(text: str, longest: int = LONGEST) -> str:
    """Printable characters as they are, others as escapes; the middle of a long text is left out."""
    shown = printable(text)
    if len(shown) <= longest:
        return shown
    return f"{shown[: longest // 2]} … {shown[-(longest // 2) :]}"
