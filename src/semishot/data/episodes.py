"""Episodes by address: episode i of stream (seed, purpose) is a pure function of these three.

Letters: E episodes, N way, K shot, Q query per class, M unlabeled per class, H distractor classes.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semishot.data.pool import Indices
from semishot.data.settings import EpisodeShape as EpisodeShape
from semishot.data.splits import ClassImages, random_words, uniforms
from semishot.errors import InputError


@dataclass(frozen=True)
class Episodes:
    """Image indices, class by class: support image s has label s // K, query q has label q // Q."""

    support: Indices
    """(E, N K)"""
    unlabeled: Indices
    """(E, (N + H) M); the last H M are the distractors."""
    query: Indices
    """(E, N Q)"""
    classes: Indices
    """(E, N + H), indices into the split's list of classes; the last H are the distractor classes."""

    @property
    def images(self) -> Indices:
        """(E, N K + (N + H) M + N Q), in the order in which they are encoded."""
        return np.concatenate([self.support, self.unlabeled, self.query], axis=1)


class Stream(NamedTuple):
    """An endless sequence of episodes; its seed and purpose decide every one of them."""

    seed: int
    purpose: str
    """Such as train or test. Streams of one seed but different purposes are independent."""


def sample_episodes(
    images: ClassImages, shape: EpisodeShape, stream: Stream, start: int, count: int
) -> Episodes:
    """Episodes start .. start + count of a stream.

    Classes, support and query have one stream, unlabeled images a second and distractors a third:
    changing M or H leaves the rest of an episode unchanged. Within groups, a fourth draws the group.
    """
    check_enough(images, shape)
    seed, purpose = stream
    n, kq, m, h = shape.way, shape.shot + shape.query, shape.unlabeled, shape.distractors
    u = draws(seed, f"{purpose}: group", start, count, int(shape.within_group))
    order, first, among = _classes_to_draw(images, n + h, u)
    u = draws(seed, f"{purpose}: labeled", start, count, n + n * kq)
    drawn = distinct(u[:, :n], among)  # (E, N)
    classes = order[first + drawn]  # (E, N)
    labeled = distinct(u[:, n:].reshape(count, n, kq), images.labeled[classes])  # (E, N, K + Q)

    u = draws(seed, f"{purpose}: unlabeled", start, count, n * m).reshape(count, n, m)
    unlabeled = _unlabeled(images, u, classes, labeled)  # (E, N, M)
    u = draws(seed, f"{purpose}: distractors", start, count, h + h * m)
    others = order[first + distinct(u[:, :h], among, taken=drawn)]  # (E, H)
    nothing = np.empty((count, h, 0), np.int64)
    irrelevant = _unlabeled(images, u[:, h:].reshape(count, h, m), others, nothing)  # (E, H, M)

    everyone = np.concatenate([classes, others], axis=1)  # (E, N + H)
    piles = np.concatenate([unlabeled, irrelevant], axis=1)  # (E, N + H, M)
    labeled_images = images.order[images.start[classes][..., None] + labeled]
    return Episodes(
        support=labeled_images[..., : shape.shot].reshape(count, -1),
        unlabeled=images.order[images.start[everyone][..., None] + piles].reshape(count, -1),
        query=labeled_images[..., shape.shot :].reshape(count, -1),
        classes=everyone,
    )


def _classes_to_draw(
    images: ClassImages, need: int, u: NDArray[np.float64]
) -> tuple[Indices, Indices, Indices]:
    """An order of the classes (C,), and each episode's slice of it: first (E, 1) and size (E,).

    The slice is all classes if `u` is (E, 0). If it is (E, 1), it is the group of a class drawn among
    those whose group has `need` classes: each class is equally likely, whatever the size of its group.
    """
    everyone, episodes = len(images.size), len(u)
    if not u.shape[1]:
        return np.arange(everyone), np.zeros((episodes, 1), np.int64), np.full(episodes, everyone)
    _, group = np.unique([c.group for c in images.classes], return_inverse=True)  # (C,)
    size = np.bincount(group)  # (G,)
    able = np.flatnonzero(size[group] >= need)
    drawn = group[able[(u[:, 0] * len(able)).astype(np.int64)]]  # (E,)
    first = np.cumsum(size) - size  # (G,)
    return np.argsort(group, kind="stable"), first[drawn][:, None], size[drawn]


