"""Tensors that are nothing special, and an embedded episode of them."""

import torch


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal, in float64, so that plain loops and vectors agree closely."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def episode(*lead: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Support (6, 4), one-hot labels (6, 3), unlabeled (7, 4): sizes all different."""
    labels = torch.eye(3, dtype=torch.float64).repeat_interleave(2, 0).expand(*lead, 6, 3)
    return randn(*lead, 6, 4, seed=1), labels, randn(*lead, 7, 4, seed=2)
