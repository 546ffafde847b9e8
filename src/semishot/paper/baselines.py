"""1-nearest neighbor and logistic regression for many episodes at once (Appendix C, Table 5).

Letters: E episodes, S support, Q query images, D features, N classes, A coordinates of a basis.
"""

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional as F

from semishot.prototypes import squared_distances

__all__ = ["adam_logistic_regression", "logistic_regression", "nearest_neighbor"]

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # Adam's


def nearest_neighbor(support: Tensor, labels: Tensor, queries: Tensor) -> Tensor:
    """(E, S, D), (S,), (E, Q, D) -> (E, Q): the label of the nearest support image."""
    return labels[squared_distances(queries, support).argmin(-1)]


def logistic_regression(support: Tensor, labels: Tensor, queries: Tensor) -> Tensor:
    """scikit-learn's `LogisticRegression()` for each episode, to convergence.

    (E, S, D), (S,), (E, Q, D) -> (E, Q, N), the scores of the classes. Its minimum has weights in the span of
    the support: a component outside it changes no score of the support and costs |W|^2. So the fit happens
    in an orthonormal basis of that span, S coordinates instead of D.
    """
    basis = torch.linalg.qr(support.mT).Q  # (E, D, A)
    model, scores = LogisticRegression(tol=1e-8, max_iter=10_000), []
    for x, q in zip((support @ basis).cpu(), (queries @ basis).cpu(), strict=True):
        scores.append(model.fit(x, labels.cpu()).decision_function(q))
    return torch.from_numpy(np.stack(scores)).to(support.device)


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
