"""A later block: convolution, batch norm by the batch's statistics, ReLU and max-pool, both ways."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from semishot.network.fused import convolution, norm_relu_pool
from semishot.network.fused.layout import channels_last
from semishot.network.fused.norm_relu_pool import BatchNorm


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
        norm_relu_pool.check_size(x, len(weight))
        x = channels_last(x)
        packed = convolution.pack(weight)
        convolved, sums = convolution.convolve(x, packed, len(weight))
        by = BatchNorm(scale, shift, moving_mean, moving_var, eps, momentum)
        out, norm = norm_relu_pool.forward(convolved, sums, by, dtype)
        ctx.save_for_backward(x, packed, convolved, norm)
        ctx.runs = len(weight)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, packed, convolved, norm = ctx.saved_tensors
        grad, *norm_grads = norm_relu_pool.backward(convolved, norm, grad, ctx.runs)
        weight_grad = convolution.weight_grad(grad, x, packed, ctx.runs)
        x_grad = convolution.input_grad(grad, x, packed, ctx.runs)
        return x_grad, weight_grad, *norm_grads, None, None, None, None, None


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
