"""Every promise of an episode: who is in it, in which order, how often, and at which address."""

from collections import Counter
from dataclasses import replace
from itertools import permutations, product

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


def split(shared: bool) -> ClassImages:
    return (
        all_labeled(image_classes(*COUNTS))
        if shared
        else labeled_split(image_classes(*COUNTS), 0.35, seed=1)
    )


def draw(
    images: ClassImages,
    count: int = 300,
    shape: EpisodeShape = SHAPE,
    seed: int = 2,
    start: int = 0,
) -> Episodes:
    return sample_episodes(images, shape, Stream(seed, "train"), start, count)


both = pytest.mark.parametrize("shared", [False, True], ids=["labeled split", "all labeled"])
CLASS_OF = np.repeat(np.arange(len(COUNTS)), COUNTS)  # image -> its class


def same(one: Episodes, other: Episodes) -> bool:
    return all(
        np.array_equal(getattr(one, part), getattr(other, part))
        for part in ("support", "unlabeled", "query", "classes")
    )


def test_sizes_are_nk_and_m_times_n_plus_h_and_nq():
    assert SHAPE.sizes == (N * K, M * (N + H), N * Q)
    assert SHAPE.images == N * K + M * (N + H) + N * Q
    drawn = draw(split(False), count=7)
    assert drawn.support.shape == (7, N * K)
    assert drawn.unlabeled.shape == (7, M * (N + H))
    assert drawn.query.shape == (7, N * Q)
    assert drawn.classes.shape == (7, N + H)


def test_images_are_support_then_unlabeled_then_query():
    drawn = draw(split(False), count=7)
    for e in range(7):
        expected = [*drawn.support[e], *drawn.unlabeled[e], *drawn.query[e]]
        assert drawn.images[e].tolist() == expected


