"""A later block: convolution, batch norm by the batch's statistics, ReLU and max-pool, both ways."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from semishot.network.fused.convolution import convolve, input_grad, pack, weight_grad
from semishot.network.fused.layout import channels_last
from semishot.network.fused.norm_relu_pool import (
    BatchNorm,
    check_size,
    normalize_and_pool,
    normalize_and_pool_backward,
)


class Block(torch.autograd.Function):
    """The convolution hands its outputs' sums to batch norm; the moving averages are updated."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        scale: Tensor,
        shift: Tensor,
        moving_mean: Tensor,
        moving_var: Tensor,
        eps: float,
        momentum: float,
        dtype: torch.dtype,
    ) -> Tensor:
        check_size(x, len(weight))
        x = channels_last(x)
        packed = pack(weight)
        convolved, sums = convolve(x, packed, len(weight))
        by = BatchNorm(scale, shift, moving_mean, moving_var, eps, momentum)
        out, norm = normalize_and_pool(convolved, sums, by, dtype)
        ctx.save_for_backward(x, packed, convolved, norm)
        ctx.runs = len(weight)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, packed, convolved, norm = ctx.saved_tensors
        grad, *norm_grads = normalize_and_pool_backward(convolved, norm, grad, ctx.runs)
        of_weight = weight_grad(grad, x, packed, ctx.runs)
        of_input = input_grad(grad, x, packed, ctx.runs)
        return of_input, of_weight, *norm_grads, None, None, None, None, None


def block(
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    shift: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    eps: float,
    momentum: float,
    dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """(B, R * F, H, W) in bf16, (R, F, F, 3, 3) -> (B, R * F, H / 2, W / 2) in `dtype`."""
    out: Tensor = Block.apply(  # type: ignore[no-untyped-call]
        x, weight, scale, shift, moving_mean, moving_var, eps, momentum, dtype
    )
    return out
