"""Tensors that are nothing special."""

import torch


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    """Normal, in float64, so that plain loops and vectors agree closely."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)
