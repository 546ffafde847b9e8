"""The encoder's blocks fused for CUDA (Triton), in bf16; `encoder.py` holds the plain reference.

Activations lie as (B, H, W, R * F). A program handles some rows (pixels) of the F filters of one run.
Letters as in `encoder.py`; T = taps of a 3x3 patch, 9 C rounded up to a power of two.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS = 32
SLICES = 16
"""Partial sums per channel: enough programs to fill the chip, summed in a fixed order."""


@triton.jit
def _patches(image, y, x, valid, height, width, C: tl.constexpr, T: tl.constexpr):
    """(rows, T): the 3x3 patches around (y, x), then a 1 for each valid row, then zeros."""
    t = tl.arange(0, T)[None, :]
    py = y[:, None] + (t % 9) // 3 - 1
    px = x[:, None] + t % 3 - 1
    inside = (py >= 0) & (py < height) & (px >= 0) & (px < width) & (t < 9 * C) & valid[:, None]
    pixels = tl.load(image + (t // 9) * height * width + py * width + px, mask=inside, other=0)
    return tl.where((t == 9 * C) & valid[:, None], 1, pixels)


@triton.jit(do_not_specialize=["height", "width"])
def _gram_kernel(images, out, height, width, C: tl.constexpr, T: tl.constexpr, ROWS: tl.constexpr):
    """One image: the sum over its pixels of p p^T, for patches p with a 1 appended."""
    image = images + tl.program_id(0) * C * height * width
    total = tl.zeros((T, T), tl.float32)
    for first in range(0, height * width, ROWS):
        row = first + tl.arange(0, ROWS)
        p = _patches(image, row // width, row % width, row < height * width, height, width, C, T)
        p = p.to(tl.bfloat16)  # 0..255 are exact
        total = tl.dot(tl.trans(p), p, total)
    t = tl.arange(0, T)
    tl.store(out + tl.program_id(0) * T * T + t[:, None] * T + t[None, :], total)


@triton.jit
def _best_of_four(
    image, weight, py, px, valid, height, width, C: tl.constexpr, T: tl.constexpr, F: tl.constexpr
):
    """(rows, F): the largest convolution output in each 2x2 window, and which of the four it was."""
    w = tl.load(weight + tl.arange(0, T)[:, None] * F + tl.arange(0, F)[None, :])
    for d in tl.static_range(4):
        p = _patches(image, 2 * py + d // 2, 2 * px + d % 2, valid, height, width, C, T)
        value = tl.dot(p.to(tl.float32), w, input_precision="tf32")
        if d == 0:
            best = value
            which = tl.zeros_like(value).to(tl.int32)
        else:
            which = tl.where(value > best, d, which)
            best = tl.maximum(value, best)
    return best, which


@triton.jit(do_not_specialize=["runs", "batch", "height", "width"])
def _first_forward_kernel(
    images, weight, shift, out, runs, batch, height, width,
    C: tl.constexpr, T: tl.constexpr, F: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    run, b = tl.program_id(0) // batch, tl.program_id(0) % batch
    cells = (height // 2) * (width // 2)
    cell = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    image = images + tl.program_id(0) * C * height * width
    py, px = cell // (width // 2), cell % (width // 2)
    best, _ = _best_of_four(
        image, weight + run * T * F, py, px, cell < cells, height, width, C, T, F
    )
    f = tl.arange(0, F)[None, :]
    value = tl.maximum(best + tl.load(shift + run * F + f), 0)
    place = ((b * cells + cell[:, None]) * runs + run) * F + f
    tl.store(out + place, value.to(tl.bfloat16), mask=(cell < cells)[:, None])


@triton.jit(do_not_specialize=["runs", "batch", "height", "width"])
def _first_backward_kernel(
    images, weight, shift, grad, out, runs, batch, height, width,
    C: tl.constexpr, T: tl.constexpr, F: tl.constexpr, ROWS: tl.constexpr, SLICES: tl.constexpr,
):  # fmt: skip
    """A slice of a run's images: the gradient (T, F) of its folded weight and, in row 9 C, shift."""
    run, part = tl.program_id(0), tl.program_id(1)
    cells = (height // 2) * (width // 2)
    t, f = tl.arange(0, T), tl.arange(0, F)[None, :]
    bias = tl.load(shift + run * F + f)
    total = tl.zeros((T, F), tl.float32)
    for b in range(part, batch, SLICES):
        image = images + (run * batch + b) * C * height * width
        for first in range(0, cells, ROWS):
            cell = first + tl.arange(0, ROWS)
            valid = cell < cells
            py, px = cell // (width // 2), cell % (width // 2)
            best, which = _best_of_four(
                image, weight + run * T * F, py, px, valid, height, width, C, T, F
            )
            place = ((b * cells + cell[:, None]) * runs + run) * F + f
            g = tl.load(grad + place, mask=valid[:, None], other=0).to(tl.float32)
            g = tl.where(best + bias > 0, g, 0)
            for d in tl.static_range(4):
                p = _patches(image, 2 * py + d // 2, 2 * px + d % 2, valid, height, width, C, T)
                mine = tl.where(which == d, g, 0).to(tl.bfloat16)
                total = tl.dot(tl.trans(p.to(tl.bfloat16)), mine, total)
    tl.store(out + ((run * SLICES + part) * T + t[:, None]) * F + f, total)


class FirstBlock(torch.autograd.Function):
    """Convolution by a folded weight (R, T, F), max-pool, shift (R, F), ReLU, from uint8 images."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, shift: Tensor) -> Tensor:
        runs, batch, channels, height, width = images.shape
        taps, filters = weight.shape[1:]
        out = _activations(images, batch, runs * filters, height // 2, width // 2)
        grid = (runs * batch, triton.cdiv((height // 2) * (width // 2), ROWS))
        _first_forward_kernel[grid](
            images, weight, shift, out, runs, batch, height, width, channels, taps, filters, ROWS
        )
        ctx.save_for_backward(images, weight, shift)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor]:
        images, weight, shift = ctx.saved_tensors
        runs, batch, channels, height, width = images.shape
        taps, filters = weight.shape[1:]
        parts = torch.empty(runs, SLICES, taps, filters, device=grad.device)
        _first_backward_kernel[(runs, SLICES)](
            images, weight, shift, _channels_last(grad), parts, runs, batch, height, width,
            channels, taps, filters, ROWS, SLICES,
        )  # fmt: skip
        total = parts.sum(1)  # (R, T, F)
        return None, total, total[:, 9 * channels]


def first_block(images: Tensor, weight: Tensor, shift: Tensor) -> Tensor:
    out: Tensor = FirstBlock.apply(images, weight, shift)  # type: ignore[no-untyped-call]
    return out


def patch_gram(images: Tensor) -> Tensor:
    """uint8 (R, B, C, H, W) -> (R, T, T): the mean of p p^T over a run's pixels, p in [0, 1] with a 1."""
    runs, batch, channels, height, width = images.shape
    taps = taps_of(channels)
    sums = torch.empty(runs, batch, taps, taps, device=images.device)
    _gram_kernel[(runs * batch,)](images, sums, height, width, channels, taps, ROWS)
    scale = torch.ones(taps, device=images.device)
    scale[: 9 * channels] = 1 / 255
    return sums.sum(1) * (scale[:, None] * scale[None, :] / (batch * height * width))


def taps_of(channels: int) -> int:
    return max(16, int(triton.next_power_of_2(9 * channels + 1)))


@triton.jit(do_not_specialize=["rows"])
def _statistics_kernel(
    x, out, rows, channels, F: tl.constexpr, ROWS: tl.constexpr, SLICES: tl.constexpr
):
    """A slice of the rows: the sum and the sum of squares of F channels."""
    f = tl.program_id(0) * F + tl.arange(0, F)[None, :]
    one, two = tl.zeros((ROWS, F), tl.float32), tl.zeros((ROWS, F), tl.float32)
    for first in range(tl.program_id(1) * ROWS, rows, SLICES * ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        value = tl.load(x + row * channels + f, mask=row < rows, other=0).to(tl.float32)
        one += value
        two += value * value
    place = out + tl.program_id(1) * 2 * channels + tl.program_id(0) * F + tl.arange(0, F)
    tl.store(place, tl.sum(one, 0))
    tl.store(place + channels, tl.sum(two, 0))


@triton.jit(do_not_specialize=["rows"])
def _fold_kernel(
    parts, scale, shift, moving_mean, moving_var, norm, rows, channels, eps, momentum,
    F: tl.constexpr, SLICES: tl.constexpr,
):  # fmt: skip
    """Sums -> mean, 1 / deviation, and the affine map; the moving averages take their step."""
    f = tl.program_id(0) * F + tl.arange(0, F)
    s = tl.arange(0, SLICES)[:, None] * 2 * channels + f[None, :]
    mean = tl.sum(tl.load(parts + s), 0) / rows
    var = tl.maximum(tl.sum(tl.load(parts + s + channels), 0) / rows - mean * mean, 0)
    inverse = 1 / tl.sqrt(var + eps)
    gain = tl.load(scale + f) * inverse
    tl.store(norm + f, mean)
    tl.store(norm + channels + f, inverse)
    tl.store(norm + 2 * channels + f, gain)
    tl.store(norm + 3 * channels + f, tl.load(shift + f) - mean * gain)
    old_mean, old_var = tl.load(moving_mean + f), tl.load(moving_var + f)
    tl.store(moving_mean + f, old_mean + momentum * (mean - old_mean))
    tl.store(moving_var + f, old_var + momentum * (var * rows / (rows - 1) - old_var))


@triton.jit(do_not_specialize=["batch", "height", "width"])
def _pool_forward_kernel(
    x, norm, out, batch, height, width, channels, F: tl.constexpr, ROWS: tl.constexpr
):
    across, cells = width // 2, (height // 2) * (width // 2)
    cell = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    f = tl.program_id(1) * F + tl.arange(0, F)[None, :]
    valid = cell < batch * cells
    gain, offset = tl.load(norm + 2 * channels + f), tl.load(norm + 3 * channels + f)
    best = tl.zeros((ROWS, F), tl.float32)  # the ReLU
    b, within = cell // cells, cell % cells
    corner = ((b * height + 2 * (within // across)) * width + 2 * (within % across)) * channels + f
    for d in tl.static_range(4):
        place = corner + ((d // 2) * width + d % 2) * channels
        value = tl.load(x + place, mask=valid, other=0).to(tl.float32)
        best = tl.maximum(best, value * gain + offset)
    tl.store(out + cell * channels + f, best.to(tl.bfloat16), mask=valid)


@triton.jit
def _winner(x, norm, corner, valid, width, channels, f, F: tl.constexpr, ROWS: tl.constexpr):
    """The input of each window that won the pool, which of the four it was, and whether above 0."""
    gain, offset = tl.load(norm + 2 * channels + f), tl.load(norm + 3 * channels + f)
    best = tl.full((ROWS, F), float("-inf"), tl.float32)
    winner = tl.zeros((ROWS, F), tl.float32)
    which = tl.zeros((ROWS, F), tl.int32)
    for d in tl.static_range(4):
        place = corner + ((d // 2) * width + d % 2) * channels
        value = tl.load(x + place, mask=valid, other=0).to(tl.float32)
        score = value * gain + offset
        which = tl.where(score > best, d, which)
        winner = tl.where(score > best, value, winner)
        best = tl.maximum(score, best)
    return winner, which, best > 0


@triton.jit(do_not_specialize=["batch", "height", "width"])
def _pool_sums_kernel(
    x, norm, grad, out, batch, height, width, channels,
    F: tl.constexpr, ROWS: tl.constexpr, SLICES: tl.constexpr,
):  # fmt: skip
    """A slice of the windows: the sums of g and of g x over the winners, for F channels."""
    across, cells = width // 2, (height // 2) * (width // 2)
    f = tl.program_id(0) * F + tl.arange(0, F)[None, :]
    one, two = tl.zeros((ROWS, F), tl.float32), tl.zeros((ROWS, F), tl.float32)
    for first in range(tl.program_id(1) * ROWS, batch * cells, SLICES * ROWS):
        cell = first + tl.arange(0, ROWS)[:, None]
        valid = cell < batch * cells
        b, within = cell // cells, cell % cells
        corner = (
            (b * height + 2 * (within // across)) * width + 2 * (within % across)
        ) * channels + f
        winner, _, active = _winner(x, norm, corner, valid, width, channels, f, F, ROWS)
        g = tl.load(grad + cell * channels + f, mask=valid, other=0).to(tl.float32)
        g = tl.where(active, g, 0)
        one += g
        two += g * winner
    place = out + tl.program_id(1) * 2 * channels + tl.program_id(0) * F + tl.arange(0, F)
    tl.store(place, tl.sum(one, 0))
    tl.store(place + channels, tl.sum(two, 0))


@triton.jit(do_not_specialize=["rows"])
def _fold_backward_kernel(
    parts, norm, grads, rows, channels, F: tl.constexpr, SLICES: tl.constexpr
):
    """Sums -> the gradients of scale and shift, and the two constants of the input's gradient."""
    f = tl.program_id(0) * F + tl.arange(0, F)
    s = tl.arange(0, SLICES)[:, None] * 2 * channels + f[None, :]
    g = tl.sum(tl.load(parts + s), 0)
    gx = tl.sum(tl.load(parts + s + channels), 0)
    mean, inverse = tl.load(norm + f), tl.load(norm + channels + f)
    scale_grad = inverse * (gx - mean * g)
    tl.store(grads + f, scale_grad)
    tl.store(grads + channels + f, g)
    tl.store(grads + 2 * channels + f, g / rows)
    tl.store(grads + 3 * channels + f, inverse * scale_grad / rows)


@triton.jit(do_not_specialize=["batch", "height", "width"])
def _pool_backward_kernel(
    x, norm, grads, grad, out, batch, height, width, channels,
    F: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """dx = gain (dy - mean(dy) - x^ mean(dy x^)); dy is g at each window's winner, else 0."""
    across, down = (width + 1) // 2, (height + 1) // 2  # windows that overhang have no winner
    cell = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    f = tl.program_id(1) * F + tl.arange(0, F)[None, :]
    b, cy, cx = cell // (down * across), (cell // across) % down, cell % across
    exists = b < batch
    whole = exists & (cy < height // 2) & (cx < width // 2)
    corner = ((b * height + 2 * cy) * width + 2 * cx) * channels + f
    _, which, active = _winner(x, norm, corner, whole, width, channels, f, F, ROWS)
    pooled = ((b * (height // 2) + cy) * (width // 2) + cx) * channels + f
    g = tl.load(grad + pooled, mask=whole, other=0).to(tl.float32)
    g = tl.where(active, g, 0)
    mean, gain = tl.load(norm + f), tl.load(norm + 2 * channels + f)
    first, second = tl.load(grads + 2 * channels + f), tl.load(grads + 3 * channels + f)
    for d in tl.static_range(4):
        inside = exists & (2 * cy + d // 2 < height) & (2 * cx + d % 2 < width)
        place = corner + ((d // 2) * width + d % 2) * channels
        value = tl.load(x + place, mask=inside, other=0).to(tl.float32)
        dx = gain * (tl.where(which == d, g, 0) - first - (value - mean) * second)
        tl.store(out + place, dx.to(tl.bfloat16), mask=inside)


class NormReluPool(torch.autograd.Function):
    """Batch norm by the batch's statistics, ReLU, max-pool; the moving averages take their step."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        scale: Tensor,
        shift: Tensor,
        moving_mean: Tensor,
        moving_var: Tensor,
        eps: float,
        momentum: float,
    ) -> Tensor:
        x = _channels_last(x)
        batch, channels, height, width = x.shape
        filters, groups = scale.shape[-1], scale.shape[0]
        rows = batch * height * width
        parts = torch.empty(SLICES, 2, channels, device=x.device)
        norm = torch.empty(4, channels, device=x.device)
        _statistics_kernel[(groups, SLICES)](x, parts, rows, channels, filters, ROWS, SLICES)
        _fold_kernel[(groups,)](
            parts, scale, shift, moving_mean, moving_var, norm, rows, channels, eps, momentum,
            filters, SLICES,
        )  # fmt: skip
        out = _activations(x, batch, channels, height // 2, width // 2)
        cells = batch * (height // 2) * (width // 2)
        _pool_forward_kernel[(triton.cdiv(cells, ROWS), groups)](
            x, norm, out, batch, height, width, channels, filters, ROWS
        )
        ctx.save_for_backward(x, norm)
        ctx.groups = groups
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, norm = ctx.saved_tensors
        grad = _channels_last(grad)
        batch, channels, height, width = x.shape
        filters = channels // ctx.groups
        parts = torch.empty(SLICES, 2, channels, device=x.device)
        grads = torch.empty(4, channels, device=x.device)
        _pool_sums_kernel[(ctx.groups, SLICES)](
            x, norm, grad, parts, batch, height, width, channels, filters, ROWS, SLICES
        )
        _fold_backward_kernel[(ctx.groups,)](
            parts, norm, grads, batch * height * width, channels, filters, SLICES
        )
        out = torch.empty_like(x)
        cells = batch * ((height + 1) // 2) * ((width + 1) // 2)
        _pool_backward_kernel[(triton.cdiv(cells, ROWS), ctx.groups)](
            x, norm, grads, grad, out, batch, height, width, channels, filters, ROWS
        )
        shape = (ctx.groups, filters)
        return out, grads[0].view(shape), grads[1].view(shape), None, None, None, None


def norm_relu_pool(
    x: Tensor,
    scale: Tensor,
    shift: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    eps: float,
    momentum: float,
) -> Tensor:
    out: Tensor = NormReluPool.apply(  # type: ignore[no-untyped-call]
        x, scale, shift, moving_mean, moving_var, eps, momentum
    )
    return out


def _activations(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(
        shape, dtype=torch.bfloat16, device=like.device, memory_format=torch.channels_last
    )


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)
