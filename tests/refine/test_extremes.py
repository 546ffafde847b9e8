"""Extreme embeddings: finite, sensible answers or an error that says why, in every refiner."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from semishot import refine
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
