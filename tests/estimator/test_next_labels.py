"""Which to label next: unsure, typical, unlike each other, and not what belongs nowhere."""

import numpy as np
import pytest

from semishot import PrototypeClassifier
from semishot.estimator.next_labels import (
    CANDIDATES,
    COVERED,
    MEMBER,
    next_to_label,
    worth_of_a_label,
)

CENTERS = np.array([[0.0, 0, 0], [12, 0, 0], [0, 12, 0]])


def blob(center: np.ndarray, count: int, rng: np.random.Generator, spread: float = 0.3):
    return center + spread * rng.normal(size=(count, 3))


def fitted(pile: np.ndarray, rng: np.random.Generator) -> PrototypeClassifier:
    labeled = np.concatenate([blob(center, 3, rng) for center in CENTERS])
    y = np.concatenate([np.repeat([0, 1, 2], 3), np.full(len(pile), -1)])
    classifier = PrototypeClassifier(None, normalize="none", temperature=10.0)
    return classifier.fit(np.concatenate([labeled, pile]), y)


def test_the_first_asked_about_is_the_middle_of_the_unsure_crowd_not_a_loner():
    rng = np.random.default_rng(0)
    sure = np.concatenate([blob(center, 60, rng, 1.5) for center in CENTERS])
    crowd, loner = blob(CENTERS[:2].mean(0), 20, rng), CENTERS[1:].mean(0, keepdims=True)
    pile = np.concatenate([sure, crowd, loner])
    classifier = fitted(pile, rng)
    classifier.members_ = None  # which distances are usual is not the question here
    asked = next_to_label(pile, classifier, 2)
    assert 180 <= asked[0] < 200
    assert np.linalg.norm(pile[asked[0]] - crowd.mean(0)) < 0.5
    assert asked[1] == 200  # the crowd is covered now


def test_each_choice_adds_most_cover_by_literal_loops():
    rng = np.random.default_rng(1)
    pile = 12 * rng.random((40, 3))
    classifier = fitted(pile, rng)
    found, prototypes = worth_of_a_label(pile, classifier), classifier.prototypes_
    points = pile / 10**0.5  # over the length, the root of the temperature
    nearest = [min(((x - p) ** 2).sum() for p in prototypes) for x in points]
    reach = sorted(nearest)[19]  # torch's median is the lower one
    expected: list[int] = []
    cover = [np.exp(-d / reach) for d in nearest]
    for worth, count in ((found.unsure, 2), (found.typical, 3)):
        free = [j for j in range(40) if j not in expected]
        for _ in range(count):
            gains = {
                i: sum(
                    worth[j]
                    * max(0.0, np.exp(-((points[i] - points[j]) ** 2).sum() / reach) - cover[j])
                    for j in free
                )
                for i in range(40)
                if i not in expected
            }
            best = max(gains, key=lambda i: gains[i])
            expected.append(best)
            for j in range(40):
                cover[j] = max(cover[j], np.exp(-((points[best] - points[j]) ** 2).sum() / reach))
    assert next_to_label(pile, classifier, 5).tolist() == expected


def test_copies_of_an_image_are_asked_about_once():
    rng = np.random.default_rng(2)
    three = np.array([[6.0, 0, 0], [0, 6, 0], [6, 6, 0]])
    pile = np.repeat(three, 30, axis=0)
    classifier = fitted(pile, rng)
    classifier.members_ = None
    asked = next_to_label(pile, classifier)
    assert sorted(asked // 30) == [0, 1, 2]


def test_what_lies_far_from_every_class_is_not_asked_about():
    rng = np.random.default_rng(3)
    members = np.concatenate([blob(center, 40, rng, 2.0) for center in CENTERS])
    far = blob(np.array([40.0, 40, 40]), 60, rng)  # as near to one class as to another
    pile = np.concatenate([members, far])
    asked = next_to_label(pile, fitted(pile, rng))
    assert len(asked) == 10
    assert (asked >= 120).sum() <= 1  # one of the crowd: what is that?


@pytest.mark.parametrize("count", [0, 1, 3, CANDIDATES - 1, CANDIDATES + 1, 3 * COVERED + 7])
def test_any_size_of_pile_gives_distinct_places(count):
    rng = np.random.default_rng(4)
    pile = 12 * rng.random((count, 3))
    asked = next_to_label(pile, fitted(12 * rng.random((30, 3)), rng))
    assert len(set(asked.tolist())) == len(asked) <= min(10, count)
    assert count < 10 or len(asked) == 10
    assert all(0 <= place < count for place in asked)


def test_of_one_class_the_question_is_what_belongs_to_it():
    """Between the class and a crowd that is surely none of it."""
    rng = np.random.default_rng(5)
    own, far = blob(CENTERS[0], 60, rng, 1.0), blob(np.full(3, 30.0), 60, rng, 1.0)
    between = blob(np.full(3, 6.0), 10, rng, 1.0)
    pile = np.concatenate([own, far, between])
    classifier = PrototypeClassifier().fit(pile, np.where(np.arange(130) < 5, 0, -1))
    asked = next_to_label(pile[5:], classifier) + 5
    assert len(asked)
    assert not ((asked >= 60) & (asked < 120)).any()


def test_worth_is_the_entropy_of_the_answer_by_literal_loops():
    rng = np.random.default_rng(7)
    pile = 12 * rng.random((15, 3))
    classifier = fitted(pile, rng)
    worth = worth_of_a_label(pile, classifier)
    probabilities, strangers = classifier.predict_proba(pile), classifier.stranger_proba(pile)
    scores = classifier.distractor_score(pile)
    for row in range(15):
        s = strangers[row]
        outcomes = [s, *((1 - s) * q for q in probabilities[row])]
        expected = -sum(p * np.log(p) for p in outcomes if p > 0) + MEMBER * (1 - s)
        assert worth.unsure[row] == pytest.approx(expected, abs=1e-6)
        entropy = -sum(q * np.log(q) for q in probabilities[row] if q > 0)
        assert worth.typical[row] == pytest.approx(entropy * (1 - scores[row]), abs=1e-6)


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
