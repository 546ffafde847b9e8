"""Few labels and a pile, drawn from features (classes, images, dimensions), and what is measured on them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Features = NDArray[np.float32]
BINS = 15


@dataclass(frozen=True)
class Cell:
    way: int
    shot: int
    pile: int
    distractors: float
    """The share of the pile that belongs to none of the classes."""
    query: int


@dataclass(frozen=True)
class Task:
    features: Features
    """(way * shot + pile, D), the labeled ones first."""
    labels: NDArray[np.int64]
    """-1 for the pile."""
    truth: NDArray[np.int64]
    """-1 for distractors."""
    queries: Features
    answers: NDArray[np.int64]


def possible(cell: Cell, features: Features) -> bool:
    classes, images, _ = features.shape
    strangers = round(cell.pile * cell.distractors)
    each = -(-(cell.pile - strangers) // cell.way)
    enough = cell.shot + cell.query + each <= images
    return enough and strangers <= (classes - cell.way) * images


def draw(features: Features, cell: Cell, seed: int) -> Task:
    """Members of the pile come evenly from the classes, distractors at random from all others."""
    rng = np.random.default_rng([seed, cell.shot, cell.pile, round(100 * cell.distractors)])
    classes, images, _ = features.shape
    order = rng.permutation(classes)
    strangers = round(cell.pile * cell.distractors)
    support, queries, members, own = [], [], [], []
    for label, name in enumerate(order[: cell.way]):
        each = (cell.pile - strangers + label) // cell.way
        rows = features[name, rng.permutation(images)[: cell.shot + cell.query + each]]
        support.append(rows[: cell.shot])
        queries.append(rows[cell.shot : cell.shot + cell.query])
        members.append(rows[cell.shot + cell.query :])
        own += [label] * each
    picked = rng.choice((classes - cell.way) * images, strangers, replace=False)
    others = features[order[cell.way + picked // images], picked % images]
    labeled = np.repeat(np.arange(cell.way), cell.shot)
    truth = np.concatenate([labeled, own, np.full(strangers, -1)]).astype(np.int64)
    labels = np.where(np.arange(len(truth)) < len(labeled), truth, -1)
    answers = np.repeat(np.arange(cell.way), cell.query)
    together = np.concatenate([*support, *members, others])
    return Task(together, labels, truth, np.concatenate(queries), answers)


def calibration_error(confidence: NDArray[Any], right: NDArray[np.bool_]) -> float:
    """ECE: |confidence - accuracy| averaged over 15 bins of confidence, weighted by their size."""
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs((confidence - right)[place == b].sum()) for b in range(BINS)]
    return float(sum(gaps) / len(right))