@both
def test_images_come_class_by_class(shared):
    """Support s has label s // K, query q label q // Q; unlabeled u is of class u // M."""
    drawn = draw(split(shared))
    for e in range(len(drawn.classes)):
        local = drawn.classes[e]
        for s, image in enumerate(drawn.support[e]):
            assert CLASS_OF[image] == local[s // K]
        for q, image in enumerate(drawn.query[e]):
            assert CLASS_OF[image] == local[q // Q]
        for u, image in enumerate(drawn.unlabeled[e]):
            assert CLASS_OF[image] == local[u // M]


@both
def test_support_unlabeled_and_query_are_disjoint(shared):
    drawn = draw(split(shared))
    for row in drawn.images:
        assert len(set(row.tolist())) == SHAPE.images


@both
def test_distractor_classes_are_disjoint_from_the_n(shared):
    drawn = draw(split(shared))
    for row in drawn.classes:
        assert len(set(row.tolist())) == N + H
        assert set(row.tolist()) <= set(range(len(COUNTS)))


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


def test_without_a_split_every_image_plays_every_part():
    drawn = draw(split(True), count=2000)
    everything = set(range(sum(COUNTS)))
    for part in (drawn.support, drawn.unlabeled, drawn.query):
        assert set(part.ravel().tolist()) == everything


@both
def test_a_class_may_be_used_to_its_last_image(shared):
    some = image_classes(4, 6, 5)
    images = all_labeled(some) if shared else labeled_split(some, 0.5, seed=3)
    shape = EpisodeShape(way=3, shot=1, query=1, unlabeled=2)
    drawn = draw(images, 50, shape)
    assert all(len(set(row.tolist())) == shape.images for row in drawn.images)


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
def test_other_seeds_and_purposes_and_places_are_other_episodes(shared):
    images = split(shared)
    drawn = [
        sample_episodes(images, SHAPE, Stream(seed, purpose), start, 5).images.tobytes()
        for seed, purpose, start in product((0, 1), ("train", "val", "test"), (0, 5))
    ]
    assert len(set(drawn)) == len(drawn)


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


def test_no_unlabeled_images_is_an_empty_pile():
    drawn = draw(split(False), 4, EpisodeShape(N, K, Q, unlabeled=0, distractors=0))
    assert drawn.unlabeled.shape == (4, 0)


GROUPS = ["b", "c", "a", "b", "d", "a", "b", "c", "a", "b", "a"]  # four a, four b, two c, one d
WITHIN = EpisodeShape(way=2, shot=1, query=2, unlabeled=3, distractors=1, within_group=True)


def grouped(shared: bool) -> ClassImages:
    some = [
        replace(c, group=group) for c, group in zip(image_classes(*COUNTS), GROUPS, strict=True)
    ]
    return all_labeled(some) if shared else labeled_split(some, 0.35, seed=1)


@both
def test_within_a_group_all_classes_and_images_are_of_one_group(shared):
    drawn = draw(grouped(shared), shape=WITHIN)
    for chosen, images in zip(drawn.classes, drawn.images, strict=True):
        assert len(set(chosen.tolist())) == 3
        assert len({GROUPS[c] for c in chosen}) == 1
        assert {GROUPS[CLASS_OF[i]] for i in images} == {GROUPS[chosen[0]]}
        assert len(set(images.tolist())) == WITHIN.images
    assert {GROUPS[c] for c in drawn.classes.ravel()} == {"a", "b"}  # c and d have too few classes


def test_within_a_group_every_class_that_may_be_drawn_is_as_likely_in_every_place():
    counts = Counter(GROUPS)
    for need, able in ((3, "ab"), (2, "abc")):
        shape = replace(WITHIN, distractors=need - 2)
        allowed = [c for c, group in enumerate(GROUPS) if group in able]
        assert all((counts[group] >= need) == (group in able) for group in counts)
        for place in draw(grouped(True), count=6000, shape=shape).classes.T:
            assert set(place.tolist()) == set(allowed)
            assert stats.chisquare(np.bincount(place, minlength=11)[allowed]).pvalue > P


@both
@pytest.mark.parametrize("chunk", [1, 7])
def test_within_a_group_the_address_says_it_all(shared, chunk):
    images = grouped(shared)
    whole = draw(images, count=14, shape=WITHIN, start=5)
    for first in range(0, 14, chunk):
        part = draw(images, count=chunk, shape=WITHIN, start=5 + first)
        assert np.array_equal(part.images, whole.images[first : first + chunk])
    more = draw(images, count=14, shape=replace(WITHIN, unlabeled=4), start=5)
    assert np.array_equal(more.support, whole.support)
    assert np.array_equal(more.classes[:, :2], whole.classes[:, :2])


def test_one_group_of_all_classes_is_no_group():
    """Where all classes are of one group, within it or across are the same episodes."""
    assert same(draw(split(True)), draw(split(True), shape=replace(SHAPE, within_group=True)))


def test_no_group_has_enough_classes():
    line = complaint(grouped(True), replace(WITHIN, distractors=3))
    assert "the largest group, 'b', has 4 classes but an episode within a group needs 2 + 3" in line
    assert "lower --way or --distractors, or drop --within-group" in line
    check_enough(grouped(True), replace(WITHIN, distractors=2))


def uniform(values: np.ndarray, among: int) -> None:
    assert stats.chisquare(np.bincount(values, minlength=among)).pvalue > P


@both
def test_every_class_is_as_likely_in_every_place(shared):
    drawn = draw(split(shared), count=5000)
    for place in drawn.classes.T:
        uniform(place, len(COUNTS))


@both
def test_every_pair_of_class_and_distractor_is_as_likely(shared):
    drawn = draw(split(shared), count=8000)
    table = np.zeros((len(COUNTS), len(COUNTS)))
    np.add.at(table, (drawn.classes[:, 0], drawn.classes[:, N]), 1)
    assert table.diagonal().sum() == 0
    assert stats.chisquare(table[~np.eye(len(COUNTS), dtype=bool)]).pvalue > P


@both
def test_every_image_of_a_class_is_as_likely_in_every_part(shared):
    images, drawn = split(shared), draw(split(shared), count=15_000)
    for part, each in ((drawn.support, K), (drawn.query, Q), (drawn.unlabeled, M)):
        for column in (0, each - 1, part.shape[1] - 1):
            of_class = part[CLASS_OF[part[:, column]] == 4, column]
            allowed = images.order[images.start[4] : images.start[4] + images.size[4]]
            if not shared:
                cut = images.labeled[4]
                allowed = allowed[cut:] if part is drawn.unlabeled else allowed[:cut]
            place = {int(image): i for i, image in enumerate(allowed)}
            uniform(np.array([place[int(image)] for image in of_class]), len(allowed))


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


@pytest.mark.parametrize("extreme", [0.0, 1 - 2**-53])
def test_distinct_at_the_ends_of_the_unit_interval(extreme):
    drawn = distinct(np.full((1, 5), extreme), 5)
    assert sorted(drawn[0].tolist()) == [0, 1, 2, 3, 4]


def test_distinct_maps_a_grid_of_uniforms_to_every_ordered_pair_once():
    """(i + 1/2) / 5 and (j + 1/2) / 4 are 20 equally likely cells: one for each ordered pair."""
    grid = np.array([[(i + 0.5) / 5, (j + 0.5) / 4] for i in range(5) for j in range(4)])
    drawn = [tuple(pair) for pair in distinct(grid, 5).tolist()]
    assert sorted(drawn) == sorted(permutations(range(5), 2))


def test_distinct_is_uniform_over_ordered_pairs_of_what_is_not_taken():
    u = np.random.default_rng(4).random((20_000, 2))
    taken = np.broadcast_to(np.array([4, 1]), (20_000, 2))
    drawn = [tuple(pair) for pair in distinct(u, 6, taken).tolist()]
    pairs = list(permutations([0, 2, 3, 5], 2))
    assert set(drawn) == set(pairs)
    assert stats.chisquare([drawn.count(pair) for pair in pairs]).pvalue > P


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


def complaint(images: ClassImages, shape: EpisodeShape) -> str:
    with pytest.raises(InputError) as caught:
        check_enough(images, shape)
    with pytest.raises(InputError) as again:  # before any work
        sample_episodes(images, shape, Stream(0, "train"), 0, 10**9)
    assert str(caught.value) == str(again.value)
    return str(caught.value)


def test_too_few_classes():
    line = complaint(split(False), EpisodeShape(way=7, distractors=5))
    assert "11 classes but an episode needs 7 + 5 distractor classes" in line
    assert "lower --way or --distractors" in line
    check_enough(split(False), EpisodeShape(way=6, distractors=5))


def test_too_few_labeled_images():
    images = labeled_split(image_classes(30, 20, 40), 0.1, seed=0)
    line = complaint(images, EpisodeShape(way=2, shot=1, query=2))
    assert "class 'class1' has 2 labeled images but an episode needs 1 support + 2 query;" in line
    assert "lower --shot or --query, or raise --labeled-fraction (now 0.1)" in line
    check_enough(images, EpisodeShape(way=2, shot=1, query=1))


def test_too_few_images_for_all_three_parts():
    images = all_labeled(image_classes(30, 40, 20))
    line = complaint(images, EpisodeShape(way=2, shot=1, query=14, unlabeled=6))
    assert (
        "class 'class2' has 20 images but an episode needs "
        "1 support + 14 query + 6 unlabeled; lower --shot, --query or --unlabeled" in line
    )
    assert "--labeled-fraction" not in line  # all its images are labeled
    check_enough(images, EpisodeShape(way=2, shot=1, query=14, unlabeled=5))


def test_too_few_unlabeled_images():
    images = labeled_split(image_classes(30, 20, 40), 0.5, seed=0)
    line = complaint(images, EpisodeShape(way=2, unlabeled=11))
    assert "class 'class1' has 10 unlabeled images but an episode needs 11" in line
    assert "lower --unlabeled or --labeled-fraction (now 0.5)" in line
    check_enough(images, EpisodeShape(way=2, unlabeled=10))
