"""1-nearest neighbor and logistic regression for many episodes at once (Appendix C, Table 5).

Letters: E episodes, S support, Q query images, D features, N classes, A coordinates of a basis.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from semishot.prototypes import squared_distances

__all__ = ["adam_logistic_regression", "logistic_regression", "nearest_neighbor"]

NEWTON_STEPS = 100
"""More than are ever needed: ten or twenty are enough."""
HALVINGS = 30
TOLERANCE = 1e-9
"""The largest entry of the gradient at which the fit of an episode is done."""
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # Adam's


def nearest_neighbor(support: Tensor, labels: Tensor, queries: Tensor) -> Tensor:
    """(E, S, D), (S,), (E, Q, D) -> (E, Q): the label of the nearest support image."""
    return labels[squared_distances(queries, support).argmin(-1)]


def logistic_regression(
    support: Tensor, labels: Tensor, queries: Tensor, strength: float = 1.0
) -> Tensor:
    """scikit-learn's `LogisticRegression(C=strength)` per episode, to convergence.

    (E, S, D), (S,), (E, Q, D) -> (E, Q, N), the scores of the classes. The minimum of
    1/2 |W|^2 + strength * (sum of cross-entropies), with a bias that is not penalized, has W in the
    span of the support: a component outside it changes no score of the support and costs |W|^2. So
    the fit happens in an orthonormal basis of that span, S coordinates instead of D.
    """
    basis = torch.linalg.qr(support.mT).Q  # (E, D, A)
    one_hot = F.one_hot(labels).to(support.dtype)  # (S, N)
    weights = newton(with_one(support @ basis), one_hot, strength)  # (E, A + 1, N)
    return with_one(queries @ basis) @ weights


def newton(x: Tensor, one_hot: Tensor, strength: float) -> Tensor:
    """Minimize the objective above by Newton's method: (E, S, A + 1), (S, N) -> (E, A + 1, N).

    The last row is the bias. A step that does not lower the objective of its episode is halved.
    At the minimum the weights sum to zero over the classes, since a constant added to all scores
    changes no probability and costs |W|^2. So they are W = V c' with orthonormal columns c (N, N - 1)
    that sum to zero: fewer unknowns, and a Hessian that is not singular along the biases' sum.
    """
    episodes, _, size = x.shape
    classes = one_hot.shape[-1]
    unit = torch.eye(classes, dtype=x.dtype, device=x.device)
    contrasts = torch.linalg.qr(unit[:, :-1] - 1 / classes).Q  # (N, N - 1)
    squares = (contrasts.unsqueeze(-1) * contrasts.unsqueeze(-2)).flatten(1)  # (N, (N - 1)^2)
    penalty = torch.ones(size, 1, dtype=x.dtype, device=x.device)
    penalty[-1] = 0
    ridge = torch.diag(penalty.expand(size, classes - 1).flatten())

    def objective(v: Tensor) -> Tensor:
        entropy: Tensor = -(one_hot * (x @ v @ contrasts.T).log_softmax(-1)).sum((-2, -1))
        return strength * entropy + (penalty * v.square()).sum((-2, -1)) / 2  # (E,)

    v = x.new_zeros(episodes, size, classes - 1)
    for _ in range(NEWTON_STEPS):
        p = (x @ v @ contrasts.T).softmax(-1)  # (E, S, N)
        gradient = strength * x.mT @ (p - one_hot) @ contrasts + penalty * v  # (E, A + 1, N - 1)
        if gradient.abs().max() < TOLERANCE:
            break
        mean = p @ contrasts  # (E, S, N - 1)
        curvature = (p @ squares).unflatten(-1, (classes - 1, -1))  # c' diag(p) c
        curvature = curvature - mean.unsqueeze(-1) * mean.unsqueeze(-2)  # c' (diag(p) - p p') c
        hessian = torch.einsum("esi,esj,esab->eiajb", x, x, curvature)
        factor = torch.linalg.cholesky(strength * hessian.reshape(episodes, *ridge.shape) + ridge)
        step = torch.cholesky_solve(gradient.flatten(1).unsqueeze(-1), factor).view_as(v)
        length, before = x.new_ones(episodes, 1, 1), objective(v)
        for _ in range(HALVINGS):
            worse = objective(v - length * step) > before + 1e-12 * before.abs()
            if not worse.any():
                break
            length[worse] /= 2
        v = v - length * step
    weights: Tensor = v @ contrasts.T
    return weights


def adam_logistic_regression(
    support: Tensor, labels: Tensor, queries: Tensor, rate: float, steps: int = 200
) -> Tensor:
    """Logistic regression as in the authors' code: no penalty, `steps` full-batch Adam steps.

    (E, S, D), (S,), (E, Q, D) -> (E, Q, N), the scores of the classes. It starts from zero; the code
    starts from weights of standard deviation 0.01.
    """
    x = with_one(support)  # (E, S, D + 1)
    one_hot = F.one_hot(labels).to(x.dtype).T  # (N, S)
    w = x.new_zeros(len(x), len(one_hot), x.shape[-1])  # (E, N, D + 1)
    mean, square = torch.zeros_like(w), torch.zeros_like(w)
    for step in range(1, steps + 1):
        wrong = (w @ x.mT).softmax(-2) - one_hot  # (E, N, S)
        gradient = wrong @ x / len(labels)  # (E, N, D + 1)
        mean.lerp_(gradient, 1 - BETA1)
        square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        root = square.sqrt().div_((1 - BETA2**step) ** 0.5).add_(EPSILON)
        w.addcdiv_(mean, root, value=-rate / (1 - BETA1**step))
    return with_one(queries) @ w.mT


def with_one(x: Tensor) -> Tensor:
    """(..., D) -> (..., D + 1): the last coordinate is 1 and its weight the bias."""
    return F.pad(x, (0, 1), value=1.0)
