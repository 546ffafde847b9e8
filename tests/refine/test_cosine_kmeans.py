"""Soft k-means by cosines, recomputed with plain loops."""

import math

import pytest
import torch

from semishot import refine
from semishot.prototypes import SHORTEST
from support.tensors import dot, randn

N, U, D = 3, 7, 4


def cosine(a, b):
    lengths = [math.sqrt(dot(v, v) + SHORTEST) for v in (a, b)]
    return dot(a, b) / (lengths[0] * lengths[1])


@pytest.mark.parametrize("cluster", [True, False])
def test_weights_match_literal_loops(cluster):
    unlabeled, prototypes = randn(U, D, seed=1), randn(N, D, seed=2)
    scale, threshold = 6.0, 0.2
    module = refine.build("cosine_kmeans", scale=scale, threshold=threshold, cluster=cluster)
    found = module.double()(unlabeled, prototypes)
    for j, x in enumerate(unlabeled.tolist()):
        scores = [math.exp(scale * cosine(x, p)) for p in prototypes.tolist()]
        total = sum(scores) + (math.exp(scale * threshold) if cluster else 0)
        for c in range(N):
            assert found[j, c].item() == pytest.approx(scores[c] / total, rel=1e-6)


def test_examples_that_do_not_take_part_change_no_prototype():
    """As if they were not there: their weights are zero."""
    support, unlabeled = randn(2, 6, D, seed=1), randn(2, U, D, seed=2)
    labels = torch.eye(N, dtype=torch.float64).repeat_interleave(2, 0).expand(2, 6, N)
    module = refine.build("cosine_kmeans", runs=2).double()
    present = torch.tensor([[1.0] * 5 + [0.0] * 2, [1.0] * U])
    found = refine.refined_prototypes(module, support, labels, unlabeled, 2, present=present)
    alone = refine.build("cosine_kmeans").double()
    few = refine.refined_prototypes(alone, support[0], labels[0], unlabeled[0, :5], 2)
    assert torch.allclose(found[0], few)
    whole = refine.refined_prototypes(alone, support[1], labels[1], unlabeled[1], 2)
    assert torch.allclose(found[1], whole)
