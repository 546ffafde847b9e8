"""Label propagation, recomputed with plain loops."""

import math

import pytest
import torch

from semishot import refine
from semishot.errors import InputError
from semishot.prototypes import class_prototypes
from support.tensors import dot, episode, randn

N, S, U, D, P = 3, 6, 7, 4, 13


def literal_weights(support, labels, unlabeled, k, a):
    """The equations as they are printed."""
    rows = [*support.tolist(), *unlabeled.tolist()]
    mean = [sum(row[d] for row in rows) / P for d in range(D)]
    x = [[row[d] - mean[d] for d in range(D)] for row in rows]
    x = [[value / math.sqrt(dot(row, row)) for value in row] for row in x]
    directed = [[0.0] * P for _ in range(P)]
    for i in range(P):
        cosines = {j: dot(x[i], x[j]) for j in range(P) if j != i}
        for j in sorted(cosines, key=cosines.get)[-k:]:
            directed[i][j] = max(cosines[j], 0) ** 3
    w = [[(directed[i][j] + directed[j][i]) / 2 for j in range(P)] for i in range(P)]
    degree = [sum(row) for row in w]
    system = [
        [(i == j) - a * w[i][j] / math.sqrt(degree[i] * degree[j]) for j in range(P)]
        for i in range(P)
    ]
    known = [[*row.tolist()] for row in labels] + [[0.0] * N] * U
    z = torch.linalg.solve(torch.tensor(system).double(), torch.tensor(known).double()).T.tolist()
    most = max(z[c][S + j] for c in range(N) for j in range(U))
    weights = []
    for j in range(U):
        arrived = [z[c][S + j] for c in range(N)]
        cubes = [value**3 for value in arrived]
        weights.append([cube / sum(cubes) * max(arrived) / most for cube in cubes])
    return torch.tensor(weights, dtype=torch.float64)


@pytest.mark.parametrize(("k", "a"), [(15, 0.8), (4, 0.8), (5, 0.99), (3, 0.2)])
def test_label_propagation_matches_literal_loops(k, a):
    support, labels, u = episode()
    given = {"neighbors": k, "spread": a} if k != 15 else {}
    p = class_prototypes(support, labels)
    found = refine.build("label_propagation", **given)(u, p, support, labels)
    assert torch.allclose(found, literal_weights(support, labels, u, k, a), atol=1e-7)


def test_more_examples_than_can_be_compared_are_refused_before_the_work():
    support, labels = randn(2, D), torch.eye(2, dtype=torch.float64)
    with pytest.raises(InputError, match=r"all pairs of examples, at most 10,000 .* not 10,001"):
        refine.build("label_propagation")(randn(9_999, D), support, support, labels)
