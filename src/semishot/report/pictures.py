"""Pictures of a test episode: what a model sees (Figure 2), where prototypes move (Figure 3).

Letters: N classes, H distractor classes, K support, M unlabeled, Q query images per class, D dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from semishot.data.thumbnails import data_uri, pool_thumbnail
from semishot.report.render import FOLDER, render, write_svg

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
    source: str
    """A data URI."""
    about: str
    tone: str = ""
    """A class of the style: above, below, class-1, ..."""
    caption: str = ""


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


def outcome(view: "ViewedEpisode") -> str:
    truth = np.arange(len(view.support))[:, None]
    before, after = (int((predicted == truth).sum()) for predicted in (view.before, view.after))
    return f"{before} of {view.after.size} queries right before refinement, {after} after"


def episode_picture(view: "ViewedEpisode") -> Picture:
    """Support, the unlabeled pile as the model sees it, and each query with its prediction."""
    way, shot = view.support.shape[:2]
    rows, per_class = view.unlabeled.shape[:2]
    pile = np.random.default_rng(0).permutation(rows * per_class)
    columns = max(1, -(-len(pile) // way))
    first_pile = 40 + shot * ACROSS + 40
    first_query = first_pile + max(columns, 5) * ACROSS + 40  # room for the headings
    tiles = [
        Thumbnail(
            40 + k * ACROSS, TOP + n * DOWN, source(view.support[n, k]), f"labeled, class {n + 1}"
        )
        for n, k in np.ndindex(way, shot)
    ]
    for index, image in enumerate(pile):
        row, column = divmod(int(image), per_class)
        y, x = divmod(index, columns)
        share = f"{round(100 * min(max(float(view.weights[row, column]), 0.0), 1.0))} %"
        kind = "distractor" if row >= way else f"of class {row + 1}"
        mark, tone = (f"− {share}", "below") if row >= way else (f"+ {share}", "above")
        at = first_pile + x * ACROSS, TOP + y * DOWN
        drawn = source(view.unlabeled[row, column])
        tiles.append(Thumbnail(*at, drawn, f"{kind}, {share} used", tone, mark))
    for row, column in np.ndindex(view.after.shape):
        before, after = view.before[row, column] + 1, view.after[row, column] + 1
        sign, tone = ("✓", "above") if after == row + 1 else ("✗", "below")
        about = f"query of class {row + 1}, predicted {after}, before refinement {before}"
        mark = f"{after} {sign}" if before == after else f"{before}→{after} {sign}"
        at = first_query + column * ACROSS, TOP + row * DOWN
        tiles.append(Thumbnail(*at, source(view.query[row, column]), about, tone, mark))
    texts = [(20.0, TOP + 34.0 + row * DOWN, "class", str(row + 1)) for row in range(way)]
    for x, heading, note in (
        (40, "Support", "labeled"),
        (first_pile, "Unlabeled", "+ of a class, − distractor (the model is not told), % used"),
        (first_query, "Query", "predicted class, before→after"),
    ):
        texts += [(x, 40, "heading", heading), (x, 58, "note", note)]
    width = first_query + max(view.query.shape[1], 4) * ACROSS
    return Picture(f"{view.title}: {outcome(view)}", width, TOP + way * DOWN, texts, tiles)


def source(image: Bytes) -> str:
    return data_uri(pool_thumbnail(image))


def refinement_picture(view: "ViewedEpisode") -> Picture:
    """Embeddings in two dimensions, prototypes before and after, and a key with an image of each class."""
    way = len(view.support)
    flat = plane([*view.points, *view.prototypes])
    support, unlabeled, query, before, after = flat
    points = []
    for row, per_class in enumerate(unlabeled):
        kind = "distractor" if row >= way else "unlabeled"
        for point, weight in zip(per_class, view.weights[row], strict=True):
            opacity = FAINTEST + (1 - FAINTEST) * float(np.clip(weight, 0, 1))
            points.append(Point(point, kind, tone(row, way), round(opacity, 2)))
    for kind, by_class in (("query", query), ("support", support)):
        points += [
            Point(point, kind, tone(row, way)) for row in range(way) for point in by_class[row]
        ]
    points += [
        Point(after[row], "prototype", tone(row, way), label=str(row + 1)) for row in range(way)
    ]
    tiles = [
        Thumbnail(
            KEY + row * ACROSS,
            60,
            source(view.support[row, 0]),
            "support",
            tone(row, way),
            str(row + 1),
        )
        for row in range(way)
    ]
    distractors = view.unlabeled[way:, :1]
    tiles += [
        Thumbnail(KEY + i * ACROSS, 170, source(images[0]), "a distractor", tone(way, way))
        for i, images in enumerate(distractors)
    ]
    texts = [
        (KEY, 50, "note", "support"),
        (20, PLOT_HEIGHT + 50, "note", "along the first two principal components"),
    ]
    texts += [(KEY, 160, "note", "distractors, one of each class")] if len(distractors) else []
    for line, (kind, opacity, text) in enumerate(KEYS):
        at = np.array([KEY + 12.0, 262.0 + 26 * line])
        points.append(Point(at, kind, "class-1", opacity))
        texts.append((KEY + 32, 267 + 26 * line, "note", text))
    width = KEY + max(4, way, len(distractors)) * ACROSS
    arrows = [(*before[row], *after[row]) for row in range(way)]
    title = f"{view.title}: {outcome(view)}"
    return Picture(title, width, PLOT_HEIGHT + 60, texts, tiles, points, arrows)


KEYS = (
    ("support", 1, "support, prototype: its mean"),
    ("prototype", 1, "prototype after refinement"),
    ("unlabeled", 1, "unlabeled, of a class"),
    ("distractor", 1, "unlabeled, distractor"),
    ("unlabeled", 2 * FAINTEST, "faint: masked out"),
    ("query", 1, "query"),
)


def tone(row: int, way: int) -> str:
    return f"class-{row % 5 + 1}" if row < way else "distractors"


def plane(parts: Sequence[Floats]) -> list[NDArray[np.float64]]:
    """(..., D) each -> (..., 2): positions along the two directions of greatest variance, at one scale."""
    everything = np.concatenate([part.reshape(-1, part.shape[-1]) for part in parts])
    center = everything.mean(0)
    directions = np.linalg.svd(everything - center, full_matrices=False)[2][:2]  # (2, D)
    flat = (everything - center) @ directions.T * [1, -1]
    low, high = flat.min(0), flat.max(0)
    size = np.array([PLOT_WIDTH - 60, PLOT_HEIGHT - 60])
    scale = (size / np.maximum(high - low, 1e-9)).min()
    middle = np.array([20 + PLOT_WIDTH / 2, 30 + PLOT_HEIGHT / 2])
    offset = middle - scale * (low + high) / 2
    return [
        np.round(((part - center) @ directions.T * [1, -1]) * scale + offset, 1) for part in parts
    ]
