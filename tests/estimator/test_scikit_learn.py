"""PrototypeClassifier among scikit-learn's tools: labels, strangers, weights, traps of docs/estimator.md."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from semishot import PrototypeClassifier
from semishot.errors import InputError
from support.optional_torch import HAS_TORCH

D = 40
NAMES = np.array(["cat", "dog", "elk", "stranger"])
RULES = ["learned", "fitted_mask", None]
KINDS = ["strings", "objects", "numbers"]


def data(seed=0):
    """X (P, D), and 0 to 3 for the truth (3: none of the classes), and what of it is told (-1: not)."""
    rng = np.random.default_rng(seed)
    centers = 3 * np.random.default_rng(9).normal(size=(4, D))
    truth = np.repeat([*range(4), *range(4)], [6, 6, 6, 6, 12, 12, 12, 15])
    told = np.where(np.arange(len(truth)) < 24, truth, -1)
    order = rng.permutation(len(truth))
    x = centers[truth] + 1.5 * rng.normal(size=(len(truth), D))
    return x[order], truth[order], told[order]


def labels(told, kind):
    """The same labels in three ways: 3 is a named stranger, -1 unlabeled."""
    if kind == "strings":
        return np.array([*NAMES, ""])[told]
    if kind == "objects":
        return np.array([*NAMES[:3], -2, -1], object)[told]
    return np.array([0, 1, 2, -2, -1])[told]


def same(one, other, x):
    return np.allclose(one.predict_proba(x), other.predict_proba(x), atol=1e-6)


# The contract


def test_check_estimator_passes_but_for_documented_checks():
    """One takes -1 for a class; two take a label of weight 0 for a row that is not there, and it is one of
    the pile; two compare answers to single rows and to many by 1e-7, and the network is of float32."""
    for rule in ("learned", "fitted_mask") if HAS_TORCH else ("learned",):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of checks that are skipped here
            found = check_estimator(PrototypeClassifier(rule), on_fail=None)
        failed = {check["check_name"] for check in found if check["status"] == "failed"}
        rounded = {"check_methods_sample_order_invariance", "check_methods_subset_invariance"}
        assert failed - rounded == {
            "check_classifiers_classes",
            "check_sample_weight_equivalence_on_dense_data",
            "check_sample_weight_equivalence_on_sparse_data",
        }
        assert len(found) > 40


# Searching and validating


@pytest.mark.parametrize("kind", ["strings", "numbers"])
def test_grid_search_and_cross_validation(kind):
    x, _, told = data()
    y = labels(told, kind)
    steps = make_pipeline(StandardScaler(), PrototypeClassifier(reject=0.05))
    assert min(cross_val_score(steps, x, y, cv=3)) > 0.8
    grid = {
        "prototypeclassifier__refiner": [None, "learned"],
        "prototypeclassifier__reject": [None, 0.05],
    }
    search = GridSearchCV(steps, grid, cv=3).fit(x, y)
    assert search.best_params_["prototypeclassifier__reject"] == 0.05  # strangers count
    assert search.best_score_ > 0.8
    assert search.predict(x).dtype.kind == ("i" if kind == "numbers" else "U")


# Figures


@pytest.mark.parametrize("rule", RULES)
def test_the_decision_function_agrees_with_probabilities(rule):
    x, _, told = data()
    fitted = PrototypeClassifier(rule).fit(x, labels(told, "strings"))
    decided = fitted.decision_function(x)
    assert decided.shape == (len(x), 3)
    assert (fitted.classes_[decided.argmax(1)] == fitted.predict(x)).all()
    powers = np.exp(decided)
    assert np.allclose(powers / powers.sum(1, keepdims=True), fitted.predict_proba(x))
    assert np.allclose(np.exp(fitted.predict_log_proba(x)), fitted.predict_proba(x))
    assert np.isfinite(fitted.predict_log_proba(1000 * x)).all()


# score


@pytest.mark.parametrize("kind", KINDS)
def test_score_ignores_unlabeled_rows_and_counts_strangers(kind):
    x, _, told = data()
    new, known, _ = data(seed=1)
    for reject in (None, 0.05):
        fitted = PrototypeClassifier(reject=reject).fit(x, labels(told, kind))
        guessed = fitted.predict(new)
        expected = np.where(
            known == 3, fitted.stranger_label_, np.append(fitted.classes_, 0)[known]
        )
        right = np.mean([str(a) == str(b) for a, b in zip(guessed, expected, strict=True)])
        assert fitted.score(new, labels(known, kind)) == pytest.approx(right)
        half = np.where(np.arange(len(known)) % 2 == 0, known, -1)
        assert fitted.score(new, labels(half, kind)) == fitted.score(
            new[half >= 0], labels(half[half >= 0], kind)
        )


def test_score_with_weights_is_the_weighted_mean():
    x, _, told = data()
    fitted = PrototypeClassifier().fit(x, labels(told, "strings"))
    new, known, _ = data(seed=1)
    y = labels(known, "strings")
    weights = np.arange(len(y), dtype=float)
    expected = accuracy_score(y, fitted.predict(new), sample_weight=weights)
    assert fitted.score(new, y, sample_weight=weights) == pytest.approx(expected)
    frame = pd.DataFrame(new)
    assert fitted.score(frame, pd.Series(y), weights) == pytest.approx(expected)


def test_score_says_what_is_missing():
    x, _, told = data()
    fitted = PrototypeClassifier().fit(x, labels(told, "strings"))
    for y, weights in ([None, ""], None), (["cat", ""], [0, 1]):
        with pytest.raises(InputError, match="needs labels: all of y is unlabeled or of weight 0"):
            fitted.score(x[:2], y, weights)
    with pytest.raises(InputError, match="y mixes strings and numbers"):
        fitted.score(x[:2], [0, "cat"])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted.score(x, ["cat"])
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
        fitted.score(x[:2], ["cat", "dog"], [1, -1])


# Weights


@pytest.mark.parametrize("rule", RULES)
def test_a_label_of_weight_0_is_not_used(rule):
    x, _, told = data()
    gone = np.flatnonzero(told >= 0)[::3]
    fewer = told.copy()
    fewer[gone] = -1
    weights = np.ones(len(told))
    weights[gone] = 0
    one = PrototypeClassifier(rule, reject=0.05).fit(x, labels(fewer, "strings"))
    two = PrototypeClassifier(rule, reject=0.05).fit(x, labels(told, "strings"), weights)
    assert same(one, two, x)
    assert (one.transduction_ == two.transduction_).all()


@pytest.mark.parametrize("rule", RULES)
def test_only_the_ratios_of_weights_count(rule):
    """A weight of 0.001 for every label once made strangers disappear."""
    x, _, told = data()
    plain = PrototypeClassifier(rule).fit(x, told)
    for scale in (1e-3, 1e3):
        scaled = PrototypeClassifier(rule).fit(x, told, np.full(len(told), scale))
        assert np.allclose(scaled.stranger_proba_, plain.stranger_proba_, atol=1e-6)
        assert same(scaled, plain, x)
