"""The neighbours of rows: found anew each time, or remembered for a pile that is judged again and again.

Letters: P rows, K of them in a graph, L different ones, E of them beside the landmarks, C rows at once,
N classes, D features, k neighbours.
"""

from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from semishot.estimator.blocks import Array, Space, blocks, evenly_spaced
from semishot.estimator.graph import NEIGHBOURS, Graph, graph_of, neighbour_graph
from semishot.estimator.lift import Lift
from semishot.estimator.models import OffTheGraph, read_in_blocks

AT_ONCE = 8192
"""Rows whose remembered neighbours are compared at once."""


class Distinct(NamedTuple):
    """Copies are one row of the graph: they would otherwise be each other's only neighbours."""

    graph: Graph
    first: Array
    """(L,), the first of the K rows that is this row."""
    copy_of: Array
    """(K,), the row of the graph."""


class Finder(Protocol):
    features: Array
    """(P, D)."""

    @property
    def landmarks(self) -> Array | None:
        """Rows that are always in the graph; None: those that the labels choose."""

    def graph(self, places: Array) -> Distinct:
        """The graph of these rows (K,)."""

    def read(self, model: OffTheGraph) -> tuple[Tensor, Tensor]:
        """Logits (P, N) and scores (P,) by the graph asked for last."""


class Anew:
    """Neighbours that are asked for once."""

    def __init__(self, features: Array, space: Space | Lift) -> None:
        self.features, self.space = features, space
        self.landmarks: Array | None = None

    def graph(self, places: Array) -> Distinct:
        rows = self.space(torch.from_numpy(np.array(self.features[places]))).numpy()
        first, copy_of = distinct(rows)
        return Distinct(neighbour_graph(rows[first]), first, copy_of)

    def read(self, model: OffTheGraph) -> tuple[Tensor, Tensor]:
        return read_in_blocks(model, self.features)


def distinct(rows: Array) -> tuple[Array, Array]:
    """(K, D) -> the first place of each different row (L,), and the row that each is a copy of (K,)."""
    seen: dict[bytes, int] = {}
    keys = np.array([seen.setdefault(row.tobytes(), place) for place, row in enumerate(rows)], int)
    first, copy_of = np.unique(keys, return_inverse=True)
    return first, copy_of


