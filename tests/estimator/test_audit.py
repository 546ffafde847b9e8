"""The certificate: exact, whenever one stops; checked by enumeration and by simulated audits."""

from itertools import permutations

import numpy as np
import pytest

from semishot.errors import InputError
from semishot.estimator.audit import audit_order, most_wrong


def literal_bound(size: int, looked: int, wrong: int, confidence: float) -> int:
    """Probabilities of the order of answers by their factors, one r after another."""

    def chance(r: int) -> float:
        product = 1.0
        for number in range(wrong):
            product *= max(0, r - number)
        for number in range(looked - wrong):
            product *= max(0, size - r - number)
        return product

    possible = []
    for r in range(size + 1):
        if chance(r) == 0:
            continue
        weights = [(s + 0.5) ** -0.5 for s in range(r)]
        mixed = sum(g * chance(s) for s, g in enumerate(weights))
        if r == 0 or mixed / sum(weights) / chance(r) < 1 / (1 - confidence):
            possible.append(r)
    return max(possible)


@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_the_bound_by_literal_loops(confidence):
    for size in range(1, 12):
        for looked in range(size + 1):
            for wrong in range(looked + 1):
                expected = literal_bound(size, looked, wrong, confidence)
                assert most_wrong(size, looked, wrong, confidence) == expected


@pytest.mark.parametrize("wrong", range(7))
def test_over_all_orders_the_bound_ever_fails_as_rarely_as_promised(wrong):
    """Exactly, of a small pile: every order is equally probable."""
    outcomes = [True] * wrong + [False] * (6 - wrong)
    failed = [
        any(most_wrong(6, n, sum(order[:n]), 0.8) < wrong for n in range(7))
        for order in permutations(outcomes)
    ]
    assert np.mean(failed) <= 0.2


def test_what_a_person_gets_for_their_time():
    assert most_wrong(1000, 60, 0) <= 60  # at least 94 % right
    assert most_wrong(100_000, 300, 6) <= 5500
    assert most_wrong(50, 0, 0) == 50
    assert [most_wrong(9, 9, w) for w in range(10)] == list(range(10))


def test_the_order_is_a_matter_of_seed_and_number_alone():
    images = np.arange(3, 400, 7)
    order = audit_order(images, 5)
    assert sorted(order) == images.tolist()
    assert order.tolist() == audit_order(images[::-1], 5).tolist()
    some = order[::3]
    assert audit_order(some, 5).tolist() == some.tolist()  # others do not matter
    assert order.tolist() != audit_order(images, 6).tolist()
    assert audit_order([], 5).tolist() == []


def test_counts_that_contradict_each_other_are_refused():
    for size, looked, wrong in ((5, 6, 0), (5, 3, 4), (5, 3, -1)):
        with pytest.raises(InputError, match="0 <= wrong <= looked <= size"):
            most_wrong(size, looked, wrong)
