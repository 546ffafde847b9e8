"""A classified pile as one HTML page: thumbnails by class and certainty, and which to label next."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from semishot.data.decoding import quiet
from semishot.data.thumbnails import data_uri
from semishot.errors import InputError, counted, printable
from semishot.report.render import PAGE_STYLE, render
from semishot.sorter.listing import Item
from semishot.sorter.page_images import LABELED_SHOWN, PageImages, link_to
from semishot.sorter.predictions import Prediction
from semishot.sorter.summary import PileSummary
from semishot.system.files import write_whole

if TYPE_CHECKING:  # it imports torch
    from semishot.sorter.learning import FittedPile

FOLDER = Path(__file__).parent
NARROW = "\u202f"
"""A narrow space at which no line is broken."""
MOST_IN_GROUP, MOST_TILES, MOST_GROUPS = 60, 1200, 300
MOST_PICTURE_BYTES = 6_000_000
"""Limits that keep the page below 10 MB, whatever the size of the pile."""
LONGEST = 160
"""The most characters of a name or path that are shown."""
LONGEST_SENTENCE = 2000
UNSURE = 0.5


@dataclass(frozen=True)
class PilePage:
    """The content of the page."""

    predictions: Sequence[Prediction]
    labeled: Mapping[str, Sequence[bytes]]
    """Every class in the order of the page, with thumbnails of its first labeled examples."""
    next_to_label: Sequence[int]
    """Indices into `predictions`."""
    thumbnail_of: Callable[[Item], bytes | None]
    """Called for the images that are shown; returns None if it cannot be shown."""
    about: Mapping[str, str]
    """The name and text of each fact about the pile, as in {"Encoder": "photos"}."""
    large_of: Callable[[Item], str] = lambda item: ""
    """The address of a large picture, for the images that are shown; nothing if there is none."""
    link_of: Callable[[Item], str] = lambda item: ""
    """The address of the image itself."""
    strangers: str = ""
    """How many strangers there likely are, how many of them are found, and how many missed."""
    prepare: Callable[[Sequence[Item]], None] = lambda items: None
    """Called once with all images that will be shown, in order."""


@dataclass(frozen=True)
class Tile:
    """A prediction, with printable names."""

    prediction: Prediction
    source: str | None
    """A data URI."""
    large: str
    """The address of a large picture, or nothing."""
    link: str
    """The address of the file, or nothing."""

    @property
    def path(self) -> str:
        return readable(self.prediction.item.shown)

    @property
    def label(self) -> str:
        return readable(self.prediction.label)

    @property
    def runner_up(self) -> str:
        return readable(self.prediction.runner_up)

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name or self.path

    @property
    def tone(self) -> str:
        sure = self.prediction.sure
        return "unsure" if sure is not None and sure < UNSURE else ""

    @property
    def caption(self) -> str:
        """How sure it is: of being a stranger if it is taken for one, else of belonging to its class."""
        prediction = self.prediction
        if prediction.stranger_probability is None or prediction.sure is None:
            return "stranger?" if prediction.stranger else "not known"
        if prediction.stranger:
            return f"stranger {percent(prediction.stranger_probability)}"
        return percent(prediction.sure)

    @property
    def facts(self) -> dict[str, str]:
        """What the dialog says, by the name of the field."""
        prediction, unknown = self.prediction, "not known"
        stranger = prediction.stranger_probability
        return {
            "path": self.path,
            "label": self.label,
            "sure": unknown if prediction.sure is None else percent(prediction.sure),
            "stranger": unknown if stranger is None else percent(stranger),
            "conditional": percent(prediction.probability),
            "runner-up": self.runner_up,
            "score": unknown
            if prediction.distractor_score is None
            else f"{prediction.distractor_score:.3f}",
            "verdict": "taken for a stranger" if prediction.stranger else "one of the classes",
        }


@dataclass(frozen=True)
class Group:
    name: str
    count: int
    """The number of all its images, shown or not."""
    labeled: Sequence[str]
    """Data URIs."""
    first: Sequence[Tile]
    """The most certain ones, or all."""
    last: Sequence[Tile]
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
    shown = PageImages(path.parent, digests, fitted.rows.thumbnail)

    def link_of(item: Item) -> str:
        if item.path is None or item.source is None:
            return ""
        return link_to(targets.get(item.source, item.path), path.parent)

    with quiet():
        examples = shown.examples(fitted.labeled_items, list(summary.accepted))
        about = {"Encoder": summary.encoder, "Verdict": " ".join(summary.verdict())}
        if summary.notes:
            about["Notes"] = "; ".join(summary.notes)
        if summary.skipped:
            about["Skipped"] = f"{counted(summary.skipped, 'file')}; skipped.csv says why"
        page = PilePage(
            fitted.predictions,
            examples,
            next_to_label,
            shown.small.get,
            about,
            shown.large,
            link_of,
            summary.about_strangers(),
            partial(shown.prepare, large=True),
        )
        write_page(path, page)
    shown.remove_others()


def write_page(path: Path, page: PilePage) -> None:
    text = as_html(page)
    try:
        write_whole(path, text)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error


def surest_first(page: PilePage) -> tuple[dict[str, list[Prediction]], list[Prediction]]:
    """The predictions of each class, and those taken for strangers."""
    of_class: dict[str, list[Prediction]] = {name: [] for name in page.labeled}
    outside: list[Prediction] = []
    for prediction in page.predictions:
        own = outside if prediction.stranger else of_class.setdefault(prediction.label, [])
        own.append(prediction)

    def doubt(prediction: Prediction) -> tuple[float, float]:
        return -(
            prediction.probability if prediction.sure is None else prediction.sure
        ), prediction.distractor_score or 0

    for own in of_class.values():
        own.sort(key=doubt)
    outside.sort(
        key=lambda prediction: (
            -(prediction.stranger_probability or 0),
            -(prediction.distractor_score or 0),
        )
    )
    return of_class, outside


def as_html(page: PilePage) -> str:
    of_class, outside = surest_first(page)
    pictures = Pictures()

    def tiles(chosen: Iterable[Prediction]) -> list[Tile]:
        return [
            Tile(
                prediction,
                pictures.uri(page.thumbnail_of(prediction.item)),
                page.large_of(prediction.item),
                page.link_of(prediction.item),
            )
            for prediction in chosen
        ]

    def group(name: str, own: list[Prediction], examples: Sequence[bytes]) -> Group:
        first, last = ends(own, most)
        heads = [uri for data in examples if (uri := pictures.uri(data))]
        return Group(readable(name), len(own), heads, tiles(first), tiles(last))

    most = max(2, min(MOST_IN_GROUP, MOST_TILES // (len(of_class) + 1)))
    examples = max(1, min(LABELED_SHOWN, MOST_TILES // (2 * (len(of_class) + 1))))
    classes = list(of_class.items())[:MOST_GROUPS]
    next_to_label = [page.predictions[index] for index in page.next_to_label]
    shown = [ends(own, most) for own in (outside, *(own for _, own in classes))]
    in_groups = [prediction for first, last in shown for prediction in (*first, *last)]
    page.prepare([prediction.item for prediction in (*next_to_label, *in_groups)])
    asked, strangers = tiles(next_to_label), group("Strangers", outside, ())
    groups = [group(name, own, page.labeled.get(name, ())[:examples]) for name, own in classes]
    return render(
        FOLDER / "sorted.html",
        [PAGE_STYLE, FOLDER / "sorted.css"],
        FOLDER / "sorted.js",
        count=len(page.predictions),
        classes=len(of_class),
        groups=groups,
        strangers=strangers,
        about_strangers=page.strangers,
        next=asked,
        summary=[(readable(k), readable(v, LONGEST_SENTENCE)) for k, v in page.about.items()],
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


def ends(group: list[Prediction], most: int) -> tuple[list[Prediction], list[Prediction]]:
    """All of them, or the first two thirds of `most` and the last third."""
    if len(group) <= most:
        return group, []
    last = most // 3
    return group[: most - last], group[len(group) - last :]


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
