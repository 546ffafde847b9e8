"""Extreme embeddings: finite, sensible answers or an error that says why, in every refiner."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from semishot import refine
from semishot.errors import InputError
from semishot.prototypes import class_log_probs

TYPES = [torch.float32, torch.bfloat16, torch.float64]
SCALES = [1e-20, 1e-10, 1e-5, 1.0, 1e5, 1e10, 1e15, 1e20]
N, PER, D = 3, 4, 5

every_refiner = pytest.mark.parametrize("name", refine.names())


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
def test_nan_and_infinity_are_named(name):
    for kind, number, place in product(TYPES, [np.nan, np.inf, -np.inf], [0, 1]):
        given = example(kind)
        given[place][1, 2] = number
        with pytest.raises(InputError, match="an embedding holds NaN or infinity"):
            shares(name, *given)
