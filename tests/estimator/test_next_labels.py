"""Which to label next: most likely sorted wrong, unlike each other, and never what is answered."""

import numpy as np
import pytest

from semishot import PrototypeClassifier
from semishot.estimator.answers import Answer
from semishot.estimator.next_labels import (
    doubt,
    next_to_label,
    varied,
    worth_asking,
)
from semishot.estimator.spaces import Normalized, mean_direction

CENTERS = np.array([[0.0, 0, 0], [12, 0, 0], [0, 12, 0]])


def blob(center: np.ndarray, count: int, rng: np.random.Generator, spread: float = 0.3):
    return center + spread * rng.normal(size=(count, 3))


def fitted(pile: np.ndarray, rng: np.random.Generator) -> PrototypeClassifier:
    labeled = np.concatenate([blob(center, 3, rng) for center in CENTERS])
    y = np.concatenate([np.repeat([0, 1, 2], 3), np.full(len(pile), -1)])
    classifier = PrototypeClassifier(None, normalize="none", temperature=10.0)
    return classifier.fit(np.concatenate([labeled, pile]), y)


def directions(count: int, seed: int = 0) -> tuple[np.ndarray, Normalized]:
    rows = np.random.default_rng(seed).normal(size=(count, 8)) + 0.5
    return rows, Normalized("centered", mean_direction(rows))


def test_doubt_is_one_minus_the_best_answer_by_literal_loops():
    rng = np.random.default_rng(0)
    classes, log_odds = rng.dirichlet(np.ones(3), 11), rng.normal(0, 4, 11)
    found = doubt(Answer(classes, log_odds))
    for row in range(11):
        none = 1 / (1 + np.exp(-log_odds[row]))
        answers = [none, *((1 - none) * p for p in classes[row])]
        assert found[row] == pytest.approx(1 - max(answers))


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


def test_the_first_questions_add_most_cover_by_literal_loops():
    features, space = directions(19)
    rows = space(features)
    usual = np.mean([((x - y) ** 2).sum() for x in rows for y in rows])
    alike = [[max(0.0, 1 - ((x - y) ** 2).sum() / usual) ** 3 for y in rows] for x in rows]
    covered, expected = [0.0] * 19, []
    for _ in range(4):  # the fifth is one of two that are equally good
        gains = [sum(max(0.0, alike[i][j] - covered[j]) for j in range(19)) for i in range(19)]
        expected.append(int(np.argmax(gains)))
        covered = [max(a, b) for a, b in zip(alike[expected[-1]], covered, strict=True)]
    assert varied(features, space, 4).tolist() == expected


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


def test_unsure_rows_are_asked_about_and_one_of_each_crowd_first():
    rng = np.random.default_rng(0)
    sure = np.concatenate([blob(center, 60, rng) for center in CENTERS])
    crowd, other = blob(CENTERS[:2].mean(0), 20, rng), blob(CENTERS[1:].mean(0), 20, rng)
    pile = np.concatenate([sure, crowd, other])
    classifier = fitted(pile, rng)
    asked = next_to_label(pile, classifier, 2)
    assert sorted((asked - 180) // 20) == [0, 1]


def test_of_one_class_the_question_is_what_belongs_to_it():
    """Between the class and a crowd that is surely none of it."""
    rng = np.random.default_rng(5)
    own, far = blob(CENTERS[0], 60, rng, 1.0), blob(np.full(3, 30.0), 60, rng, 1.0)
    between = blob(np.full(3, 6.0), 10, rng, 1.0)
    pile = np.concatenate([own, far, between])
    classifier = PrototypeClassifier().fit(pile, np.where(np.arange(130) < 5, 0, -1))
    asked = next_to_label(pile[5:], classifier) + 5
    assert (asked >= 120).any()
    assert ((asked >= 60) & (asked < 120)).sum() < len(asked) / 2


def test_what_is_labeled_or_left_out_is_not_asked_about():
    rng = np.random.default_rng(8)
    pile = 12 * rng.random((40, 3))
    classifier = fitted(pile, rng)
    first = next_to_label(pile, classifier)
    again = next_to_label(pile, classifier, labeled=pile[first] + 1e-6)
    assert len(again)
    assert not set(first.tolist()) & set(again.tolist())
    leave_out = np.isin(np.arange(40), [*first, *again])
    third = next_to_label(pile, classifier, leave_out=leave_out)
    assert len(third)
    assert not leave_out[third].any()
