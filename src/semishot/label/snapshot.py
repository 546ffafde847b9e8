"""The judged state of all rows at one version: what the page shows and what sorting goes by.

Letters: P rows of the pile, N classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot.label.last_view import pack
from semishot.sorter.answer_state import State

Array = NDArray[Any]
ANSWERED_NONE = -2
"""In place of the index of a class: a person said that it is none of them."""
REJECTS = np.concatenate([[0.001], np.geomspace(0.002, 0.5, 60)]).round(4)
"""The stops of the slider: shares of true members that may be taken for strangers."""


@dataclass(frozen=True)
class Snapshot:
    """The state of all rows at one version. Index -1: no answer or no guess; -2: none of the classes."""

    version: int
    event: int
    """The number of the last event that it takes into account."""
    state: State
    images: Array
    """(P,) numbers of the catalog."""
    answers: Array
    """(P,), indices into the classes."""
    guesses: Array
    """(P,), the most probable class, whatever the cutoff."""
    sure: Array
    """(P,), the probability of that class, strangers taken into account."""
    stranger: Array
    """(P,), the probability of a stranger."""
    scores: Array
    """(P,), NaN where nothing was judged."""
    groups: Array
    """(P,), the image that stands for its near copies."""
    cutoffs: Array | None
    asked: list[int] = field(default_factory=list)
    """Images."""
    doubtful: list[tuple[int, int, float]] = field(default_factory=list)
    """Image, index of the suggested class, probability."""
    probabilities: Array | None = None
    """(P, N)"""
    strangers: tuple[float, float, float] | None = None
    """How many of the pile are likely strangers, with a 90 % interval."""

    @property
    def classes(self) -> list[int]:
        return list(self.state.classes)

    @cached_property
    def has_copies(self) -> Array:
        """(P,), whether a row is grouped with near copies."""
        _, group, counts = np.unique(self.groups, return_inverse=True, return_counts=True)
        found: Array = counts[group] > 1
        return found

    def cutoff(self) -> float:
        """The score below which a row is taken for a stranger."""
        if self.cutoffs is None:
            return -np.inf
        return float(np.interp(np.log(self.state.reject), np.log(REJECTS), self.cutoffs))


def decisions(snapshot: Snapshot) -> tuple[Array, Array]:
    """(P,) the class of each row, -2 for none, -1 for not known; and (P,) whether a person said so."""
    confirmed = snapshot.answers != -1
    out = (snapshot.guesses >= 0) & (snapshot.scores < snapshot.cutoff())
    guessed = np.where(out, ANSWERED_NONE, snapshot.guesses)
    return np.where(confirmed, snapshot.answers, guessed), confirmed


def nothing(version: int, event: int, state: State, images: Array) -> Snapshot:
    """Nothing is answered and nothing judged."""
    count = len(images)
    none, unknown = np.full(count, -1), np.full(count, np.nan)
    return Snapshot(
        version, event, state, images, none, none, unknown, unknown, unknown, images, None
    )


def of_kept_view(
    about: Mapping[str, Any], columns: Mapping[str, Array], event: int, state: State
) -> Snapshot:
    """What an earlier run showed after this event."""
    cutoffs = about["cutoffs"]
    return replace(
        nothing(0, event, state, columns["images"].astype(np.int64)),
        answers=columns["answers"].astype(np.int64),
        guesses=columns["guesses"].astype(np.int64),
        sure=columns["sure"] / 255,
        stranger=columns["stranger"] / 255,
        scores=columns["scores"].astype(np.float64),
        groups=columns["groups"].astype(np.int64),
        cutoffs=None if cutoffs is None else np.array(cutoffs),
        asked=list(about["asked"]),
        doubtful=[(image, index, chance) for image, index, chance in about["doubtful"]],
        strangers=about["strangers"],
    )


def for_the_page(
    snapshot: Snapshot, about: Mapping[str, Any], columns: Mapping[str, Array]
) -> bytes:
    """The snapshot as bytes, with more in its header and more columns."""
    return pack(
        {
            **about,
            "version": snapshot.version,
            "event": snapshot.event,
            "rows": len(snapshot.images),
            "classes": [[number, name] for number, name in snapshot.state.classes.items()],
            "asked": snapshot.asked,
            "doubtful": snapshot.doubtful,
            "reject": snapshot.state.reject,
            "rejects": REJECTS.tolist(),
            "cutoffs": None if snapshot.cutoffs is None else snapshot.cutoffs.round(5).tolist(),
            "strangers": snapshot.strangers,
        },
        {
            **columns,
            "images": snapshot.images,
            "groups": snapshot.groups,
            "scores": snapshot.scores,
            "answers": snapshot.answers,
            "guesses": snapshot.guesses,
            "sure": _of_255(snapshot.sure),
            "stranger": _of_255(snapshot.stranger),
        },
    )


def _of_255(shares: Array) -> Array:
    bytes_: Array = np.nan_to_num(shares * 255).round().astype(np.uint8)
    return bytes_
