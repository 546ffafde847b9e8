"""The first block from uint8 images: convolution, batch norm, ReLU and max-pool, forward and backward.

Batch norm takes its statistics from the moments of the 3x3 patches (`ConvEncoder.first_statistics`) and is
folded into the convolution. Letters as in `encoder.py`; K = 9 C numbers of a patch, T = 16 C taps of a
window, each rounded up to a power of two.
"""

from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from semishot.network.fused.first_block_kernels import (
    first_backward_kernel,
    first_forward_kernel,
    fold_backward_kernel,
    fold_kernel,
    gram_kernel,
    window_kernel,
)
from semishot.network.fused.launching import launch
from semishot.network.fused.layout import channels_last, empty_activations, slices

WINDOWS = 128
GRAM = (128, 4, 396)
FORWARD = {16: (32, 2, 2112), 64: (64, 4, 1056)}
BACKWARD = {16: (32, 4, 528), 64: (64, 4, 264)}
"""Rows per step, warps, and programs in all, by T: the fastest measured values that fit into registers."""


class FirstBlock(torch.autograd.Function):
    """The block; the moving averages are updated."""

    @staticmethod
    def forward(
        ctx: Any,
        images: Tensor,
        weight: Tensor,
        scale: Tensor,
        shift: Tensor,
        moving_mean: Tensor,
        moving_var: Tensor,
        eps: float,
        momentum: float,
    ) -> Tensor:
        """float16, for the products, has as many digits as TF32."""
        runs, batch, channels, height, width = images.shape
        filters = weight.shape[1]
        taps, numbers = (int(triton.next_power_of_2(n * channels)) for n in (16, 9))
        sizes = channels, taps, numbers, filters

        def empty(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.empty(size, dtype=dtype, device=images.device)

        count = batch * (height // 2) * (width // 2)
        windows = empty(runs, count, taps, dtype=torch.uint8)
        launch(window_kernel, (triton.cdiv(count, WINDOWS), runs))(
            images.contiguous().view(torch.int16), windows.view(torch.int32), batch, height, width,
            channels, taps // 4, WINDOWS,
        )  # fmt: skip
        rows, warps, programs = GRAM
        parts = slices(runs, programs)
        grams = empty(runs, parts, taps + 1, taps)
        launch(gram_kernel, (runs, parts))(
            windows, grams, count, parts, channels, taps, rows, num_warps=warps
        )
        means, covariances = empty(runs, numbers), empty(runs, numbers, numbers)
        norm, offset = empty(runs, 4, filters), empty(runs, filters)
        placed = empty(runs, 4, taps, filters, dtype=torch.float16)
        launch(fold_kernel, (runs,))(
            grams.sum(1), weight, scale, shift, moving_mean, moving_var,
            means, covariances, norm, placed, offset, batch * height * width, eps, momentum,
            *sizes,
        )  # fmt: skip
        shape = (batch, runs * filters, height // 2, width // 2)
        out = empty_activations(images, *shape)
        winner = empty_activations(images, *shape, dtype=torch.uint8)
        rows, warps, programs = FORWARD.get(taps, FORWARD[64])
        parts = slices(runs, programs)
        launch(first_forward_kernel, (parts, runs))(
            windows, placed, offset, out, winner, runs, count, parts, taps, filters, rows,
            num_warps=warps,
        )  # fmt: skip
        ctx.save_for_backward(windows, winner, weight, scale, means, covariances, norm)
        ctx.sizes = sizes
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        windows, winner, weight, scale, means, covariances, norm = ctx.saved_tensors
        runs, count, taps = windows.shape
        filters = weight.shape[1]
        rows, warps, programs = BACKWARD.get(taps, BACKWARD[64])
        parts = slices(runs, programs)
        grads = torch.empty(runs, parts, 4 * taps + 1, filters, device=grad.device)
        launch(first_backward_kernel, (runs, parts))(
            windows, winner, channels_last(grad), grads, runs, count, parts, taps, filters, rows,
            num_warps=warps,
        )  # fmt: skip
        weight_grad = torch.empty_like(weight)
        scale_grad, shift_grad = torch.empty_like(scale), torch.empty_like(scale)
        launch(fold_backward_kernel, (runs,))(
            grads.sum(1), weight, means, covariances, norm,
            weight_grad, scale_grad, shift_grad, *ctx.sizes,
        )  # fmt: skip
        return None, weight_grad, scale_grad, shift_grad, None, None, None, None


def first_block(
    images: Tensor,
    weight: Tensor,
    scale: Tensor,
    shift: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    eps: float,
    momentum: float,
) -> Tensor:
    """uint8 (R, B, C, H, W) of even height and width, (R, F, C, 3, 3) -> (B, R * F, H / 2, W / 2) in bf16."""
    out: Tensor = FirstBlock.apply(  # type: ignore[no-untyped-call]
        images, weight, scale, shift, moving_mean, moving_var, eps, momentum
    )
    return out
