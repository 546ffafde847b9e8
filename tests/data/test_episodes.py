"""Every promise of an episode: who is in it, in which order, how often, and at which address."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

from semishot.data.episodes import (
    Episodes,
    EpisodeShape,
    Stream,
    check_enough,
    distinct,
    sample_episodes,
)
from semishot.data.splits import ClassImages, all_labeled, labeled_split
from semishot.errors import InputError
from support.pools import image_classes

N, K, Q, M, H = 3, 2, 4, 5, 6
SHAPE = EpisodeShape(way=N, shot=K, query=Q, unlabeled=M, distractors=H)
COUNTS = [20, 31, 23, 26, 22, 28, 25, 21, 30, 24, 27]
P = 1e-4


def split(shared: bool, *groups: str) -> ClassImages:
    classes = image_classes(*COUNTS)
    classes = [replace(c, group=g) for c, g in zip(classes, groups or COUNTS, strict=True)]
    return all_labeled(classes) if shared else labeled_split(classes, 0.35, seed=1)


def draw(images: ClassImages, count: int = 300, shape=SHAPE, start: int = 0) -> Episodes:
    return sample_episodes(images, shape, Stream(2, "train"), start, count)


both = pytest.mark.parametrize("shared", [False, True], ids=["labeled split", "all labeled"])
CLASS_OF = np.repeat(np.arange(len(COUNTS)), COUNTS)  # image -> its class


@both
def test_images_are_distinct_and_come_class_by_class(shared):
    """Support s has label s // K, query q label q // Q; unlabeled u is of class u // M."""
    drawn = draw(split(shared))
    for e in range(300):
        local = drawn.classes[e]
        assert len(set(local.tolist())) == N + H  # distractor classes are others
        assert len(set(drawn.images[e].tolist())) == N * K + M * (N + H) + N * Q
        for s, image in enumerate(drawn.support[e]):
            assert CLASS_OF[image] == local[s // K]
        for q, image in enumerate(drawn.query[e]):
            assert CLASS_OF[image] == local[q // Q]
        for u, image in enumerate(drawn.unlabeled[e]):
            assert CLASS_OF[image] == local[u // M]


def test_labeled_images_never_appear_as_unlabeled_and_the_reverse():
    images = split(False)
    labeled, unlabeled = set(), set()
    for c in range(len(COUNTS)):
        first, middle = images.start[c], images.start[c] + images.labeled[c]
        labeled |= set(images.order[first:middle].tolist())
        unlabeled |= set(images.order[middle : first + images.size[c]].tolist())
    drawn = draw(images, count=2000)
    assert set(drawn.support.ravel().tolist()) == labeled
    assert set(drawn.query.ravel().tolist()) == labeled
    assert set(drawn.unlabeled.ravel().tolist()) == unlabeled


@both
@pytest.mark.parametrize("chunk", [1, 4, 7, 30])
def test_same_address_same_episode_whatever_the_chunking(shared, chunk):
    images, whole = split(shared), draw(split(shared), count=30, start=11)
    for first in range(0, 30, chunk):
        count = min(chunk, 30 - first)
        part = draw(images, count=count, start=11 + first)
        rows = slice(first, first + count)
        assert np.array_equal(part.images, whole.images[rows])
        assert np.array_equal(part.classes, whole.classes[rows])


@both
def test_changing_m_or_h_leaves_the_rest_as_it_was(shared):
    images, reference = split(shared), draw(split(shared))
    for m, h in product((0, 1, 3, M), (0, 2, H)):
        drawn = draw(images, shape=EpisodeShape(N, K, Q, m, h))
        assert np.array_equal(drawn.support, reference.support)
        assert np.array_equal(drawn.query, reference.query)
        assert np.array_equal(drawn.classes[:, :N], reference.classes[:, :N])
        if m == M:
            assert np.array_equal(drawn.unlabeled[:, : N * M], reference.unlabeled[:, : N * M])


GROUPS = ["b", "c", "a", "b", "d", "a", "b", "c", "a", "b", "a"]  # four a, four b, two c, one d
WITHIN = EpisodeShape(way=2, shot=1, query=2, unlabeled=3, distractors=1, within_group=True)


@both
def test_within_a_group_all_classes_and_images_are_of_one_group(shared):
    drawn = draw(split(shared, *GROUPS), shape=WITHIN)
    for chosen, images in zip(drawn.classes, drawn.images, strict=True):
        assert len(set(chosen.tolist())) == 3
        assert len({GROUPS[c] for c in chosen}) == 1
        assert {GROUPS[CLASS_OF[i]] for i in images} == {GROUPS[chosen[0]]}
        assert len(set(images.tolist())) == WITHIN.images
    assert {GROUPS[c] for c in drawn.classes.ravel()} == {"a", "b"}  # c and d have too few classes


def uniform(values: np.ndarray, among: int) -> None:
    assert stats.chisquare(np.bincount(values, minlength=among)).pvalue > P


@both
def test_every_class_is_as_likely_in_every_place(shared):
    drawn = draw(split(shared), count=5000)
    for place in drawn.classes.T:
        uniform(place, len(COUNTS))


def literal_distinct(u: list[float], among: int, taken: list[int]) -> list[int]:
    """One draw after the other, each from a list of what is left."""
    gone, drawn = list(taken), []
    for value in u:
        free = [number for number in range(among) if number not in gone]
        drawn.append(free[int(value * len(free))])
        gone.append(drawn[-1])
    return drawn


@pytest.mark.parametrize("j", [0, 3])
def test_distinct_matches_literal_loops(j):
    generator = np.random.default_rng(3)
    u = generator.random((6, 2, 4))
    among = generator.integers(j + 4, 12, (6, 2))
    taken = np.array([[generator.permutation(among[a, b])[:j] for b in range(2)] for a in range(6)])
    drawn = distinct(u, among, taken if j else None)
    for a, b in product(range(6), range(2)):
        expected = literal_distinct(u[a, b].tolist(), int(among[a, b]), taken[a, b].tolist())
        assert drawn[a, b].tolist() == expected


@pytest.mark.parametrize(
    ("field", "low"),
    [("way", 2), ("shot", 1), ("query", 1), ("unlabeled", 0), ("distractors", 0)],
)
def test_an_episode_shape_has_a_least_size(field, low):
    assert getattr(EpisodeShape(**{field: low}), field) == low
    with pytest.raises(
        InputError, match=f"an episode's {field} must be at least {low}, not {low - 1}"
    ):
        EpisodeShape(**{field: low - 1})


TWO = {"way": 2, "shot": 1}
SHORTAGES = {
    "classes": (
        split(False),
        EpisodeShape(way=7, distractors=5),
        "the split has 11 classes but an episode needs 7 + 5 distractor classes; "
        "lower --way or --distractors",
        EpisodeShape(way=6, distractors=5),
    ),
    "classes of a group": (
        split(True, *GROUPS),
        replace(WITHIN, distractors=3),
        "the largest group, 'b', has 4 classes but an episode within a group needs 2 + 3 distractor "
        "classes; lower --way or --distractors, or drop --within-group",
        replace(WITHIN, distractors=2),
    ),
    "labeled images": (
        labeled_split(image_classes(30, 20, 40), 0.1, seed=0),
        EpisodeShape(**TWO, query=2),
        "class 'class1' has 2 labeled images but an episode needs 1 support + 2 query; "
        "lower --shot or --query, or raise --labeled-fraction (now 0.1)",
        EpisodeShape(**TWO, query=1),
    ),
    "images": (
        all_labeled(image_classes(30, 40, 20)),
        EpisodeShape(**TWO, query=14, unlabeled=6),
        "class 'class2' has 20 images but an episode needs 1 support + 14 query + 6 unlabeled; "
        "lower --shot, --query or --unlabeled",
        EpisodeShape(**TWO, query=14, unlabeled=5),
    ),
    "unlabeled images": (
        labeled_split(image_classes(30, 20, 40), 0.5, seed=0),
        EpisodeShape(**TWO, unlabeled=11),
        "class 'class1' has 10 unlabeled images but an episode needs 11; "
        "lower --unlabeled or --labeled-fraction (now 0.5)",
        EpisodeShape(**TWO, unlabeled=10),
    ),
}
"""A split, a shape that needs more than it has, the error, and a shape that does not."""


@pytest.mark.parametrize("lacking", SHORTAGES)
def test_a_shortage_is_an_error_before_any_work(lacking):
    images, shape, line, enough = SHORTAGES[lacking]
    with pytest.raises(InputError) as caught:
        sample_episodes(images, shape, Stream(0, "train"), 0, 10**9)
    assert str(caught.value) == line
    check_enough(images, enough)
