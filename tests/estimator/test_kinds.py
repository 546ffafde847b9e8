"""Kinds without a name: what looks alike is proposed, what has a name or is alone is not."""

import numpy as np
import pytest

from semishot import PrototypeClassifier
from semishot.estimator.kinds import LANDMARKS, LEAST, find_kinds
from semishot.estimator.spaces import fit_space


def crowds(sizes, seed=0, features=40, spread=0.6):
    """Rows around random directions, and the number of each one's crowd."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(len(sizes), features))
    truth = np.repeat(np.arange(len(sizes)), sizes)
    rows = centers[truth] + spread * rng.normal(size=(len(truth), features))
    order = rng.permutation(len(truth))
    return rows[order].astype(np.float32), truth[order]


def space_of(rows):
    return fit_space(rows, "auto", np.ones(len(rows), bool))


def test_crowds_are_found_whole_and_the_largest_comes_first():
    rows, truth = crowds([12, 30, 7, 21])
    kinds = find_kinds(rows, space_of(rows))
    assert [len(kind.rows) for kind in kinds] == [30, 21, 12, 7]
    assert all(len(set(truth[kind.rows])) == 1 for kind in kinds)


def test_the_most_typical_row_is_the_nearest_to_the_middle():
    rows, _ = crowds([15, 24])
    space = space_of(rows)
    for kind in find_kinds(rows, space):
        own = space(rows[kind.rows])
        cosines = own @ own.mean(0)
        assert (np.diff(cosines) <= 1e-6).all()
        assert kind.typical.tolist() == kind.rows[:8].tolist()


def test_only_likely_strangers_are_grouped():
    rows, truth = crowds([15, 15, 15])
    stranger = np.select([truth == 0, truth == 1], [0.9, 0.25], 0.05)
    kinds = find_kinds(rows, space_of(rows), stranger)
    assert [set(truth[kind.rows]) for kind in kinds] == [{0}]
    assert find_kinds(rows, space_of(rows), np.full(45, np.nan)) == []


def test_the_order_of_rows_does_not_matter():
    rows, _ = crowds([12, 30, 7, 21], spread=1.5)
    order = np.random.default_rng(1).permutation(len(rows))
    before = {frozenset(kind.rows.tolist()) for kind in find_kinds(rows, space_of(rows))}
    after = find_kinds(rows[order], space_of(rows))
    assert {frozenset(order[kind.rows].tolist()) for kind in after} == before


def test_of_many_rows_all_join_their_kind():
    rows, truth = crowds([LANDMARKS, 3000, 5000], features=64)
    kinds = find_kinds(rows, space_of(rows))
    for kind, size in zip(kinds, (5000, 3000, LANDMARKS), strict=True):
        assert len(set(truth[kind.rows])) == 1
        assert len(kind.rows) > 0.85 * size


@pytest.mark.parametrize("count", [0, 1, LEAST - 1, LEAST])
def test_a_few_copies(count):
    rows = np.ones((count, 40), np.float32)
    kinds = find_kinds(rows, fit_space(rows, "unit", np.ones(count, bool)))
    assert [len(kind.rows) for kind in kinds] == [LEAST] * (count == LEAST)


def test_the_classifier_proposes_a_crowd_that_nobody_has_named():
    rows, truth = crowds([40, 40, 30], seed=5)
    labels = np.full(len(truth), -1)
    for name in (0, 1):
        labels[np.flatnonzero(truth == name)[:3]] = name
    kind = PrototypeClassifier().fit(rows, labels).kinds_[0]
    assert set(truth[kind.rows]) == {2}
    assert len(kind.rows) >= 20
