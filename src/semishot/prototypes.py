"""Prototypes, class probabilities, the episode loss (Eqs. 1-3), and how weights are drawn.

Letters: N classes, P examples, Q queries, D embedding dimensions; `...` any leading axes.
"""

import math

import torch
from torch import Tensor

from semishot.errors import InputError

SHORTEST = 1e-6
"""Added to squared lengths that something is divided by."""

__all__ = ["class_log_probs", "class_prototypes", "episode_loss", "squared_distances"]


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """(..., A, D), (..., B, D) -> (..., A, B): squared Euclidean distances.

    |a - b|^2 = |a|^2 - 2 ab + |b|^2 avoids the (..., A, B, D) array of differences. Far from the origin
    this form loses digits, so the mean of b is subtracted from both, which changes no distance.
    Distances that are not finite raise `InputError`, except while gradients are recorded: training
    checks the loss instead.
    """
    center = b.mean(-2, keepdim=True).detach()  # (..., 1, D)
    a, b = a - center, b - center
    aa = a.square().sum(-1).unsqueeze(-1)  # (..., A, 1)
    bb = b.square().sum(-1).unsqueeze(-2)  # (..., 1, B)
    d = (aa - 2 * a @ b.mT + bb).clamp_min(0)  # (..., A, B)
    if not (d.requires_grad or torch.compiler.is_compiling()):  # training checks the loss instead
        check_finite(d)
    return d


def check_finite(distances: Tensor) -> None:
    """Raise an error if any is NaN or infinite, or if their sum, which means need, overflows."""
    if not distances.sum().isfinite():
        kind = str(distances.dtype).removeprefix("torch.")
        raise InputError(
            f"distances between embeddings are not finite in {kind}: an embedding holds NaN or infinity, "
            "or is so large that its square overflows; correct or rescale the embeddings"
        )


def directions(examples: Tensor) -> Tensor:
    """(..., P, D) -> (..., P, D): where each example lies, seen from the mean of all, at unit length.

    Zero for those that differ from the mean by no more than rounding.
    """
    size = examples.detach().abs().amax((-2, -1), keepdim=True)  # their squares may vanish
    if not (examples.requires_grad or torch.compiler.is_compiling()):
        check_finite(size.square() * examples.shape[-1])
    x = (examples - examples.mean(-2, keepdim=True)) / torch.where(size > 0, size, 1)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # (..., P, 1)
    least = 8 * torch.finfo(x.dtype).eps
    found: Tensor = x / length.clamp_min(least) * (length > least)
    return found


def unit_length(examples: Tensor) -> Tensor:
    """(..., D) -> (..., D): the same directions from the origin; shorter near the origin, where a direction
    would be chance."""
    squares = examples.square().sum(-1, keepdim=True)  # (..., 1)
    if not (examples.requires_grad or torch.compiler.is_compiling()):
        check_finite(squares)
    return examples * torch.rsqrt(squares + SHORTEST)


def class_prototypes(embeddings: Tensor, weights: Tensor) -> Tensor:
    """Eqs. 1, 4, 9: (..., P, D), (..., P, N) -> (..., N, D): the weighted mean of each class.

    A class whose weights sum to zero gets the zero vector.
    """
    total = weights.sum(-2).unsqueeze(-1)  # (..., N, 1)
    return weights.mT @ embeddings / torch.where(total == 0, 1, total)


def class_log_probs(queries: Tensor, prototypes: Tensor) -> Tensor:
    """Eq. 2: (..., Q, D), (..., N, D) -> (..., Q, N): the logarithm of the class probabilities."""
    return (-squared_distances(queries, prototypes)).log_softmax(-1)


def episode_loss(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Eq. 3: (..., Q, N), (..., Q) -> (...): the mean negative log-probability of the labels."""
    return -log_probs.gather(-1, labels.unsqueeze(-1)).squeeze(-1).mean(-1)


@torch.no_grad()
def truncated_normal_(weights: Tensor, std: float, generator: torch.Generator) -> None:
    """Fill with a normal distribution of mean 0, truncated at two standard deviations.

    For u uniform in (-c, c), c = erf(sqrt(2)), this is sqrt(2) std erfinv(u). `nn.init.trunc_normal_` did
    the same up to torch 2.11, with which the published tables were trained, and then began to reject
    samples: weights must not depend on the version of torch.
    """
    cut = math.erf(math.sqrt(2.0))
    weights.uniform_(-cut, cut, generator=generator).erfinv_().mul_(std * math.sqrt(2.0))
    weights.clamp_(-2 * std, 2 * std)
