"""The graph rule: its equations by plain loops, and its promises about order, scale, copies, strangers."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax

from semishot import PrototypeClassifier
from semishot.estimator import constants as const
from semishot.estimator import graph_rule
from semishot.estimator.graph import (
    Neighbours,
    cosines_without_itself,
    neighbour_graph,
    propagate,
    smoothed,
)
from semishot.estimator.graph_rule import LabeledPile
from semishot.estimator.models import pile_verdict
from semishot.estimator.spaces import Space, gaussian_space, mean_direction, unit
from semishot.estimator.strangers import (
    MemberPrior,
    Members,
    Strangers,
    count_strangers,
    members_by,
    stranger_probability,
)

N, D = 3, 40


def rows_of(count, seed=0, features=D):
    return unit(np.random.default_rng(seed).normal(size=(count, features)) + 0.5)


def task(shot=2, members=12, strangers=15, seed=0, noise=1.0, named=0):
    """Labels, members class by class, then a cluster that is none of the classes; some of it named."""
    rng = np.random.default_rng(seed)
    centers = 3 * np.random.default_rng(9).normal(size=(N + 1, D))
    owner = np.repeat([*range(N), *range(N), N], [*[shot] * N, *[members] * N, strangers])
    x = centers[owner] + noise * rng.normal(size=(len(owner), D))
    y = np.where(np.arange(len(owner)) < N * shot, owner, -1)
    y[len(y) - named :] = -2
    return x, y, np.where(owner == N, -1, owner)


# Equations


def plain_graph(rows):
    """An edge for each of the 7 nearest by cosine, cos^3, in both directions."""
    cosines = np.array([[float(a @ b) for b in rows] for a in rows])
    weights = np.zeros_like(cosines)
    for i, row in enumerate(cosines):
        for j in sorted((j for j in range(len(rows)) if j != i), key=lambda j: -row[j])[:7]:
            weights[i, j] = max(row[j], 0) ** 3
    return weights + weights.T


def test_an_edge_is_the_cube_of_the_cosine_in_both_directions():
    rows = rows_of(23)
    found = neighbour_graph(rows)
    assert np.allclose(found.weights.toarray(), plain_graph(rows))
    assert np.allclose(found.degree, plain_graph(rows).sum(1))


def test_what_arrives_solves_the_equation_of_label_propagation():
    rows, labels = rows_of(23), np.zeros((23, N))
    labels[[0, 1, 2], [0, 1, 2]] = 1
    w = plain_graph(rows)
    scale = np.diag(1 / np.sqrt(w.sum(1)))
    exact = np.linalg.solve(np.eye(23) - 0.8 * scale @ w @ scale, labels)
    found = propagate(neighbour_graph(rows), labels)
    assert np.allclose(found, exact, atol=0.8**20 * 2)


def test_a_prototype_is_compared_without_the_row_itself():
    rows, weights = rows_of(9), np.random.default_rng(1).random((9, N))
    found = cosines_without_itself(rows, weights)
    for i in range(9):
        for c in range(N):
            p = sum(weights[j, c] * rows[j] for j in range(9) if j != i)
            assert found[i, c] == pytest.approx(rows[i] @ p / np.linalg.norm(p))


def test_a_score_is_mixed_with_the_mean_of_its_neighbours():
    rows, scores = rows_of(9), np.arange(9.0)
    w = plain_graph(rows)
    found = smoothed(neighbour_graph(rows), scores, 0.6)
    for i in range(9):
        around = sum(w[i, j] * scores[j] for j in range(9)) / sum(w[i])
        assert found[i] == pytest.approx(0.4 * scores[i] + 0.6 * around)


def test_a_new_row_is_read_off_the_graph_as_a_row_in_it_would_be():
    """z = 0.8 sum_j 2 w_j Z_j / sqrt(d d_j), with d = 2 sum_j w_j: the graph's own equation."""
    x, y, _ = task()
    model = LabeledPile(x).learn(y).model
    new = x[-1:] + 0.3
    place = model.space(new)[0]
    cosines = model.rows @ place
    near = np.argsort(-cosines)[:7]
    w = cosines[near].clip(0) ** 3
    z = sum(2 * weight * model.passed[j] for weight, j in zip(w, near, strict=True))
    z = z / math.sqrt(2 * w.sum())
    logits, scores = model(new)
    by_graph = np.log(np.maximum(z[:N], 1e-7))
    expected = model.graph_weight * by_graph + model.pull * model.prototypes @ place
    assert np.allclose(logits[0], expected)
    raw = by_graph + model.scoring @ place
    around = (w * model.best[near]).sum() / w.sum()
    share = 0.6 * min(1, (y == -1).sum() / N / 20)
    assert model.share == pytest.approx(share)
    assert scores[0] == pytest.approx((1 - share) * raw.max() + share * around)


