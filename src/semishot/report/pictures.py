"""Pictures: the task (Figure 1), what a model sees (Figure 2), where prototypes move (Figure 3), and the
categories of tieredImageNet (Figure 5).

Letters: N classes, H distractor classes, K support, M unlabeled, Q query images per class, D dimensions.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from semishot.data.thumbnails import data_uri, pool_thumbnail
from semishot.datasets import tiered_imagenet
from semishot.report.render import FOLDER, render, write_svg
from semishot.system.files import own_text

if TYPE_CHECKING:  # it imports torch
    from semishot.paper.viewed_episode import ViewedEpisode

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]
PICTURE_STYLE = FOLDER / "picture.css"
ACROSS, DOWN, TOP = 66, 82, 68
"""From one image to the next, and to the first: an image is 58 wide, its caption is below it."""
PLOT_WIDTH, PLOT_HEIGHT, KEY = 640, 470, 676
"""Of the plane of embeddings, and where the key begins."""
FAINTEST = 0.12
"""Opacity of an image that the refinement does not use at all."""


@dataclass(frozen=True)
class Thumbnail:
    x: float
    y: float
    image: Bytes
    about: str
    tone: str = ""
    """A class of the style: above, below, class-1, ..."""
    caption: str = ""

    @property
    def source(self) -> str:
        return data_uri(pool_thumbnail(self.image))


@dataclass(frozen=True)
class Point:
    at: Floats
    kind: str
    """support, unlabeled, distractor, query or prototype."""
    tone: str
    opacity: float = 1.0
    label: str = ""


@dataclass(frozen=True)
class Picture:
    title: str
    width: float
    height: float
    texts: Sequence[tuple[float, float, str, str]]
    """Position, class of the style, and text."""
    tiles: Sequence[Thumbnail]
    points: Sequence[Point] = ()
    arrows: Sequence[tuple[float, float, float, float]] = ()


def write_picture(picture: Picture, out: Path) -> None:
    write_svg(render(FOLDER / "picture.svg", [PICTURE_STYLE], picture=picture), out)


def title_of(view: "ViewedEpisode") -> str:
    truth = np.arange(len(view.support))[:, None]
    before, after = (int((predicted == truth).sum()) for predicted in (view.before, view.after))
    total = view.after.size
    return f"{view.title}: {before} of {total} queries right before refinement, {after} after"


def episode_picture(view: "ViewedEpisode") -> Picture:
    """Support, the unlabeled pile as the model sees it, and each query with its prediction."""
    way, columns = len(view.support), columns_of(view)
    first_pile = 80 + view.support.shape[1] * ACROSS
    first_query = first_pile + max(columns, 5) * ACROSS + 40  # room for the headings
    tiles = support_tiles(view)
    for row, column, x, y in pile(view, columns):
        share = f"{round(100 * min(max(float(view.weights[row, column]), 0.0), 1.0))} %"
        kind = "distractor" if row >= way else f"of class {row + 1}"
        mark, tone = (f"− {share}", "below") if row >= way else (f"+ {share}", "above")
        image, about = view.unlabeled[row, column], f"{kind}, {share} used"
        tiles.append(Thumbnail(first_pile + x, y, image, about, tone, mark))
    for row, column in np.ndindex(view.after.shape):
        before, after = view.before[row, column] + 1, view.after[row, column] + 1
        sign, tone = ("✓", "above") if after == row + 1 else ("✗", "below")
        about = f"query of class {row + 1}, predicted {after}, before refinement {before}"
        mark = f"{after} {sign}" if before == after else f"{before}→{after} {sign}"
        at = first_query + column * ACROSS, TOP + row * DOWN
        tiles.append(Thumbnail(*at, view.query[row, column], about, tone, mark))
    texts = headings(
        way,
        (40, "Support", "labeled"),
        (first_pile, "Unlabeled", "+ of a class, − distractor (the model is not told), % used"),
        (first_query, "Query", "predicted class, before→after"),
    )
    width = first_query + max(view.query.shape[1], 4) * ACROSS
    return Picture(title_of(view), width, TOP + way * DOWN, texts, tiles)


def task_picture(view: "ViewedEpisode") -> Picture:
    """A few labeled images of each class, and a pile in which the classes' images are marked."""
    way, columns = len(view.support), max(3, columns_of(view))
    first_pile, tiles = 80 + view.support.shape[1] * ACROSS, support_tiles(view)
    for row, column, x, y in pile(view, columns):
        about, tone = (f"of class {row + 1}", "member") if row < way else ("a distractor", "")
        tiles.append(Thumbnail(first_pile + x, y, view.unlabeled[row, column], about, tone))
    of_pile = first_pile, "Unlabeled", "dashed: of a class (nobody is told)"
    texts, title = headings(way, (40, "Labeled", ""), of_pile), view.title.partition(",")[0]
    return Picture(title, first_pile + columns * ACROSS, TOP + way * DOWN, texts, tiles)


def support_tiles(view: "ViewedEpisode") -> list[Thumbnail]:
    """A row of labeled images for each class."""
    return [
        Thumbnail(40 + k * ACROSS, TOP + n * DOWN, view.support[n, k], f"labeled, class {n + 1}")
        for n, k in np.ndindex(view.support.shape[:2])
    ]


