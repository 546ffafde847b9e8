"""OSLO, recomputed with plain loops."""

import math

import pytest
import torch

from semishot import refine
from semishot.prototypes import class_prototypes
from support.tensors import dot, episode

N, S, U, D = 3, 6, 7, 4


def unit(a):
    return [x / math.sqrt(dot(a, a)) for x in a]


def literal_weights(support, labels, unlabeled, steps, tau_xi, tau_z):
    """The equations as they are printed."""
    rows = [*support.tolist(), *unlabeled.tolist()]
    mean = [sum(row[d] for row in rows) / (S + U) for d in range(D)]
    x = [unit([row[d] - mean[d] for d in range(D)]) for row in rows]
    y = labels.tolist()
    z = [[1 / N] * N for _ in range(U)]
    w = []
    for k in range(N):
        own = [x[i] for i in range(S) if y[i][k] == 1]
        w.append([sum(row[d] for row in own) / len(own) for d in range(D)])
    for _ in range(steps):
        weights = []
        for j in range(U):
            cosines = [dot(x[S + j], unit(w[k])) for k in range(N)]
            xi = 1 / (1 + math.exp(-dot(z[j], cosines) / tau_xi))
            scores = [math.exp(xi * cosine / tau_z) for cosine in cosines]
            z[j] = [score / sum(scores) for score in scores]
            weights.append([xi * share for share in z[j]])
        for k in range(N):
            bottom = sum(y[i][k] for i in range(S)) + sum(weights[j][k] for j in range(U))
            w[k] = [
                (
                    sum(y[i][k] * x[i][d] for i in range(S))
                    + sum(weights[j][k] * x[S + j][d] for j in range(U))
                )
                / bottom
                for d in range(D)
            ]
    return torch.tensor(weights, dtype=torch.float64)


@pytest.mark.parametrize("options", [(2, 0.05, 0.1), (1, 0.05, 0.1), (4, 0.5, 0.3)])
def test_oslo_matches_literal_loops(options):
    support, labels, u = episode()
    names = ("steps", "distractor_temperature", "class_temperature")
    given = dict(zip(names, options, strict=True)) if options != (2, 0.05, 0.1) else {}
    p = class_prototypes(support, labels)
    found = refine.build("oslo", **given)(u, p, support, labels)
    assert torch.allclose(found, literal_weights(support, labels, u, *options), atol=1e-12)