# How members and strangers score


def test_members_are_predicted_from_the_prior_and_from_held_out_scores():
    held, prior = np.array([1.0, 4.0, 2.5]), MemberPrior(3.0, 6.0, 2.1)
    found = members_by(held, prior)
    worth = 2.1 + 3
    squares = sum((s - 2.5) ** 2 for s in held) + 2.1 * 3 / worth * (2.5 - 3) ** 2
    variance = (20 * 6 + squares) / 23
    assert found.mean == pytest.approx((2.1 * 3 + 3 * 2.5) / worth)
    assert found.spread == pytest.approx(math.sqrt(variance * (1 + 1 / worth)))
    assert found.freedom == 23
    alone = members_by(np.empty(0), prior)
    assert (alone.mean, alone.held_out) == (3.0, ())


def test_without_held_out_scores_shares_are_students():
    members = Members(2.0, 1.5, 9.0)
    scores = np.array([-4.0, 0.0, 2.0, 5.0])
    assert np.allclose(members.share_above(scores), stats.t(9, 2, 1.5).sf(scores))
    assert members.cutoff(0.05) == pytest.approx(stats.t(9, 2, 1.5).ppf(0.05))


@pytest.mark.parametrize("count", [3, 15, 30, 300])
def test_cutoff_and_share_decide_the_same(count):
    held = tuple(np.sort(np.random.default_rng(count).normal(2, 3, count)).tolist())
    members = Members(2.0, 1.5, 9.0, 1.08, held)
    scores = np.random.default_rng(0).normal(2, 5, 2000)
    for reject in (0.001, 0.01, 0.05, 0.2, 0.5, 0.9):
        by_share = members.share_above(scores) > 1 - reject
        assert (by_share == (scores < members.cutoff(reject))).mean() > 0.999
    shares = members.share_above(np.linspace(-20, 20, 500))
    assert (np.diff(shares) <= 0).all()


def test_the_probability_of_a_stranger_is_bayes_rule():
    members, strangers = Members(3.0, 2.0, 7.0), Strangers(-2.0, 4.0, 0.3)
    for score in (-1.5, 0.0, 2.0):
        inside = 0.7 * stats.t(7, 3, 2).pdf(score)
        outside = 0.3 * stats.norm(-2, 2).pdf(score)
        found = stranger_probability(np.array([score]), members, strangers)[0]
        assert found == pytest.approx(outside / (inside + outside))
    far = stranger_probability(np.array([-50.0, -2.0, 3.0, 50.0]), members, strangers)
    assert far[0] == far[1] > far[2] == far[3]


def test_strangers_are_counted_by_their_probabilities_and_by_the_median_of_members():
    rng = np.random.default_rng(0)
    scores = np.concatenate([rng.normal(3, 2, 300), rng.normal(-6, 2, 100)])
    stranger = np.where(np.arange(400) < 300, 0.02, 0.9)
    count = count_strangers(scores, stranger, Members(3.0, 2.0, 1e9), 0.1)
    left = 400 - 2 * sum(s > 3.0 for s in scores)
    assert count.expected == pytest.approx((96 + left) / 2)
    low, high = (400 - 2 * sum(s > 3.0 + d for s in scores) for d in (-0.1645, 0.1645))
    chance = 1.645 * math.sqrt(400 - left)
    assert count.low == pytest.approx(min(left - math.hypot(chance, left - low), 96))
    assert count.high == pytest.approx(max(left + math.hypot(chance, high - left), 96))
    assert count.low < 100 < count.high


