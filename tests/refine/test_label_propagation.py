"""Label propagation, recomputed with plain loops."""

import math

import pytest
import torch

from semishot import refine
from semishot.errors import InputError
from semishot.prototypes import class_prototypes
from semishot.refine import label_propagation
from support.tensors import randn

N, S, U, D = 3, 6, 7, 4
P = S + U


def episode():
    """Support, one-hot labels, unlabeled: sizes all different."""
    labels = torch.eye(N, dtype=torch.float64).repeat_interleave(S // N, 0)
    return randn(S, D, seed=1), labels, randn(U, D, seed=2)


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def solved(matrix, right):
    """Gauss's elimination, for one right-hand side."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(P):
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for j in range(P):
            if j != i:
                rows[j] = [
                    b - rows[j][i] * a if c >= i else b
                    for c, (a, b) in enumerate(zip(rows[i], list(rows[j]), strict=True))
                ]
    return [row[-1] for row in rows]


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
    z = [solved(system, [*labels[:, c].tolist(), *[0.0] * U]) for c in range(N)]
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


@pytest.mark.parametrize("spread", [0.01, 0.8, 0.99])
def test_propagation_solves_its_equation(spread):
    random = randn(2, P, P).abs()
    w = random + random.mT
    root = w.sum(-1).rsqrt()
    graph = root.unsqueeze(-1) * w * root.unsqueeze(-2)
    known = randn(2, P, N, seed=3)
    found = label_propagation.propagated(graph, known, spread)
    exact = torch.linalg.solve(torch.eye(P, dtype=torch.float64) - spread * graph, known)
    assert torch.allclose(found, exact, rtol=1e-7, atol=1e-6)


def test_label_propagation_gradients_match_finite_differences():
    support, labels, u = episode()

    def refined(support, u):
        method = refine.build("label_propagation", neighbors=4)
        return refine.refined_prototypes(method, support, labels, u)

    assert torch.autograd.gradcheck(refined, [support.requires_grad_(), u.requires_grad_()])


def test_labels_follow_a_chain_away_from_their_prototype():
    """Points on two arcs: the far ends lie nearer to the other class's label, and belong to their own."""
    angles = torch.linspace(0, 0.75 * math.pi, 20, dtype=torch.float64)
    arc = torch.stack([angles.cos(), angles.sin()], -1)
    both = torch.cat([arc, -arc])  # (40, 2), labels at the first of each
    support, u = both[[0, 20]], torch.cat([both[1:20], both[21:]])
    labels = torch.eye(2, dtype=torch.float64)
    truth = torch.arange(2).repeat_interleave(19)
    weights = refine.build("label_propagation", neighbors=2)(u, support, support, labels)
    assert (weights.argmax(-1) == truth).all()
    nearest = refine.build("soft_kmeans")(u, support)
    assert (nearest.argmax(-1) != truth).any()


def test_distractors_that_no_label_reaches_get_nothing():
    centers = 3 * torch.eye(D, dtype=torch.float64)
    support, labels = centers[:N].repeat_interleave(2, 0), episode()[1]
    u = centers[[0, 1, 2, 3, 3, 3]] + 0.01 * randn(6, D, seed=4)
    used = refine.build("label_propagation", neighbors=2)(u, centers[:N], support, labels).sum(-1)
    assert used[:3].min() > 0.9
    assert used[3:].max() < 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"neighbors": 0}, "label_propagation: neighbors must be at least 1, not 0"),
        ({"neighbors": 1.5}, "label_propagation: neighbors must be at least 1, not 1.5"),
        ({"spread": 1.0}, "label_propagation: spread must be above 0 and at most 0.99, not 1.0"),
    ],
)
def test_wrong_options_are_one_line(options, message):
    with pytest.raises(InputError, match=message):
        refine.build("label_propagation", **options)


def test_more_examples_than_can_be_compared_are_refused_before_the_work():
    support, labels = randn(2, D), torch.eye(2, dtype=torch.float64)
    with pytest.raises(InputError, match=r"all pairs of examples, at most 10,000 .* not 10,001"):
        refine.build("label_propagation")(randn(9_999, D), support, support, labels)
