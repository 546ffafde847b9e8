"""Where piles come from: classes of features, split by class and by domain into learn, choose and report.

FOLDER is what `python -m pile_tasks.encode DATA FOLDER` writes; tables and shapes are scikit-learn's.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_circles,
    make_moons,
)

Array = NDArray[Any]
ENCODERS = ("photos", "lite0")


@dataclass(frozen=True)
class Domain:
    """Classes whose rows can be compared with each other, and rows of other domains, if there are any."""

    name: str
    classes: list[Array]  # of (rows, D)
    others: list[Array]
    kind: str  # photographs, drawings, digits, pixels, text, tables, shapes


def domains(folder: Path, part: str) -> list[Domain]:
    """Of the part learn, choose or report."""
    found = []
    for encoder in ENCODERS:
        split = {"learn": "train", "choose": "val", "report": "test"}[part]
        mini = loaded(folder, f"mini-{split}-{encoder}")
        birds, groceries = (loaded(folder, f"{name}-{encoder}") for name in ("birds", "groceries"))
        birds = {"learn": [], "choose": birds[:20], "report": birds[20:]}[part]
        groceries = {"learn": groceries[:12], "choose": groceries[12:], "report": []}[part]
        each = {"miniImageNet": mini, "birds": birds, "groceries": groceries}
        for name, classes in each.items():
            others = [rows for other, own in each.items() if other != name for rows in own]
            if classes:
                found.append(Domain(f"{name}, {encoder}", classes, others, "photographs"))
    found.append(Domain("drawings", drawings(folder, part), [], "drawings"))
    found.append(Domain("docstrings", loaded(folder, f"docstrings-{part}"), [], "text"))
    if part == "learn":
        found.append(Domain("thumbnails", loaded(folder, "pixels-photographs"), [], "pixels"))
        found += [small_drawings(folder, part, size) for size in (8, 16)]
    if part == "choose":
        found += [spirals(), made_up_table(), small_drawings(folder, part, 8)]
    if part == "report":
        found.append(Domain("digits", table(load_digits), [], "digits"))
        for load in (load_wine, load_breast_cancer, load_iris):
            found.append(Domain(load.__name__.removeprefix("load_"), table(load), [], "tables"))
        found += [moons(), circles()]
    return found


def loaded(folder: Path, name: str) -> list[Array]:
    with np.load(folder / f"{name}.npz") as file:
        return by_class(file["x"], file["y"])


def drawings(folder: Path, part: str) -> list[Array]:
    """Omniglot: half of the background alphabets to learn, the others to choose, evaluation to report."""
    if part == "report":
        return loaded(folder, "omniglot-evaluation")
    return half(loaded(folder, "omniglot-background"), part)


def half(classes: list[Array], part: str) -> list[Array]:
    middle = len(classes) // 2
    return classes[:middle] if part == "learn" else classes[middle:]


def small_drawings(folder: Path, part: str, size: int) -> Domain:
    """The pixels of drawings, size x size."""
    classes = [
        rows.reshape(-1, size, 16 // size, size, 16 // size).mean((2, 4)).reshape(len(rows), -1)
        for rows in half(loaded(folder, "pixels-drawings"), part)
    ]
    return Domain(f"small drawings, {size} x {size}", classes, [], "pixels")


def table(load: Any) -> list[Array]:
    return by_class(*load(return_X_y=True))


def moons() -> Domain:
    """Strangers lie on a ring around both."""
    rows, labels = make_moons(8000, noise=0.08, random_state=0)
    return Domain("moons", by_class(rows, labels), [ring(3.0, (0.5, 0.25))], "shapes")


def circles() -> Domain:
    """Strangers are a spot inside of both."""
    rows, labels = make_circles(3000, noise=0.06, factor=0.55, random_state=0)
    return Domain("circles", by_class(rows, labels), [ring(0.1, (0.0, 0.0))], "shapes")


def spirals() -> Domain:
    """Three arms."""
    rng, turn = np.random.default_rng(0), np.linspace(1, 7, 2500)
    arms = []
    for start in np.arange(3) * 2 * np.pi / 3:
        arm = turn[:, None] * np.column_stack([np.cos(turn + start), np.sin(turn + start)])
        arms.append((arm + rng.normal(size=arm.shape) * 0.15).astype(np.float32))
    return Domain("spirals", arms, [], "shapes")


def made_up_table() -> Domain:
    """Six classes of 13 features in units of their own, some of heavy tails."""
    rng = np.random.default_rng(0)
    tails = np.where(np.arange(13) % 4, 30, 2.5)
    rows = [rng.normal(size=13) * 1.2 + rng.standard_t(tails, size=(150, 13)) for _ in range(6)]
    scale = np.exp(2 * rng.normal(size=13))
    return Domain("made-up table", [(own * scale).astype(np.float32) for own in rows], [], "tables")


def ring(radius: float, center: tuple[float, float]) -> Array:
    rng = np.random.default_rng(1)
    turn = rng.uniform(0, 2 * np.pi, 1500)
    rows = radius * np.column_stack([np.cos(turn), np.sin(turn)]) + center
    return (rows + rng.normal(size=rows.shape) * 0.05).astype(np.float32)


def by_class(rows: Array, labels: Array) -> list[Array]:
    return [rows[labels == label].astype(np.float32) for label in np.unique(labels)]