# Promises


@pytest.fixture(params=["all in the graph", "a part of it"])
def judged(request, monkeypatch):
    """Features and labels -> the answer for all rows."""
    if request.param == "a part of it":
        monkeypatch.setattr(const, "EXACT", 20)
        monkeypatch.setattr(const, "LANDMARKS", 20)
        monkeypatch.setattr(const, "MOST_LABELED", 6)

    def answer(x, y):
        weights = (y[:, None] == np.arange(N)).astype(float)
        space = Space("centered", mean_direction(x))
        neighbours = Neighbours(x, space)
        return graph_rule.learn(neighbours, weights, y == -2).answer

    return answer


def test_the_order_of_rows_changes_nothing(judged):
    x, y, _ = task(shot=3, noise=4.0, named=3)
    one = judged(x, y)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(y))
        other = judged(x[order], y[order])
        for mine, theirs in zip(one, other, strict=True):
            assert np.allclose(mine[order], theirs, atol=1e-6)


@pytest.mark.parametrize("features", [D, 2])
def test_scale_and_rotation_change_nothing(features):
    x, y, _ = task(noise=4.0)
    x = x[:, :features]
    turn = np.linalg.qr(np.random.default_rng(2).normal(size=(features, features)))[0]
    one = PrototypeClassifier().fit(x, y)
    for moved in (1000 * x, x @ turn, 1e-3 * x @ turn):
        other = PrototypeClassifier().fit(moved, y)
        assert np.allclose(one.label_distributions_, other.label_distributions_, atol=1e-5)
        assert np.allclose(one.stranger_proba_, other.stranger_proba_, atol=1e-5)


def test_a_row_of_many_copies_is_reached_by_labels():
    """Copies would otherwise be each other's only neighbours, and no label would arrive."""
    x, y, truth = task(shot=1)
    member = np.flatnonzero((truth == 1) & (y == -1))[0]
    many = np.concatenate([x, np.repeat(x[[member]], 30, 0)])
    found = LabeledPile(many).learn(np.concatenate([y, np.full(30, -1)])).answer
    assert (found.classes[-30:].argmax(1) == 1).all()
    assert np.ptp(found.scores[-30:]) == 0
    alone = LabeledPile(x).learn(y).answer
    assert found.stranger[member] == pytest.approx(alone.stranger[member], abs=0.1)


def test_a_row_of_the_graph_is_predicted_as_in_the_graph(tmp_path):
    x, y, _ = task(noise=4.0)
    fitted = PrototypeClassifier(reject=0.05).fit(x, y)
    pile = y == -1
    assert (fitted.predict(x) == fitted.transduction_)[pile].all()
    assert np.allclose(fitted.predict_proba(x)[pile], fitted.label_distributions_[pile])
    assert np.allclose(fitted.stranger_proba(x)[pile], fitted.stranger_proba_[pile])
    near = fitted.predict_proba(x + 0.05)  # others are read off their neighbours
    assert np.abs(near - fitted.predict_proba(x)).max() > 0.01


def test_named_strangers_are_no_class_and_lower_their_like():
    x, y, truth = task(shot=2, strangers=30, noise=3.0)
    known = np.flatnonzero(truth == -1)[:6]
    y2 = y.copy()
    y2[known] = -2
    one, two = PrototypeClassifier().fit(x, y), PrototypeClassifier(reject=0.05).fit(x, y2)
    assert list(two.classes_) == [0, 1, 2]
    others = np.setdiff1d(np.flatnonzero(truth == -1), known)
    assert two.stranger_proba_[others].mean() > one.stranger_proba_[others].mean()
    assert (two.stranger_proba_[known] == 1).all()
    assert (two.transduction_[known] == -1).all()
    assert two.n_strangers_.expected <= len(others) + 3


def test_how_many_strangers_there_are_and_how_many_are_missed():
    x, y, truth = task(shot=3, members=30, strangers=40, noise=2.0)
    found = PrototypeClassifier().fit(x, y)
    count = found.n_strangers_
    assert count.low <= (truth == -1).sum() <= count.high
    rejected = ((y == -1) & (found.distractor_score_ > 0.95)).sum()
    members = (y == -1).sum() - count.expected
    expected = max(0, count.expected - max(0, rejected - 0.05 * members))
    assert found.missed_strangers(0.05) == pytest.approx(expected)
    assert found.missed_strangers() == count.expected
    assert found.set_params(reject=0.05).missed_strangers() == found.missed_strangers(0.05)


