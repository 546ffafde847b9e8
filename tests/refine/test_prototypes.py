"""Eqs. 1-3, recomputed with plain loops."""

import math
from statistics import NormalDist

import pytest
import torch

from semishot.prototypes import (
    class_log_probs,
    class_prototypes,
    directions,
    episode_loss,
    squared_distances,
    truncated_normal_,
)
from support.tensors import randn

N, P, Q, D = 3, 7, 5, 4
LEAD = (2, 6)


def other(*shape: int) -> torch.Tensor:
    """Other numbers for every shape."""
    return randn(*shape, seed=sum(shape))


def literal_distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return sum((float(x) - float(y)) ** 2 for x, y in zip(a, b, strict=True))


def test_squared_distances_match_literal_loops():
    a, b = other(*LEAD, P, D), other(*LEAD, N, D)
    found = squared_distances(a, b)
    assert found.shape == (*LEAD, P, N)
    for i in range(LEAD[0]):
        for j in range(LEAD[1]):
            for p in range(P):
                for n in range(N):
                    assert math.isclose(
                        found[i, j, p, n], literal_distance(a[i, j, p], b[i, j, n]), rel_tol=1e-10
                    )


def test_eq1_prototypes_are_weighted_means():
    x, w = other(*LEAD, P, D), other(*LEAD, P, N).abs()
    found = class_prototypes(x, w)
    for i in range(LEAD[0]):
        for j in range(LEAD[1]):
            for n in range(N):
                total = sum(float(w[i, j, p, n]) for p in range(P))
                for d in range(D):
                    mean = sum(float(w[i, j, p, n] * x[i, j, p, d]) for p in range(P)) / total
                    assert math.isclose(found[i, j, n, d], mean, rel_tol=1e-10)


def test_eq2_is_the_softmax_of_negative_squared_distances():
    q, p = other(2, Q, D), other(2, N, D)
    found = class_log_probs(q, p)
    for i in range(2):
        for t in range(Q):
            scores = [math.exp(-literal_distance(q[i, t], p[i, n])) for n in range(N)]
            for n in range(N):
                assert math.isclose(found[i, t, n], math.log(scores[n] / sum(scores)), rel_tol=1e-9)


def test_eq3_is_the_mean_negative_log_probability_per_episode():
    log_probs = other(2, Q, N).log_softmax(-1)
    labels = torch.tensor([[0, 2, 1, 1, 0], [2, 2, 0, 1, 1]])
    found = episode_loss(log_probs, labels)
    assert found.shape == (2,)
    for i in range(2):
        picked = [-float(log_probs[i, t, labels[i, t]]) for t in range(Q)]
        assert math.isclose(found[i], sum(picked) / Q, rel_tol=1e-12)


def test_eqs_1_to_3_gradients_match_finite_differences():
    labels = torch.tensor([0, 2, 1, 1, 0])

    def loss(support, weights, queries):
        return episode_loss(class_log_probs(queries, class_prototypes(support, weights)), labels)

    inputs = [other(P, D), other(P, N).abs(), other(Q, D)]
    assert torch.autograd.gradcheck(loss, [x.requires_grad_() for x in inputs])


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e100])
def test_directions_match_literal_loops_at_any_scale(scale):
    rows = scale * other(*LEAD, P, D)
    found = directions(rows)
    for i in range(LEAD[0]):
        for j in range(LEAD[1]):
            own = rows[i, j].tolist()
            mean = [sum(row[d] for row in own) / P for d in range(D)]
            for p in range(P):
                x = [(own[p][d] - mean[d]) / scale for d in range(D)]
                length = math.sqrt(sum(value**2 for value in x))
                for d in range(D):
                    assert math.isclose(found[i, j, p, d], x[d] / length, abs_tol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_examples_that_differ_by_rounding_alone_have_no_direction(dtype):
    rows = torch.full((P, D), 1e10 / 3, dtype=dtype, requires_grad=True)
    found = directions(rows)
    assert (found == 0).all()
    found.sum().backward()
    assert rows.grad is not None
    assert rows.grad.isfinite().all()


def test_initial_weights_are_a_truncated_normal_by_the_inverse_of_its_distribution():
    """Not by rejection: the published runs were drawn so, and every version of torch must draw the same."""
    normal, std, weights = NormalDist(), 0.3, torch.empty(500, dtype=torch.float64)
    truncated_normal_(weights, std, torch.Generator().manual_seed(5))
    low, high = normal.cdf(-2), normal.cdf(2)
    uniform = torch.empty(500, dtype=torch.float64)
    uniform.uniform_(2 * low - 1, 2 * high - 1, generator=torch.Generator().manual_seed(5))
    for weight, u in zip(weights.tolist(), uniform.tolist(), strict=True):
        assert weight == pytest.approx(std * normal.inv_cdf((u + 1) / 2), abs=1e-9)
    assert weights.abs().max() <= 2 * std
