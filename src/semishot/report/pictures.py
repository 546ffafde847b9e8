"""Pictures of an episode (Figure 2) and of a refinement (Figure 3), by matplotlib.

Letters: N classes, H distractor classes, K support, M unlabeled, Q query images per class, D dimensions.
"""

from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from semishot.report.plots import BLUE, ORANGE, RED, canvas, save

if TYPE_CHECKING:
    from semishot.paper.scenes import Scene

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]

GREEN, PURPLE, SKY, GRAY, INK = "#009E73", "#CC79A7", "#56B4E9", "#6F6F6F", "#222222"
CLASS_COLORS = (BLUE, ORANGE, GREEN, PURPLE, SKY)
"""Okabe and Ito's palette, for all kinds of color vision; classes are numbered too."""
FAINTEST = 0.12
"""Opacity of an image that the refinement does not use at all."""
MINUS, RIGHT, WRONG = "−", "✓", "✗"


def draw_episode(scene: "Scene", out: Path) -> None:
    """Figure 2 with a real episode: support, unlabeled, query, and each prediction right or wrong."""
    way, shot = scene.support.shape[:2]
    pile = np.concatenate(list(scene.unlabeled))  # ((N + H) M, C, H, W)
    distracts = np.arange(len(pile)) >= way * scene.unlabeled.shape[1]
    mixed = np.random.default_rng(0).permutation(len(pile))  # as the model sees them
    columns = max(1, -(-len(pile) // way))
    first_pile, first_query = shot + 0.7, shot + max(columns, 5) + 1.4  # room for the headings
    width, height = first_query + max(scene.query.shape[1], 3) + 0.1, way + 1.15
    figure = canvas(width * 0.95 + 0.5, height * 0.95)
    axes = figure.add_subplot()
    axes.set(xlim=(-0.55, width), ylim=(way + 0.1, -1.05), aspect="equal")
    axes.axis("off")
    right = int((scene.after == np.arange(way)[:, None]).sum())
    for x, title, note in (
        (0, "Support", "labeled"),
        (first_pile, "Unlabeled", f"+ of a class   {MINUS} distractor (the model is not told)"),
        (first_query, "Query", f"class predicted: {right} of {scene.after.size} right"),
    ):
        axes.text(x, -0.62, title, fontsize=17, weight="bold", color=INK)
        axes.text(x, -0.18, note, fontsize=12, color=GRAY)
    for row, column in np.ndindex(way, shot):
        _thumbnail(axes, scene.support[row, column], (column, row), INK)
    for row in range(way):
        axes.text(-0.12, row + 0.5, str(row + 1), fontsize=19, ha="right", va="center", color=INK)
    for place, image in enumerate(mixed):
        row, column = divmod(place, columns)
        mark, color = (MINUS, RED) if distracts[image] else ("+", GREEN)
        _thumbnail(axes, pile[image], (first_pile + column, row), color, mark)
    for row, column in np.ndindex(scene.after.shape):
        predicted = scene.after[row, column]
        mark, color = (RIGHT, GREEN) if predicted == row else (WRONG, RED)
        x = first_query + column
        _thumbnail(axes, scene.query[row, column], (x, row), color, f"{predicted + 1}{mark}")
    figure.suptitle(scene.title, fontsize=12, color=GRAY, x=0.01, ha="left")
    save(figure, out)


def _thumbnail(
    axes: Any, image: Bytes, place: tuple[float, float], color: str, mark: str = ""
) -> None:
    """An image in a frame, with a badge in its lower right corner."""
    x, y = place
    pixels = image.transpose(1, 2, 0)  # (H, W, C)
    if pixels.shape[-1] == 1:
        pixels = 255 - pixels.repeat(3, -1)  # ink on paper
    low, high = 0.05, 0.95
    axes.imshow(pixels, extent=(x + low, x + high, y + high, y + low), interpolation="antialiased")
    frame = axes.plot(
        [x + low, x + high, x + high, x + low, x + low],
        [y + low, y + low, y + high, y + high, y + low],
    )
    frame[0].set(color=color, linewidth=2.2, solid_joinstyle="miter")
    if mark:
        badge = {"boxstyle": "round,pad=0.12", "facecolor": color, "edgecolor": "white"}
        axes.text(
            x + 0.93, y + 0.92, mark, fontsize=11, weight="bold", color="white", bbox=badge,
            ha="right", va="bottom",
        )  # fmt: skip


def draw_refinement(scene: "Scene", out: Path) -> None:
    """Figure 3 with a real episode: embeddings in two dimensions, prototypes before and after."""
    support, unlabeled, query = scene.points
    everything = [*support, *unlabeled, *query, *scene.prototypes]  # (..., D) each
    center, directions = principal_axes(np.concatenate(everything))

    def place(points: Floats) -> Floats:
        return (points - center) @ directions.T

    figure = canvas(11.5, 6.4)
    axes, key = figure.subplots(1, 2, width_ratios=[5, 2])
    opacity = FAINTEST + (1 - FAINTEST) * scene.weights.clip(0, 1)
    for row, per_class in enumerate(unlabeled):
        style = _unlabeled_style(row, len(support))
        for point, alpha in zip(place(per_class), opacity[row], strict=True):
            axes.scatter(*point, alpha=alpha, **style)
    for row, color in zip(range(len(support)), cycle(CLASS_COLORS), strict=False):
        axes.scatter(*place(query[row]).T, s=60, facecolor="none", edgecolor=color, linewidth=1.6)
        axes.scatter(*place(support[row]).T, s=170, color=color, marker="s", edgecolor=INK)
        start, end = (place(p[row]) for p in scene.prototypes)
        arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 2, "shrinkA": 0, "shrinkB": 9}
        axes.annotate("", end, start, arrowprops=arrow, zorder=4)
        _numeral(axes, end, row, color)
    axes.set(xticks=[], yticks=[], aspect="equal", adjustable="datalim")
    axes.margins(0.06)
    axes.set_xlabel("first principal component", fontsize=12)
    axes.set_ylabel("second principal component", fontsize=12)
    truth = np.arange(len(support))[:, None]
    before, after = ((predicted == truth).sum() for predicted in (scene.before, scene.after))
    figure.suptitle(
        f"{scene.title}: {before} of {query.shape[0] * query.shape[1]} queries right before "
        f"refinement, {after} after",
        fontsize=14, x=0.01, ha="left",
    )  # fmt: skip
    _key(key, scene)
    save(figure, out)


def _unlabeled_style(row: int, way: int) -> dict[str, Any]:
    if row < way:
        return {"s": 95, "color": CLASS_COLORS[row % len(CLASS_COLORS)], "linewidth": 0}
    return {"s": 75, "color": INK, "marker": "x", "linewidth": 2.2}


def _numeral(axes: Any, point: Floats, row: int, color: str) -> None:
    """A refined prototype: the number of its class in a disk."""
    disk = {"boxstyle": "circle,pad=0.2", "facecolor": color, "edgecolor": INK}
    axes.text(
        *point, str(row + 1), fontsize=11, weight="bold", color="white", bbox=disk,
        ha="center", va="center", zorder=5,
    )  # fmt: skip


def _key(axes: Any, scene: "Scene") -> None:
    """An image of each class, and what the marks mean."""
    from matplotlib.lines import Line2D

    way, across = len(scene.support), max(3, len(scene.support))
    for row in range(way):
        color = CLASS_COLORS[row % len(CLASS_COLORS)]
        _thumbnail(axes, scene.support[row, 0], (row, 0), color, str(row + 1))
    for place, images in enumerate(scene.unlabeled[way:, :1]):
        line, column = divmod(place, across)
        _thumbnail(axes, images[0], (column, 1.5 + line), INK)
    lines = -(-(len(scene.unlabeled) - way) // across)
    axes.text(0.05, -0.08, "support", fontsize=12, color=INK)
    if lines:
        axes.text(0.05, 1.42, "distractors, one of each class", fontsize=12, color=INK)
    axes.set(xlim=(0, across), ylim=(across * 2.2, -0.5), aspect="equal", anchor="NW")
    axes.axis("off")
    disk, ring = {"marker": "o", "color": BLUE}, {"markeredgecolor": INK, "markeredgewidth": 1}
    marks: list[tuple[str, dict[str, Any]]] = [
        (
            "support, prototype: its mean",
            {"marker": "s", "color": BLUE, "markersize": 12, **ring},
        ),
        ("prototype after refinement", {**disk, "markersize": 16, **ring}),
        ("unlabeled, of a class", {**disk, "markersize": 10, "markeredgewidth": 0}),
        ("unlabeled, distractor", {"marker": "x", "color": INK, "markersize": 9, "mew": 2.2}),
        ("faint: masked out", {**disk, "markersize": 10, "alpha": FAINTEST * 2, "mew": 0}),
        ("query", {**disk, "markerfacecolor": "none", "markersize": 8, "mew": 1.6}),
    ]
    axes.legend(
        handles=[Line2D([], [], linestyle="", label=label, **style) for label, style in marks],
        loc="upper left",
        bbox_to_anchor=(-0.05, 1 - (2.3 + lines) / (across * 2.2 + 0.5)),
        fontsize=12,
        frameon=False,
    )


def principal_axes(points: Floats) -> tuple[Floats, Floats]:
    """(P, D) -> their mean (D,) and the two directions of greatest variance (2, D)."""
    center = points.mean(0)
    return center, np.linalg.svd(points - center, full_matrices=False)[2][:2]
