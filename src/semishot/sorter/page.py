"""A classified pile as one HTML page: every image by class and certainty, and which to label next."""

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from semishot.data.decoding import opened, quiet
from semishot.data.thumbnails import data_uri, large_thumbnail, thumbnail
from semishot.errors import InputError, printable
from semishot.report.render import PAGE_STYLE, render
from semishot.sorter.embedding import ahead, most_threads, read_image
from semishot.sorter.listing import STRANGER, Item
from semishot.sorter.out_folder import PICTURES
from semishot.sorter.predictions import Prediction
from semishot.sorter.summary import PileSummary
from semishot.system.files import write_whole
from semishot.system.progress import track

if TYPE_CHECKING:  # it imports scipy
    from semishot.sorter.learning import FittedPile

FOLDER = Path(__file__).parent
MOST_IMAGES, MOST_DRAWN, MOST_EXAMPLES = 100_000, 1200, 6
"""Images on the page; those with a thumbnail in it, while of others it shows the files; labeled examples of a
class."""
IN_A_BROWSER = re.compile(r"(?i)\.(jpe?g|jpe|jfif|png|gif|bmp|webp)")
"""Of other files there are large pictures, named by the content."""
LARGE_PICTURE = re.compile(r"[0-9a-f]{32}\.jpg")


class PageGroup(NamedTuple):
    """A section of the page: what to label next, a class, or the strangers."""

    id: str
    name: str
    predictions: Sequence[Prediction]
    """The surest first."""
    left_out: int = 0
    """The number of still surer ones, of a very large pile."""
    labeled: Sequence[Item] = ()


def page_groups(
    fitted: "FittedPile", asked: Sequence[int], names: Iterable[str]
) -> list[PageGroup]:
    """The sections; asked: indices of the predictions to label next."""
    of_label: dict[str, list[Prediction]] = {name: [] for name in [*names, STRANGER]}
    labeled: dict[str, list[Item]] = {name: [] for name in of_label}
    for prediction in sorted(fitted.predictions, key=lambda prediction: -prediction.sure):
        of_label[prediction.label].append(prediction)
    for item in fitted.labeled_items:
        labeled[str(item.label)].append(item)
    groups = [PageGroup("next", "Label these next", [fitted.predictions[n] for n in asked])]
    share = min(1.0, MOST_IMAGES / max(1, len(fitted.predictions)))
    for number, (name, own) in enumerate(of_label.items(), 1):
        heading = ("strangers", "Strangers") if name == STRANGER else (f"group-{number}", name)
        left_out = len(own) - int(len(own) * share)
        groups.append(PageGroup(*heading, own[left_out:], left_out, labeled[name][:MOST_EXAMPLES]))
    return [group for group in groups if group.predictions or group.id.startswith("group")]


def write_page(
    path: Path,
    fitted: "FittedPile",
    asked: Sequence[int],
    summary: PileSummary,
    targets: Mapping[Path, Path],
) -> None:
    """The texts, and all images as JSON: the script shows them when they come into view.

    targets: where files are about to be moved to.
    """
    out, rows, classes = path.parent, fitted.rows, list(summary.accepted)
    groups = page_groups(fitted, asked, classes)
    by_rank = chain.from_iterable(zip_longest(*(group.predictions for group in groups)))
    tiled = (prediction.item for prediction in by_rank if prediction)
    drawn = set(islice(chain(*(group.labeled for group in groups), tiled), MOST_DRAWN))
    shown = [item for item in rows.items if item in drawn]
    pictures = defaultdict(lambda: ("", ""), _pictures(out, shown, rows.thumbnail))
    index = {name: number for number, name in enumerate(classes)}

    def tile(prediction: Prediction) -> list[Any]:
        """What `imageOf` of the script takes."""
        item = prediction.item
        small, large = pictures[item]
        return [
            *(printable(item.shown), _link(item, out, targets), small),
            _shown_by_browsers(item) or large,
            *(index.get(prediction.nearest_class, -1), index.get(prediction.runner_up, -1)),
            *(prediction.probability, prediction.stranger_probability, prediction.stranger),
        ]

    pile = {
        "classes": [printable(name) for name in classes],
        "groups": [[tile(prediction) for prediction in group.predictions] for group in groups],
    }
    html = render(
        FOLDER / "sorted.html",
        [PAGE_STYLE, FOLDER / "look.css", FOLDER / "sorted.css"],
        FOLDER / "sorted.js",
        pile=Markup(json.dumps(pile, separators=(",", ":")).replace("<", "\\u003c")),
        out=str(out),
        groups=groups,
        pictures=pictures,
        printable=printable,
        summary=summary,
    )
    write_whole(path, html)


def _shown_by_browsers(item: Item) -> bool:
    return item.path is not None and bool(IN_A_BROWSER.fullmatch(item.path.suffix))


def _link(item: Item, out: Path, targets: Mapping[Path, Path]) -> str:
    """The relative address of the image itself."""
    if item.path is None or item.source is None:
        return ""
    original = targets.get(item.source, item.path)
    relative = os.path.relpath(original.absolute(), out.absolute())
    return quote(os.fsencode(relative.replace(os.sep, "/")))


def _pictures(
    out: Path, items: Sequence[Item], cached: Callable[[bytes], bytes | None]
) -> dict[Item, tuple[str, str]]:
    """A thumbnail of each image as a data URI, and the address of a large picture. Earlier ones go."""
    folder = out / PICTURES

    def draw(job: tuple[Item, bytes | None]) -> tuple[str, str]:
        item, known = job
        small, large = known or _drawn(item, thumbnail), ""
        if item.path and item.label is None and not _shown_by_browsers(item):
            path = folder / f"{item.digest.hex()[:32]}.jpg"
            if not path.exists() and (picture := _drawn(item, large_thumbnail)):
                folder.mkdir(mode=0o700, exist_ok=True)  # as private as the labels
                write_whole(path, picture)
            large = f"{PICTURES}/{path.name}" if path.exists() else ""
        return data_uri(small) if small else "", large

    jobs = ((item, cached(item.digest)) for item in items)
    with quiet():
        drawn = track(ahead(draw, jobs, most_threads()), "drawing the page", len(items))
        pictures = dict(zip(items, drawn, strict=True))
    shown = {out / large for _, large in pictures.values()}
    for path in folder.iterdir() if folder.is_dir() else ():
        if LARGE_PICTURE.fullmatch(path.name) and path not in shown:
            path.unlink()
    return pictures


def _drawn(item: Item, make: Callable[..., bytes]) -> bytes | None:
    """None for a row of features, and for a file that has changed or is gone."""
    if item.path is None:
        return None
    try:
        with opened(read_image(item.path), "it") as image:
            return make(image)
    except InputError:
        return None
