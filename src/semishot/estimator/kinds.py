"""Kinds without a name: groups of rows that look like classes of their own.

Each row moves towards the mean of its nearest neighbours, twice, so that groups separate. Average linkage
joins what is then alike. Of many rows, landmarks are grouped: evenly spaced ones in the ranking by cosine
with the mean. Other rows join the kind whose middle is nearest, if they are as near as its own rows are.
Letters: P rows, L landmarks, G kinds, D features, k neighbours.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from semishot.estimator.spaces import (
    AnySpace,
    Array,
    blocks,
    evenly_spaced,
    mean_direction,
    nearest,
    one_thread,
    unit,
)

__all__ = ["Kind", "find_kinds"]

LANDMARKS = 2000
NEIGHBOURS, MOVES = 5, 2
APART = 0.2
"""One minus the mean cosine, after the moves, from which on two groups are two kinds."""
LEAST = 4
"""Rows of a kind among the landmarks: fewer are no kind."""
OUTER = 0.1
"""The share of a kind's landmarks that are farther from its middle than rows which join it may be."""
TYPICAL = 8
MAY_BE_STRANGER, LIKELY_STRANGERS = 0.2, 0.4
"""Probabilities of a stranger: of a row that is looked at, and the mean of a kind."""


class Kind(NamedTuple):
    """Rows that look alike."""

    rows: NDArray[np.int64]
    """The most typical first."""
    typical: NDArray[np.int64]
    """The first of them."""


@one_thread()
def find_kinds(features: Array, space: AnySpace, stranger: Array | None = None) -> list[Kind]:
    """Kinds among rows of the pile (P, D), the largest first.

    Parameters
    ----------
    features
        The rows, of shape (P, D).
    space
        Where they are compared, such as `classifier.fitted_.learned.model.space`.
    stranger
        The probability that a row belongs to none of the classes that have a name, of shape (P,); 0 for
        rows that have a label. None: nothing has a name yet, and all rows are grouped.
    """
    chance = np.ones(features.shape[0]) if stranger is None else np.nan_to_num(stranger)
    unnamed = np.flatnonzero(chance >= MAY_BE_STRANGER)
    landmarks = unnamed
    if len(unnamed) > LANDMARKS:
        center = mean_direction(features)
        along = np.concatenate([unit(block) @ center for _, block in blocks(features)])[unnamed]
        ranking = unnamed[np.argsort(along, kind="stable")]
        landmarks = np.sort(ranking[evenly_spaced(len(ranking), LANDMARKS)])
    if len(landmarks) < LEAST:
        return []
    rows = unit(space(features[landmarks]))  # (L, D)
    group_of = groups_of(rows)  # (L,)
    sizes = enumerate(np.bincount(group_of))
    groups = [group_of == number for number, size in sizes if size >= LEAST]  # G of (L,)
    if not groups:
        return []
    middles = unit(np.stack([rows[group].mean(0) for group in groups]))  # (G, D)
    cosines = rows @ middles.T  # (L, G)
    own = [cosines[group, number] for number, group in enumerate(groups)]
    ends = np.array([np.quantile(each, OUTER) for each in own])  # (G,)
    kind, near = np.full(features.shape[0], -1), np.zeros(features.shape[0])
    if len(landmarks) < len(unnamed):
        for part, block in blocks(features):
            cosines = unit(space(block)) @ middles.T  # (C, G)
            best, near[part] = cosines.argmax(1), cosines.max(1)
            kind[part] = np.where(near[part] >= ends[best], best, -1)
        kind[landmarks] = kind[chance < MAY_BE_STRANGER] = -1
    for number, group in enumerate(groups):
        kind[landmarks[group]], near[landmarks[group]] = number, own[number]
    found = []
    for number in range(len(groups)):
        members = np.flatnonzero(kind == number)
        if chance[members].mean() >= LIKELY_STRANGERS:
            ordered = members[np.argsort(-near[members], kind="stable")]
            found.append(Kind(ordered, ordered[:TYPICAL]))
    return sorted(found, key=lambda one: (-len(one.rows), int(one.rows[0])))


def groups_of(rows: Array) -> NDArray[np.int64]:
    """Unit rows (L, D) -> (L,) the number of each one's group."""
    count = min(NEIGHBOURS, len(rows) - 1)
    for _ in range(MOVES):
        cosines = rows @ rows.T
        np.fill_diagonal(cosines, -1)
        indices, near = nearest(cosines, count)  # (L, k)
        weights = np.maximum(near, 0)[..., None] ** 3  # (L, k, 1)
        moved = sum(weights[:, j] * rows[indices[:, j]] for j in range(count))
        rows = unit(rows * weights.sum(1) + moved)  # itself counts as much as all neighbours
    apart = np.maximum(1 - rows @ rows.T, 0)
    np.fill_diagonal(apart, 0)
    tree = linkage(squareform(apart, checks=False), "average")
    groups: NDArray[np.int64] = fcluster(tree, APART, "distance")
    return groups