class Remembered:
    """Neighbours of a pile whose labels change. The landmarks stay; what is labeled joins them.

    Features stay where they are, a memory map for example: a cosine with the direction of x seen from the
    center c is (x.r / |x| - c.r) / |x / |x| - c|, of which two numbers per row are kept.
    """

    def __init__(self, features: Array, center: Tensor, exact: int, landmarks: int) -> None:
        self.features, self.center = features, center
        self.space = Space("centered", center)
        self.scale, self.shift, along = self._lengths()
        self.landmarks: Array = np.arange(len(features))
        self.near: tuple[Array, Array] | None = None  # (P, k) landmarks and cosines
        if len(features) > exact:
            ranking = np.argsort(along, kind="stable")
            self.landmarks = np.sort(ranking[evenly_spaced(len(features), landmarks)])
        self.rows = np.empty((0, features.shape[1]), center.numpy().dtype)
        self.cosines = np.empty((0, 0), self.rows.dtype)
        self.place_of: dict[int, int] = {}
        self.columns: dict[int, Array] = {}  # (P,), cosines with rows beside the landmarks
        self.found: Distinct | None = None
        self.asked: Array = np.empty(0, int)
        self._add(self.landmarks)
        if len(features) > exact:
            self.near = self._nearest_landmarks()

    def _lengths(self) -> tuple[Array, Array, Array]:
        """(P,) each: 1 / (|x| |x / |x| - c|), 1 / |x / |x| - c|, and x.c / |x|."""
        square = float(self.center @ self.center)
        lengths, along = np.empty(len(self.features)), np.empty(len(self.features))
        for part, block in blocks(self.features):
            lengths[part] = block.norm(dim=-1).clamp_min(torch.finfo(block.dtype).tiny)
            along[part] = block @ self.center
        along /= lengths
        apart = np.sqrt(np.maximum(1 + square - 2 * along, 1e-14))
        return 1 / (lengths * apart), 1 / apart, along

    def cosines_with(self, rows: Array) -> Array:
        """(N, D) -> (P, N), of each row's direction, times the length of `rows`."""
        found = np.empty((len(self.features), len(rows)), self.rows.dtype)
        shifted = rows @ self.center.numpy()  # (N,)
        for first in range(0, len(self.features), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            along = np.asarray(self.features[part]) @ rows.T
            found[part] = along * self.scale[part, None] - self.shift[part, None] * shifted
        return found

    def _add(self, places: Array) -> None:
        """Remember these rows of the pile."""
        new = np.array([place for place in places.tolist() if place not in self.place_of], int)
        if not len(new):
            return
        rows = self.space(torch.from_numpy(np.array(self.features[new]))).numpy()
        for place in new.tolist():
            self.place_of[place] = len(self.place_of)
        before, beside = len(self.rows), rows @ self.rows.T
        self.rows = np.concatenate([self.rows, rows])
        whole = np.empty((len(self.rows), len(self.rows)), rows.dtype)
        whole[:before, :before] = self.cosines
        whole[before:, :before], whole[:before, before:] = beside, beside.T
        whole[before:, before:] = rows @ rows.T
        self.cosines = whole
        if self.near is not None:
            self.columns |= zip(new.tolist(), self.cosines_with(rows).T.copy(), strict=True)

    def graph(self, places: Array) -> Distinct:
        if self.found is not None and np.array_equal(places, self.asked):
            return self.found
        self._add(places)
        held = np.array([self.place_of[place] for place in places.tolist()])
        first, copy_of = distinct(self.rows[held])
        kept = held[first]
        graph = graph_of(self.rows[kept], lambda part: self.cosines[np.ix_(kept[part], kept)])
        self.asked, self.found = places, Distinct(graph, first, copy_of)
        return self.found

    def _nearest_landmarks(self) -> tuple[Array, Array]:
        """(P, k) places among the landmarks, and (P, k) cosines."""
        places, cosines = [], []
        rows = torch.from_numpy(self.rows)
        for _, block in blocks(self.features):
            best, where = (self.space(block) @ rows.mT).topk(min(NEIGHBOURS, len(rows)))
            places.append(where.numpy())
            cosines.append(best.numpy())
        return np.concatenate(places), np.concatenate(cosines)

    def read(self, model: OffTheGraph) -> tuple[Tensor, Tensor]:
        """The landmarks' part is remembered; rows of the graph beside them are compared again."""
        if self.near is None or self.found is None:  # all rows were in the graph
            return read_in_blocks(model, self.features)
        count = len(model.prototypes)
        both = self.cosines_with(torch.cat([model.scoring, model.prototypes]).numpy())  # (P, 2 N)
        row_of = dict(zip(self.asked.tolist(), self.found.copy_of.tolist(), strict=True))
        landmark = np.array([row_of.get(place, -1) for place in self.landmarks.tolist()])
        extra = [place for place in self.asked.tolist() if place in self.columns]
        extra_rows = np.array([row_of[place] for place in extra], int)  # (E,)
        logits, scores = torch.empty(len(both), count), torch.empty(len(both))
        logits, scores = logits.to(model.prototypes), scores.to(model.prototypes)
        for first in range(0, len(both), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            places = landmark[self.near[0][part]]  # (C, k)
            cosines = np.where(places >= 0, self.near[1][part], -1)
            if extra:
                more = np.stack([self.columns[place][part] for place in extra], 1)  # (C, E)
                cosines = np.concatenate([cosines, more], 1)
                own = np.broadcast_to(extra_rows, more.shape)
                places = np.concatenate([places, own], 1)
                best = np.argpartition(-cosines, NEIGHBOURS - 1, 1)[:, :NEIGHBOURS]
                cosines = np.take_along_axis(cosines, best, 1)
                places = np.take_along_axis(places, best, 1)
            mine = torch.from_numpy(both[part]).to(logits)
            logits[part], scores[part] = model.combined(
                torch.from_numpy(places.clip(0)),
                torch.from_numpy(cosines).to(logits),
                mine[:, :count],
                mine[:, count:],
            )
        return logits, scores