def distinct(u: NDArray[np.float64], among: Indices | int, taken: Indices | None = None) -> Indices:
    """Draw without replacement: (..., k) uniforms -> (..., k) different numbers below `among` (...).

    The t-th draw is uniform over what is left: take its rank among the free numbers, then step over
    the numbers taken so far, smallest first. `taken` (..., j) are numbers not to be drawn.
    """
    lead, k = u.shape[:-1], u.shape[-1]
    before = np.empty((*lead, 0), np.int64) if taken is None else np.sort(taken, axis=-1)
    j = before.shape[-1]
    drawn = np.empty((*lead, k), np.int64)
    gone = np.empty((*lead, j + k), np.int64)  # kept sorted
    gone[..., :j] = before
    for t in range(k):
        value = (u[..., t] * (np.asarray(among) - j - t)).astype(np.int64)
        for s in range(j + t):
            value += value >= gone[..., s]
        drawn[..., t] = gone[..., j + t] = value
        gone[..., : j + t + 1].sort(axis=-1)
    return drawn


def check_enough(images: ClassImages, *shapes: EpisodeShape, advice: str | None = None) -> None:
    """Raise an error early if a class has fewer images than an episode may draw from it.

    `advice` says what to do, for a command without the flags of an episode.
    """
    for shape in shapes:
        for have, need, lacking, flags in _needs(images, shape):
            if have < need:
                raise InputError(f"{lacking}; {advice or flags}")


def _needs(images: ClassImages, shape: EpisodeShape) -> Iterator[tuple[int, int, str, str]]:
    """What there is, what an episode needs; what is said if it lacks; and the flags that change it."""
    have, need = len(images.size), shape.way + shape.distractors
    drawn = f"{shape.way} + {shape.distractors} distractor classes"
    flags = "lower --way or --distractors"
    yield have, need, f"the split has {have} classes but an episode needs {drawn}", flags
    if shape.within_group:
        group, have = Counter(c.group for c in images.classes).most_common(1)[0]
        said = f"the largest group, {group!r}, has {have} classes but an episode within a group needs {drawn}"
        yield have, need, said, f"{flags}, or drop --within-group"
    index, fraction = int(images.labeled.argmin()), f"(now {images.labeled_fraction:g})"
    name, have, need = images.classes[index].name, images.labeled[index], shape.shot + shape.query
    drawn = f"an episode needs {shape.shot} support + {shape.query} query"
    if images.shared:
        said = f"class {name!r} has {have} images but {drawn} + {shape.unlabeled} unlabeled"
        yield have, need + shape.unlabeled, said, "lower --shot, --query or --unlabeled"
        return
    flags = f"lower --shot or --query, or raise --labeled-fraction {fraction}"
    yield have, need, f"class {name!r} has {have} labeled images but {drawn}", flags
    unlabeled = images.size - images.labeled
    index, have = int(unlabeled.argmin()), int(unlabeled.min())
    said = f"class {images.classes[index].name!r} has {have} unlabeled images but an episode needs"
    flags = f"lower --unlabeled or --labeled-fraction {fraction}"
    yield have, shape.unlabeled, f"{said} {shape.unlabeled}", flags


def _unlabeled(
    images: ClassImages, u: NDArray[np.float64], classes: Indices, labeled: Indices
) -> Indices:
    """Indices of unlabeled images within their class: (E, N, M)."""
    if images.shared:
        return distinct(u, images.size[classes], taken=labeled)
    first = images.labeled[classes]
    return first[..., None] + distinct(u, images.size[classes] - first)


def draws(seed: int, purpose: str, start: int, count: int, each: int) -> NDArray[np.float64]:
    """(E, each) uniforms; each episode has whole blocks of four words, independent of its neighbors."""
    blocks = -(-each // 4)
    words = random_words(seed, purpose, start * blocks, count * blocks * 4)
    return uniforms(words).reshape(count, blocks * 4)[:, :each]
