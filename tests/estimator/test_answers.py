"""What follows from the probabilities: sums, cutoffs, counts; recomputed with plain loops."""

import numpy as np
import pytest

from semishot import PrototypeClassifier
from semishot.estimator.answers import Answer, count_strangers, cutoff_of, doubts
from support.piles import pile

P, N = 23, 3


def answer(seed=0, rows=P):
    rng = np.random.default_rng(seed)
    return Answer(rng.dirichlet(np.ones(N), rows), rng.normal(-1, 2, rows))


def test_the_decision_is_the_most_probable_of_all_by_literal_loops():
    given = answer()
    for row in range(P):
        stranger = 1 / (1 + np.exp(-given.log_odds[row]))
        all_of_them = [*((1 - stranger) * p for p in given.classes[row]), stranger]
        assert sum(all_of_them) == pytest.approx(1)
        out = given.strangers(None)[row]
        assert out == (max(range(N + 1), key=all_of_them.__getitem__) == N)
        assert given.strangers(0.3)[row] == (stranger > 0.3)
        for put_out in (True, False):
            right = stranger if put_out else max(all_of_them[:N])
            assert given.wrong(np.full(P, put_out))[row] == pytest.approx(1 - right)


@pytest.mark.parametrize("reject", [0.01, 0.05, 0.3])
def test_a_cutoff_loses_that_share_of_the_members(reject):
    """As many rows are put out as lose no more than the share; one more would lose more."""
    rng = np.random.default_rng(1)
    stranger = rng.uniform(0.03, 0.85, 400)  # neither bound is met
    cutoff = cutoff_of(stranger, reject)
    lost = [1 - s for s in stranger if s > cutoff]
    members = sum(1 - s for s in stranger)
    assert sum(lost) <= reject * members
    assert sum(lost) + max(1 - s for s in stranger if s == cutoff) > reject * members


def test_no_cutoff_keeps_what_is_surely_strange_or_puts_out_what_is_surely_not():
    rng = np.random.default_rng(2)
    for stranger in (rng.uniform(0, 0.01, 50), rng.uniform(0.95, 1, 50), rng.random(50), []):
        for reject in (1e-4, 0.05, 0.9, 0.999):
            cutoff = cutoff_of(np.array(stranger), reject)
            assert 0.02 <= cutoff <= 0.9


@pytest.mark.parametrize("doubt", [0.0, 0.5, 1.5])
def test_an_interval_covers_what_is_counted_if_probabilities_are_true(doubt):
    rng, held = np.random.default_rng(3), 0
    for _ in range(400):
        log_odds = rng.normal(-1, 2, 150)
        truth = rng.random(150) < 1 / (1 + np.exp(-log_odds - doubt * rng.normal()))
        count = count_strangers(log_odds, doubt)
        held += count.low <= truth.sum() <= count.high
    assert 0.85 <= held / 400 <= 0.97
    assert count.expected == pytest.approx(sum(1 / (1 + np.exp(-each)) for each in log_odds))


def test_the_interval_of_nothing_and_of_what_is_certain():
    assert count_strangers(np.zeros(0), 1.0) == (0, 0, 0)
    assert count_strangers(np.full(50, -30.0), 1.0)[1:] == pytest.approx((0, 0), abs=1e-6)
    assert count_strangers(np.full(50, 30.0), 1.0)[1:] == pytest.approx((50, 50), abs=1e-6)


def test_a_contradicted_label_is_named_the_strongest_contradiction_first():
    classes = np.array([[0.9, 0.1], [0.995, 0.005], [0.001, 0.999], [0.5, 0.5], [0.95, 0.05]])
    answer = Answer(classes, np.array([-9.0, -9, -9, 6, -9]))
    given = np.array([0, 1, 0, 0, 1])
    found = doubts(answer, 10 + np.arange(5), given)
    assert [each[:3] for each in found] == [(12, 0, 1), (13, 0, -1), (11, 1, 0)]
    for doubt in found:
        own, other = (answer.joint[doubt.row - 10, each] for each in (doubt.given, doubt.suggested))
        assert doubt.probability == pytest.approx(other / (own + other))


@pytest.mark.parametrize("reject", [None, "auto", 0.05, 0.3])
def test_all_sums_of_a_classifier_are_over_its_probabilities(reject):
    x, y, _ = pile(named=2, shot=4)
    fitted = PrototypeClassifier(reject=reject).fit(x, y)
    unlabeled = y == -1
    stranger, out = fitted.stranger_proba_[unlabeled], (fitted.transduction_ == -1)[unlabeled]
    best = fitted.label_distributions_[unlabeled].max(1)
    assert fitted.n_strangers_.expected == pytest.approx(stranger.sum())
    assert fitted.n_strangers_.low <= stranger.sum() <= fitted.n_strangers_.high
    assert fitted.missed_strangers() == pytest.approx(stranger[~out].sum())
    right = np.where(out, stranger, (1 - stranger) * best)
    assert fitted.likely_wrong() == pytest.approx((1 - right).sum())
    if reject == "auto":
        assert (out == (stranger > (1 - stranger) * best)).all()
    elif reject is None:
        assert not out.any()
    else:
        assert stranger[out].min(initial=1) >= 0.02
        assert stranger[~out].max() <= 0.9
        assert fitted.cutoff_ == cutoff_of(stranger, reject)


def test_what_is_known_of_a_row_stays_as_the_user_said():
    x, y, _ = pile(named=3, shot=4)
    fitted = PrototypeClassifier(reject="auto").fit(x, y)
    assert (fitted.transduction_[y >= 0] == y[y >= 0]).all()
    assert (fitted.transduction_[y == -2] == -1).all()
    assert fitted.stranger_proba_[y == -2].min() > 0.999
    assert fitted.stranger_proba_[y >= 0].max() < 0.001
