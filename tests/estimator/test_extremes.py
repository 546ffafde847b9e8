"""Extreme embeddings: finite, sensible answers or an error that says why, in every refiner and estimator."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from semishot import PrototypeClassifier, refine
from semishot.errors import InputError
from semishot.prototypes import class_log_probs, squared_distances

TYPES = [torch.float32, torch.bfloat16, torch.float64]
SCALES = [1e-20, 1e-10, 1e-5, 1.0, 1e5, 1e10, 1e15, 1e20]
N, PER, D = 3, 4, 5

every_refiner = pytest.mark.parametrize("name", refine.names())
by_distance = pytest.mark.parametrize("name", sorted({*refine.names()} - {"cosine_kmeans"}))
"""Not by directions from the origin."""


def example(kind: torch.dtype, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """(U, D), (N, D): four unlabeled examples around each of three prototypes, class by class."""
    generator = torch.Generator().manual_seed(3)
    prototypes = 4 * torch.eye(N, D, dtype=torch.float64)
    noise = torch.randn(N * PER, D, generator=generator, dtype=torch.float64) / 4
    unlabeled = prototypes.repeat_interleave(PER, 0) + noise
    return (unlabeled * scale).to(kind), (prototypes * scale).to(kind)


def shares(name: str, unlabeled: Tensor, prototypes: Tensor) -> Tensor:
    """What the method gives each class, checked to be shares."""
    labels = torch.eye(N, dtype=prototypes.dtype)  # one label per class: its prototype
    method = refine.build(name).to(prototypes)
    weights = refine.weights_of(method, unlabeled, prototypes, prototypes, labels).detach()
    assert weights.dtype == prototypes.dtype
    assert weights.isfinite().all()
    assert (weights >= 0).all()
    assert (weights.double().sum(-1) <= 1.02).all()  # bf16 has two digits
    return weights


@every_refiner
@pytest.mark.parametrize("scale", SCALES)
def test_at_any_scale_shares_are_shares_or_the_overflow_is_named(name, scale):
    for kind in TYPES:
        unlabeled, prototypes = example(kind, scale)
        if scale > 1e19 and kind != torch.float64:
            said = "not finite in .*so large that its square overflows"
            with pytest.raises(InputError, match=said):
                shares(name, unlabeled, prototypes)
            continue
        weights = shares(name, unlabeled, prototypes)
        if scale >= 1 and weights.amax() > 0:  # whoever is taken in goes to its own class
            taken = weights.amax(-1) > 0
            classes = torch.arange(N).repeat_interleave(PER)
            assert (weights.argmax(-1) == classes)[taken].all()
        labels, method = torch.eye(N, dtype=kind), refine.build(name).to(kind)
        refined = refine.refined_prototypes(method, prototypes, labels, unlabeled)
        assert refined.isfinite().all()
        assert class_log_probs(unlabeled, refined).exp().isfinite().all()


@every_refiner
def test_where_all_are_equal_no_class_is_preferred(name):
    for kind, value in product(TYPES, [0.0, 1.0, 1e10]):
        equal = torch.full((7, D), value).to(kind)
        weights = shares(name, equal, equal[:N])
        assert (weights == weights[:1, :1]).all(), (kind, value)


@every_refiner
def test_nan_and_infinity_are_named(name):
    for kind, number, place in product(TYPES, [np.nan, np.inf, -np.inf], [0, 1]):
        given = example(kind)
        given[place][1, 2] = number
        with pytest.raises(InputError, match="an embedding holds NaN or infinity"):
            shares(name, *given)


@by_distance
def test_a_class_far_away_takes_its_own_and_nothing_else(name):
    """Between the others float32 and bf16 may no longer tell: digits are lost in the distance."""
    for kind, distance in product(TYPES, [1e3, 1e6, 1e15]):
        unlabeled, prototypes = example(kind)
        unlabeled[:PER] += distance
        prototypes[0] += distance
        weights = shares(name, unlabeled, prototypes)
        least = 1e-3 if name == "oslo" else 0  # cosines end at -1
        assert (weights[PER:, 0] <= least).all(), (kind, distance)
        assert (weights[:PER, 1:] <= least).all(), (kind, distance)


def test_a_loss_is_not_looked_at_while_it_is_differentiated():
    """A look would make the GPU wait: in training, the chunk's loss tells."""
    prototypes = torch.full((2, 3), 1e30, requires_grad=True)
    assert not squared_distances(prototypes + 1, -prototypes).isfinite().all()


ESTIMATORS = [
    *(("fitted_mask", space) for space in ("auto", "centered", "unit", "none")),
    *((refiner, "auto") for refiner in ("graph", "soft_kmeans", "oslo", "label_propagation", None)),
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
    for found in (
        estimator.predict_proba(x),
        estimator.distractor_score(x),
        estimator.prototypes_,
        estimator.temperature_,
    ):
        assert np.isfinite(found).all()
    return estimator.predict(x)


@every_estimator
def test_an_estimator_is_right_at_any_scale_or_says_to_rescale(refiner, normalize):
    x, known, truth = features()
    for kind, scale in ((F32, 1e-10), (F32, 1e10), (F64, 1e-20), (F64, 1e20)):
        found = answers((x * scale).astype(kind), known, refiner, normalize)
        assert (found == truth).mean() > 0.9, (kind, scale)
    for scale in (1e-20, 1e15):
        with pytest.raises(InputError, match="squares of numbers .* in float32: rescale X"):
            answers((x * scale).astype(F32), known, refiner, normalize)


@pytest.mark.parametrize("kind", [F32, F64])
def test_features_too_large_to_square_are_refused_in_prediction_too(kind):
    x, known, _ = features()
    estimator = PrototypeClassifier().fit(x.astype(kind), known)
    too_large = np.full((1, 8), np.finfo(kind).max / 2, kind)
    with pytest.raises(InputError, match="may overflow in float"):
        estimator.predict(too_large)
    assert np.isfinite(estimator.predict_proba(np.zeros((1, 8), kind))).all()
    assert np.isfinite(estimator.predict_proba(np.full((1, 8), 1e-30, kind))).all()


@every_estimator
def test_an_estimator_of_equal_features_prefers_no_class(refiner, normalize):
    _, known, _ = features()
    for kind, value in ((F32, 0.0), (F32, 1e10), (F64, 1.0)):
        x = np.full((len(known), 8), value, kind)
        estimator = PrototypeClassifier(refiner, normalize=normalize).fit(x, known)
        assert np.allclose(estimator.predict_proba(x), 0.25, atol=1e-3), (kind, value)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_an_estimator_names_nan_and_infinity(number):
    x, known, _ = features()
    estimator = PrototypeClassifier().fit(x, known)
    x[-1, 3] = number
    for use in (estimator.predict, lambda x: PrototypeClassifier().fit(x, known)):
        with pytest.raises(ValueError, match="Input X contains"):
            use(x)


@every_estimator
def test_an_estimator_with_a_class_far_away(refiner, normalize):
    """Features as they are lose the others' digits in the distance; directions do not."""
    for kind, distance in ((F32, 1e3), (F32, 1e15), (F64, 1e6), (F64, 1e15)):
        x, known, truth = features()
        x[truth == 0] += distance
        found = answers(x.astype(kind), known, refiner, normalize)
        assert ((found == 0) == (truth == 0)).all(), (kind, distance)
        as_they_are = normalize == "none" or refiner == "graph"  # of few features
        lost = as_they_are and distance > 1e6
        assert lost or (found == truth).mean() > 0.9, (kind, distance)