def columns_of(view: "ViewedEpisode") -> int:
    """Of the pile, beside a row for each class."""
    return max(1, -(-math.prod(view.unlabeled.shape[:2]) // len(view.support)))


def pile(view: "ViewedEpisode", columns: int) -> Iterator[tuple[int, int, float, float]]:
    """Class and number of each unlabeled image, and its position, in an order that tells nothing."""
    rows, per_class = view.unlabeled.shape[:2]
    for index, image in enumerate(np.random.default_rng(0).permutation(rows * per_class)):
        y, x = divmod(index, columns)
        yield *divmod(int(image), per_class), x * ACROSS, TOP + y * DOWN


def headings(way: int, *columns: tuple[float, str, str]) -> list[tuple[float, float, str, str]]:
    """The number of each class, and position, heading and note of each column."""
    texts = [(20.0, TOP + 34.0 + row * DOWN, "class", str(row + 1)) for row in range(way)]
    for x, heading, note in columns:
        texts += [(x, 40, "heading", heading), (x, 58, "note", note)]
    return texts


def hierarchy_picture() -> Picture:
    """tieredImageNet's categories as a tree, each with its number of classes and its split."""
    of = Counter((c.group, c.split) for c in tiered_imagenet.class_list())
    texts = [(20.0, 44.0, "note", "category, its number of classes, its split")]
    lines, parents = [], list[tuple[float, float]]()
    for row, line in enumerate(own_text(tiered_imagenet.HIERARCHY).splitlines()):
        name, depth = line.strip(), (len(line) - len(line.lstrip())) // 2
        x, y = 20.0 + 28 * depth, 70.0 + 21 * row
        parents[depth:] = [(x, y)]
        if depth:
            corner = parents[depth - 1][0] + 6
            lines.append((corner, parents[depth - 1][1] + 5, corner, y - 4))
            lines.append((corner, y - 4, x - 3, y - 4))
        found = [(split, n) for (group, split), n in of.items() if name.startswith(group)]
        kind = f"{found[0][0]} note" if found else "note"
        label = f"{name.partition(' ')[2]}, {found[0][1]}, {found[0][0]}" if found else name
        texts.append((x, y, kind, label))
    title = f"tieredImageNet: {sum(of.values())} classes in {len(of)} categories"
    return Picture(title, 420, 80 + 21 * row, texts, [], arrows=lines)


def refinement_picture(view: "ViewedEpisode") -> Picture:
    """Embeddings in two dimensions, prototypes before and after, and a key with an image of each class."""
    way, distractors = len(view.support), view.unlabeled[len(view.support) :, :1]
    support, unlabeled, query, before, after = plane([*view.points, *view.prototypes])
    tones = [f"class-{row % 5 + 1}" for row in range(way)] + len(distractors) * ["distractors"]
    points = []
    for row, per_class in enumerate(unlabeled):
        kind = "distractor" if row >= way else "unlabeled"
        for point, weight in zip(per_class, view.weights[row], strict=True):
            opacity = FAINTEST + (1 - FAINTEST) * float(np.clip(weight, 0, 1))
            points.append(Point(point, kind, tones[row], round(opacity, 2)))
    for kind, by_class in (("query", query), ("support", support)):
        points += [Point(at, kind, tones[row]) for row in range(way) for at in by_class[row]]
    points += [Point(after[n], "prototype", tones[n], label=str(n + 1)) for n in range(way)]
    tiles = [
        Thumbnail(KEY + n * ACROSS, 60, view.support[n, 0], "support", tones[n], str(n + 1))
        for n in range(way)
    ]
    tiles += [
        Thumbnail(KEY + i * ACROSS, 170, images[0], "a distractor", "distractors")
        for i, images in enumerate(distractors)
    ]
    texts = [
        (KEY, 50, "note", "support"),
        (20, PLOT_HEIGHT + 50, "note", "along the first two principal components"),
    ]
    texts += [(KEY, 160, "note", "distractors, one of each class")] if len(distractors) else []
    for line, (kind, opacity, text) in enumerate(KEYS):
        points.append(Point(np.array([KEY + 12.0, 262.0 + 26 * line]), kind, "class-1", opacity))
        texts.append((KEY + 32, 267 + 26 * line, "note", text))
    width = KEY + max(4, way, len(distractors)) * ACROSS
    arrows = [(*before[row], *after[row]) for row in range(way)]
    return Picture(title_of(view), width, PLOT_HEIGHT + 60, texts, tiles, points, arrows)


KEYS = (
    ("support", 1, "support, prototype: its mean"),
    ("prototype", 1, "prototype after refinement"),
    ("unlabeled", 1, "unlabeled, of a class"),
    ("distractor", 1, "unlabeled, distractor"),
    ("unlabeled", 2 * FAINTEST, "faint: masked out"),
    ("query", 1, "query"),
)


def plane(parts: Sequence[Floats]) -> list[Floats]:
    """(..., D) each -> (..., 2): positions along the two directions of greatest variance, at one scale."""
    everything = np.concatenate([part.reshape(-1, part.shape[-1]) for part in parts])
    center = everything.mean(0)
    directions = np.linalg.svd(everything - center, full_matrices=False)[2][:2]  # (2, D)
    flat = [(part - center) @ directions.T * [1, -1] for part in parts]
    every = np.concatenate([part.reshape(-1, 2) for part in flat])
    low, high = every.min(0), every.max(0)
    size = np.array([PLOT_WIDTH, PLOT_HEIGHT])
    scale = ((size - 60) / np.maximum(high - low, 1e-9)).min()
    offset = [20, 30] + size / 2 - scale * (low + high) / 2
    return [np.round(part * scale + offset, 1) for part in flat]
