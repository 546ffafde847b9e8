"""Which to label next: what is nearly undecided, unlike each other, and never what is answered."""

import numpy as np
import pytest

from semishot import PrototypeClassifier
from semishot.estimator.next_labels import (
    next_to_label,
    question_worth,
    worth_asking,
)
from semishot.estimator.spaces import Space, fit_space

CENTERS = np.array([[0.0, 0, 0], [12, 0, 0], [0, 12, 0]])


def blob(center: np.ndarray, count: int, rng: np.random.Generator, spread: float = 0.3):
    return center + spread * rng.normal(size=(count, 3))


def fitted(pile: np.ndarray, rng: np.random.Generator) -> PrototypeClassifier:
    labeled = np.concatenate([blob(center, 3, rng) for center in CENTERS])
    y = np.concatenate([np.repeat([0, 1, 2], 3), np.full(len(pile), -1)])
    classifier = PrototypeClassifier(None, normalize="none", temperature=10.0)
    return classifier.fit(np.concatenate([labeled, pile]), y)


def directions(count: int, seed: int = 0) -> tuple[np.ndarray, Space]:
    rows = np.random.default_rng(seed).normal(size=(count, 8)) + 0.5
    return rows, fit_space(rows, "centered", np.ones(count, bool))


def test_the_worth_of_a_question_by_literal_loops():
    joint = np.random.default_rng(0).dirichlet(np.full(4, 0.5), 31)
    found = question_worth(joint)
    for row, probabilities in enumerate(joint.tolist()):
        second, first = sorted(probabilities)[-2:]
        assert found[row] == pytest.approx(1 - first + second)


def test_each_choice_is_of_most_worth_left_by_literal_loops():
    features, space = directions(23)
    worth = np.random.default_rng(1).random(23)
    rows = space(features)
    pairs = [((x - y) ** 2).sum() for x in rows for y in rows]
    usual, expected = np.mean(pairs), []
    for _ in range(6):
        left = {}
        for row in set(range(23)) - set(expected):
            apart = [((rows[row] - rows[other]) ** 2).sum() / usual for other in expected]
            left[row] = worth[row] * (1 - max([0.0, *(1 - d for d in apart)]) ** 3)
        expected.append(max(left, key=left.__getitem__))
    assert worth_asking(features, space, worth, 6).tolist() == expected


def test_kept_questions_come_first_and_count_as_chosen():
    features, space = directions(30)
    worth = np.random.default_rng(4).random(30)
    both = np.concatenate([features, features[:1]])  # row 30 is a copy of row 0
    worth = np.append(worth, 1.0)
    kept = [0, 7]
    found = worth_asking(both, space, worth, 5, kept=kept).tolist()
    assert found[:2] == kept
    assert len(set(found)) == 5
    assert 30 not in found
    assert worth_asking(both, space, worth, 2, kept=[3, 0, 7]).tolist() == [3, 0]
    assert worth_asking(both, space, 0 * worth, 5, kept=kept).tolist() == kept


def test_rows_between_two_classes_are_asked_about_and_one_of_each_crowd_first():
    rng = np.random.default_rng(0)
    sure = np.concatenate([blob(center, 60, rng) for center in CENTERS])
    crowd, other = blob(CENTERS[:2].mean(0), 6, rng), blob(CENTERS[1:].mean(0), 6, rng)
    pile = np.concatenate([sure, crowd, other])
    asked = next_to_label(pile, fitted(pile, rng), 2)
    assert sorted((asked - 180) // 6) == [0, 1]


def test_where_nothing_is_worth_a_question_none_is_asked():
    rng = np.random.default_rng(3)
    pile = np.concatenate([blob(center, 60, rng) for center in CENTERS])
    assert len(next_to_label(pile, fitted(pile, rng))) == 0


def test_what_is_labeled_or_left_out_is_not_asked_about():
    rng = np.random.default_rng(8)
    pile = 12 * rng.random((40, 3))
    classifier = fitted(pile, rng)
    first = next_to_label(pile, classifier, 2)
    again = next_to_label(pile, classifier, 2, labeled=pile[first] + 1e-6)
    assert len(again)
    assert not set(first.tolist()) & set(again.tolist())
    leave_out = np.isin(np.arange(40), [*first, *again])
    third = next_to_label(pile, classifier, leave_out=leave_out)
    assert len(third)
    assert not leave_out[third].any()
