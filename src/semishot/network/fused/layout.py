"""Shared by the kernels: the layout of activations, and how work is divided.

Activations are (B, H, W, R * F) in memory. A program handles some rows (pixels) of the F filters of one run.
"""

import torch
from torch import Tensor


def slices(runs: int, programs: int) -> int:
    """Partial sums per run, added up in a fixed order: about `programs` in all to fill the chip."""
    return max(4, programs // runs)


def empty_activations(like: Tensor, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=like.device, memory_format=torch.channels_last)


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)
