"""What the kernels share: how activations lie, and how work is cut.

Activations lie as (B, H, W, R * F). A program handles some rows (pixels) of the F filters of one run.
"""

import torch
from torch import Tensor

ROWS = 32
SLICES = 16
"""Partial sums per channel: enough programs to fill the chip, summed in a fixed order."""


def empty_activations(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(
        shape, dtype=torch.bfloat16, device=like.device, memory_format=torch.channels_last
    )


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)
