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
    kind: str  # photographs, drawings, digits, text, tables, shapes


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
    if part == "choose":
        found += [spirals(), made_up_table()]
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
    name = "omniglot-evaluation" if part == "report" else "omniglot-background"
    classes = loaded(folder, name)
    half = len(classes) // 2
    return {"learn": classes[:half], "choose": classes[half:], "report": classes}[part]


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


def synthetic(rng: np.random.Generator) -> Domain:
    """Shapes that are no photographs, for learning: blobs, stretched or heavy-tailed, and curves, in few or
    many dimensions."""
    kinds = int(rng.integers(2, 16))
    size, style = 120, rng.choice(["blobs", "stretched", "heavy", "curves", "curves"])
    dimensions = int(np.exp(rng.uniform(np.log(2), np.log(64))))
    if style == "curves" and rng.random() < 0.7:
        dimensions = int(rng.integers(2, 5))
    apart, classes = rng.uniform(1.5, 6), []
    for _ in range(kinds):
        center = rng.normal(size=dimensions) * apart / max(1, dimensions**0.5) ** 0.5
        rows = rng.normal(size=(size, dimensions))
        if style == "stretched":
            rows = rows @ (rng.normal(size=(dimensions, dimensions)) * rng.gamma(1, 1, dimensions))
            rows *= 0.7 / max(rows.std(), 1e-6)
        if style == "heavy":
            rows *= rng.standard_t(2.5, size=(size, 1))
        if style == "curves":
            rows = curve(size, dimensions, rng) + rows * rng.uniform(0.05, 0.3)
            center = center * rng.choice([0.1, 0.5])  # they wind around each other
        classes.append((center + rows * rng.uniform(0.6, 1.4)).astype(np.float32))
    if rng.random() < 0.3:  # features of unequal scale
        scale = np.exp(rng.normal(size=dimensions) * 2).astype(np.float32)
        classes = [rows * scale for rows in classes]
    every = np.concatenate(classes)
    low, high = np.quantile(every, 0.01, 0), np.quantile(every, 0.99, 0)
    scattered = rng.uniform(low, high, (300, dimensions)).astype(np.float32)
    return Domain("synthetic", classes, [scattered], "tables")


def curve(size: int, dimensions: int, rng: np.random.Generator) -> Array:
    """(size, D): a smooth random walk of some length, in a plane or in space."""
    steps = np.linspace(0, 1, size)[:, None]
    waves = np.arange(1, 4)
    phases = rng.uniform(0, 2 * np.pi, (dimensions, len(waves)))
    sizes = rng.normal(size=(dimensions, len(waves))) / waves * rng.uniform(1, 3)
    turns = rng.uniform(2, 2 * np.pi) * steps[:, :, None] * waves + phases
    found: Array = (sizes * np.sin(turns)).sum(2)
    return found
