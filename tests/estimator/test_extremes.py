"""Extreme features: finite, sensible answers or an error that says why, whatever the refiner."""

import numpy as np
import pytest

from semishot import PrototypeClassifier
from semishot.errors import InputError

ESTIMATORS = [
    *(("fitted_mask", space) for space in ("auto", "centered", "unit", "none")),
    *(
        (refiner, "auto")
        for refiner in ("learned", None, "soft_kmeans", "oslo", "label_propagation")
    ),
]
every_estimator = pytest.mark.parametrize(("refiner", "normalize"), ESTIMATORS)
F32, F64 = np.float32, np.float64


def features(classes: int = 4, each: int = 6, pile: int = 30) -> tuple[np.ndarray, ...]:
    """(M, D), labels with -1 for the pile, and the truth."""
    generator = np.random.default_rng(0)
    means = 3 * generator.normal(size=(classes, 8))
    truth = np.concatenate(
        [np.repeat(np.arange(classes), each), generator.integers(0, classes, pile)]
    )
    known = np.where(np.arange(len(truth)) < classes * each, truth, -1)
    return means[truth] + generator.normal(size=(len(truth), 8)) / 2, known, truth


def answers(x: np.ndarray, known: np.ndarray, refiner: str | None, normalize: str) -> np.ndarray:
    """What the estimator predicts, with everything it says checked to be numbers."""
    estimator = PrototypeClassifier(refiner, normalize=normalize).fit(x, known)
    for name in ("predict_proba", "stranger_proba", "score_samples"):
        assert np.isfinite(getattr(estimator, name)(x)).all(), name
    assert np.isfinite(estimator.prototypes_).all()
    return estimator.predict(x)


@every_estimator
def test_an_estimator_is_right_at_any_scale_or_says_to_rescale(refiner, normalize):
    x, known, truth = features()
    for kind, scale in ((F32, 1e-10), (F32, 1e10), (F64, 1e-20), (F64, 1e20)):
        found = answers((x * scale).astype(kind), known, refiner, normalize)
        assert (found == truth).mean() > 0.9, (kind, scale)
    with pytest.raises(InputError, match="squares of numbers .* in float32: rescale X"):
        answers((x * 1e15).astype(F32), known, refiner, normalize)


@every_estimator
def test_an_estimator_of_equal_features_prefers_no_class(refiner, normalize):
    _, known, _ = features()
    for kind, value in ((F32, 0.0), (F32, 1e10), (F64, 1.0)):
        x = np.full((len(known), 8), value, kind)
        estimator = PrototypeClassifier(refiner, normalize=normalize).fit(x, known)
        assert np.allclose(estimator.predict_proba(x), 0.25, atol=1e-3), (kind, value)
