"""Fast weights: the step recomputed with plain loops, and what it does to an episode."""

import math

import pytest
import torch

from semishot import refine
from semishot.errors import InputError
from semishot.prototypes import class_prototypes
from support.tensors import episode, randn

N, U, D, Q = 3, 7, 4, 5


def literal_loss(g, unlabeled, prototypes):
    """L(g), as it is printed."""

    def shares(x):
        d = [sum(math.exp(g[k]) * (x[k] - p[k]) ** 2 for k in range(D)) for p in prototypes]
        total = sum(math.exp(-each) for each in d)
        return [math.exp(-each) / total for each in d]

    entropies = [-sum(p * math.log(p) for p in shares(u)) for u in unlabeled]
    own = [-math.log(shares(p)[c]) for c, p in enumerate(prototypes)]
    return sum(entropies) / max(1, len(entropies)) + sum(own) / len(own)


def literal_gain(unlabeled, prototypes, rate):
    """exp(g / 2) after one step from g = 0; the gradient by central differences of the loss."""
    u, p, step = unlabeled.tolist(), prototypes.tolist(), 1e-5
    gains = []
    for k in range(D):
        ahead, behind = ([s * step * (k == i) for i in range(D)] for s in (1, -1))
        slope = (literal_loss(ahead, u, p) - literal_loss(behind, u, p)) / (2 * step)
        gains.append(math.exp(-rate * D * slope / 2))
    return gains


def literal_log_probs(x, prototypes, gains):
    scores = [
        [
            -sum((g * (a - b)) ** 2 for g, a, b in zip(gains, row, p, strict=True))
            for p in prototypes
        ]
        for row in x
    ]
    return [[s - math.log(sum(map(math.exp, row))) for s in row] for row in scores]


@pytest.mark.parametrize("rate", [0.1, 0.7])
def test_fast_weights_match_literal_loops(rate):
    support, labels, u = episode()
    u, queries = u[:, :D], randn(Q, D)
    p = class_prototypes(support[:, :D], labels)
    refiner = refine.build("fast_weights", rate=rate).double()
    gains = literal_gain(u, p, rate)
    assert torch.allclose(refiner.gain(u, p)[0], torch.tensor(gains).double(), atol=1e-7)
    found = refiner(u, p).log()
    assert torch.allclose(
        found, torch.tensor(literal_log_probs(u.tolist(), p.tolist(), gains)).double(), atol=1e-6
    )
    scored = refine.query_log_probs(refiner, queries, p, u, support[:, :D], labels)
    wanted = torch.tensor(literal_log_probs(queries.tolist(), p.tolist(), gains)).double()
    assert torch.allclose(scored, wanted, atol=1e-6)


def test_the_rate_is_learned_and_each_run_has_its_own():
    support, labels, u = (t.expand(2, *t.shape) for t in episode())
    refiner = refine.build("fast_weights", runs=2).double()
    p = class_prototypes(support, labels)
    refiner.query_log_probs(u, p, u, p)[0].exp().square().sum().backward()
    assert refiner.slow_log_rate.grad[0] != 0
    assert refiner.slow_log_rate.grad[1] == 0


def test_a_rate_that_is_not_positive_is_refused():
    with pytest.raises(InputError, match="rate must be positive, not 0"):
        refine.build("fast_weights", rate=0)