def test_a_label_that_the_others_contradict_is_named():
    x, y, _ = task(shot=6)
    y[0] = 2  # it is of class 0
    found = PrototypeClassifier().fit(x, np.array(["a", "b", "c", -1], object)[y])
    ((row, given, suggested, probability),) = found.doubtful_
    assert (row, given, suggested) == (0, "c", "a")
    assert 0.7 <= probability <= 1
    assert PrototypeClassifier().fit(x, task(shot=6)[1]).doubtful_ == []


def test_what_is_remembered_is_what_would_be_found(monkeypatch):
    """A pile judged by changing labels, labels taken back among them, says what a new one says."""
    monkeypatch.setattr(const, "EXACT", 60)
    monkeypatch.setattr(const, "LANDMARKS", 60)
    monkeypatch.setattr(const, "ROWS_AT_ONCE", 37)
    x, y, truth = task(shot=3, members=40, strangers=40, noise=3.0)
    x = x.astype(np.float32)
    kept = LabeledPile(x)
    other = y.copy()
    other[np.flatnonzero(truth == 1)[5:15]] = 1
    other[-10:] = -2
    for labels in (y, other, y):
        again = kept.learn(labels)
        anew = LabeledPile(x).learn(labels)
        plain = again.model(x)
        outside = np.setdiff1d(np.arange(len(x)), kept.neighbours.last[0])
        for mine, theirs in zip(again.answer, anew.answer, strict=True):
            assert np.allclose(mine, theirs, atol=1e-4)
        assert np.allclose(again.answer.scores[outside], plain[1][outside], atol=1e-3)
        read = softmax(plain[0], 1)[outside]
        assert np.allclose(again.answer.classes[outside], read, atol=1e-3)


WITH = "held-out labels right with the pile,"
WITHOUT = "held-out labels right without the pile,"


@pytest.mark.parametrize(
    ("evidence", "text"),
    [
        ((9, 8, 7, 0.4, True), f"8 of 9 {WITH} 7 without it, and together more"),
        ((9, 7, 8, -1.0, True), f"7 of 9 {WITH} 8 without it, and together somewhat less"),
        ((9, None, 8, -6.0, False), f"8 of 9 {WITHOUT} and together much less"),
    ],
)
def test_a_verdict_on_the_pile_is_words_and_counts(evidence, text):
    """A log-probability tells a reader nothing."""
    end = "the pile is used" if evidence[-1] else "the pile does not help, labels alone"
    assert pile_verdict(*evidence) == f"{text} probable with it: {end}"


def test_many_labels_are_thinned_evenly(monkeypatch):
    monkeypatch.setattr(const, "MOST_LABELED", 30)
    x, y, truth = task(shot=100, members=10, strangers=0)
    found = LabeledPile(x).learn(y)
    assert len(found.model.rows) == 30 + 30
    assert (found.answer.classes.argmax(1) == truth).all()


# Few features


def test_a_gaussian_space_has_the_gaussian_kernel_as_its_cosines():
    x = np.random.default_rng(0).normal(size=(50, 2))
    space = gaussian_space(x)
    rows = space(x)
    d = ((x[:, None] - x) ** 2).sum(-1)
    h2 = 0.125 * np.median(d[np.triu_indices(50, 1)])
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    assert np.allclose(rows @ rows.T, np.exp(-d / (2 * h2)), atol=0.05)


def test_half_moons_are_followed():
    from sklearn.datasets import make_moons

    x, truth = make_moons(400, noise=0.08, random_state=0)
    y = np.full(400, -1)
    for c in (0, 1):
        y[np.flatnonzero(truth == c)[:5]] = c
    right = {
        refiner: (PrototypeClassifier(refiner).fit(x, y).transduction_ == truth).mean()
        for refiner in ("graph", "fitted_mask")
    }
    assert right["graph"] > 0.97 > right["fitted_mask"]
