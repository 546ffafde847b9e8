"""Where a classifier of piles would fail without a word: each trap is a promise."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.datasets import load_digits, load_wine
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from semishot import PrototypeClassifier
from semishot.errors import InputError
from support.piles import pile

N, D = 3, 40


def same(one, other, x, atol=1e-6):
    for method in ("predict_proba", "stranger_proba"):
        assert np.allclose(getattr(one, method)(x), getattr(other, method)(x), atol=atol), method


@pytest.mark.parametrize("shot", [1, 5])
def test_one_class_is_told_from_strangers(shot):
    x, y, truth = pile(classes=1, members=60, strangers=60, shot=shot)
    fitted = PrototypeClassifier(reject="auto").fit(x, y)
    unlabeled = y == -1
    assert roc_auc_score(truth[unlabeled], fitted.stranger_proba_[unlabeled]) > 0.9


@pytest.mark.parametrize("classes", [1, 3])
def test_without_a_pile_strangers_are_told_apart_too(classes):
    x, y, _ = pile(classes=classes, members=0, strangers=0, shot=5)
    new, _, truth = pile(classes=classes, members=90, strangers=90, shot=0, seed=1)
    for refiner in ("learned", None):
        fitted = PrototypeClassifier(refiner, reject=0.05).fit(x, y)
        assert roc_auc_score(truth == classes, fitted.stranger_proba(new)) > 0.7
        assert fitted.n_strangers_ == (0, 0, 0)
        assert fitted.cutoff_ == 0.9  # nothing to take a share of


@pytest.mark.parametrize("rows", [2000, 3000])
def test_one_row_more_changes_nothing_abruptly(rows):
    """Where a graph becomes one of evenly spaced rows."""
    x, y, _ = pile(members=rows // 2, strangers=rows, noise=1.2)
    order = np.random.default_rng(0).permutation(np.flatnonzero(y == -1))
    labeled = np.flatnonzero(y >= 0)
    answers = []
    for count in (rows, rows + 1):
        chosen = np.concatenate([labeled, order[: count - len(labeled)]])
        fitted = PrototypeClassifier().fit(x[chosen], y[chosen])
        answers.append((fitted.label_distributions_[:rows], fitted.stranger_proba_[:rows]))
    classes, strangers = (np.abs(a - b) for a, b in zip(*answers, strict=True))
    assert classes.mean() < 0.02
    assert strangers.mean() < 0.02


def test_a_burst_of_near_copies_of_a_member_is_not_rejected():
    x, y, truth = pile()
    member = np.flatnonzero((truth == 0) & (y == -1))
    plain = PrototypeClassifier(reject=0.05).fit(x, y)
    typical = member[np.argsort(plain.stranger_proba_[member])[len(member) // 2]]
    burst = x[typical] + 0.01 * np.random.default_rng(1).normal(size=(50, D))
    both = PrototypeClassifier(reject=0.05).fit(
        np.concatenate([x, burst]), np.concatenate([y, np.full(50, -1)])
    )
    assert (both.transduction_[-50:] == 0).mean() > 0.9
    others = member[member != typical]
    moved = both.transduction_[others] != plain.transduction_[others]
    assert moved.mean() < 0.15


@pytest.mark.parametrize("refiner", ["learned", None])
def test_sparse_rows_are_the_same_rows(refiner):
    x, y, truth = pile()
    x[np.abs(x) < 0.5] = 0
    dense = PrototypeClassifier(refiner, reject=0.05).fit(x, y)
    sparse = PrototypeClassifier(refiner, reject=0.05).fit(csr_matrix(x), y)
    same(dense, sparse, x)
    assert np.allclose(sparse.predict_proba(csr_matrix(x)), dense.predict_proba(x), atol=1e-6)
    known = np.where(truth == N, -2, truth)
    assert sparse.score(csr_matrix(x), known) == dense.score(x, known)


def test_unequal_scales_are_standardized():
    x, truth = load_wine(return_X_y=True)
    rights = []
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(truth))
        y = np.full(len(truth), -1)
        for c in range(3):
            y[order[truth[order] == c][:3]] = c
        rights.append(
            [
                (PrototypeClassifier().fit(rows, y).transduction_ == truth)[y == -1].mean()
                for rows in (x, StandardScaler().fit_transform(x))
            ]
        )
    raw, scaled = np.mean(rights, 0)
    assert raw > scaled - 0.04
    assert raw > 0.85


def test_swapped_labels_are_found():
    """10 labels of each digit, a tenth of them swapped."""
    x, truth = load_digits(return_X_y=True)
    found = true = swapped_count = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(truth))[:1000]
        rows, given = x[order], truth[order].copy()
        labeled = np.concatenate([np.flatnonzero(given == c)[:10] for c in range(10)])
        swapped = rng.choice(labeled, 10, replace=False)
        given[swapped] = (given[swapped] + rng.integers(1, 10, 10)) % 10
        y = np.full(len(given), -1)
        y[labeled] = given[labeled]
        doubtful = {doubt.row for doubt in PrototypeClassifier().fit(rows, y).doubtful_}
        found, swapped_count = found + len(doubtful), swapped_count + 10
        true += len(doubtful & set(swapped.tolist()))
    assert true / found >= 0.9
    assert true / swapped_count >= 0.5


@pytest.mark.parametrize("refiner", ["learned", None])
def test_a_copy_of_a_fitted_row_is_answered_as_that_row(refiner):
    x, y, _ = pile()
    fitted = PrototypeClassifier(refiner, reject=0.05).fit(x, y)
    unlabeled = np.flatnonzero(y == -1)
    x = x[unlabeled]
    assert np.allclose(fitted.predict_proba(x), fitted.label_distributions_[unlabeled], atol=1e-5)
    assert np.allclose(fitted.stranger_proba(x), fitted.stranger_proba_[unlabeled], atol=1e-5)
    sure = np.abs(fitted.stranger_proba(x) - fitted.cutoff_) > 1e-5  # the cutoff is that of a row
    assert (fitted.predict(x) == fitted.transduction_[unlabeled])[sure].all()
    assert sure.mean() > 0.9


def test_the_score_of_a_sample_is_its_log_odds():
    x, y, _ = pile()
    fitted = PrototypeClassifier().fit(x, y)
    stranger = fitted.stranger_proba(x)
    assert np.allclose(1 / (1 + np.exp(fitted.score_samples(x))), stranger)


def test_reject_may_be_set_after_fit():
    x, y, _ = pile()
    fitted = PrototypeClassifier().fit(x, y)
    assert fitted.cutoff_ is None
    assert -1 not in fitted.predict(x)
    other = PrototypeClassifier(reject=0.05).fit(x, y)
    assert (fitted.set_params(reject=0.05).predict(x) == other.predict(x)).all()
    assert fitted.cutoff_ == other.cutoff_
    assert fitted.missed_strangers() == other.missed_strangers()


def test_classes_with_names_need_no_labels():
    rng = np.random.default_rng(0)
    centers = np.random.default_rng(9).normal(size=(N, D))
    truth = np.repeat(np.arange(N), 30)
    x = centers[truth] + rng.normal(size=(len(truth), D))
    y = np.full(len(truth), "", object)
    y[:4], y[30:34] = "ant", "bee"
    names = dict(zip(["ant", "bee", "cow"], centers, strict=True))
    fitted = PrototypeClassifier().fit(x, y, class_features=names)
    assert list(fitted.classes_) == ["ant", "bee", "cow"]
    assert (fitted.predict(x) == np.array(["ant", "bee", "cow"])[truth]).mean() > 0.9
    none = PrototypeClassifier().fit(x, [""] * len(y), class_features=names)
    assert (none.predict(x) == np.array(["ant", "bee", "cow"])[truth]).mean() > 0.9
    turned = {name: names[name] for name in ("cow", "bee", "ant")}
    same(fitted, PrototypeClassifier().fit(x, y, class_features=turned), x)


def test_names_that_cannot_be_used_are_named():
    x, y, _ = pile()
    with pytest.raises(InputError, match="must hold classes and 40 finite numbers for each"):
        PrototypeClassifier().fit(x, y, class_features={0: np.zeros(3)})
