"""Batch norm by the batch's statistics, ReLU and max-pool, forward and backward.

Letters as in `encoder.py`.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from semishot.errors import InputError
from semishot.network.fused.launching import launch
from semishot.network.fused.layout import channels_last, empty_activations, slices

ROWS, POOL_ROWS = 32, 16
PROGRAMS = 1024
STATISTICS_WARPS = 8
"""The fastest measured."""
SLICES = tl.constexpr(32)
"""Partial sums added up at a time."""


@triton.jit(do_not_specialize=["rows", "parts"])
def _statistics_kernel(x, out, rows, channels, parts, F: tl.constexpr, ROWS: tl.constexpr):
    """A slice of the rows: the sum and the sum of squares of F channels."""
    f = tl.program_id(0) * F + tl.arange(0, F)[None, :]
    one, two = tl.zeros((ROWS, F), tl.float32), tl.zeros((ROWS, F), tl.float32)
    for first in range(tl.program_id(1) * ROWS, rows, parts * ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        value = tl.load(x + row * channels + f, mask=row < rows, other=0).to(tl.float32)
        one += value
        two += value * value
    place = out + tl.program_id(1) * 2 * channels + tl.program_id(0) * F + tl.arange(0, F)
    tl.store(place, tl.sum(one, 0))
    tl.store(place + channels, tl.sum(two, 0))


@triton.jit
def _added_up(parts, f, channels, slices, F: tl.constexpr):
    """The two sums of F channels over all slices."""
    one, two = tl.zeros((SLICES, F), tl.float32), tl.zeros((SLICES, F), tl.float32)
    for first in range(0, slices, SLICES):
        s = first + tl.arange(0, SLICES)[:, None]
        at = parts + s * 2 * channels + f[None, :]
        one += tl.load(at, mask=s < slices, other=0)
        two += tl.load(at + channels, mask=s < slices, other=0)
    return tl.sum(one, 0), tl.sum(two, 0)


@triton.jit(do_not_specialize=["rows", "slices"])
def _fold_kernel(
    parts, scale, shift, moving_mean, moving_var, norm, rows, channels, slices, eps, momentum,
    F: tl.constexpr,
):  # fmt: skip
    """Sums -> mean, 1 / deviation, and the affine map; the moving averages are updated."""
    f = tl.program_id(0) * F + tl.arange(0, F)
    one, two = _added_up(parts, f, channels, slices, F)
    mean = one / rows
    var = tl.maximum(two / rows - mean * mean, 0)
    inverse = 1 / tl.sqrt(var + eps)
    gain = tl.load(scale + f) * inverse
    tl.store(norm + f, mean)
    tl.store(norm + channels + f, inverse)
    tl.store(norm + 2 * channels + f, gain)
    tl.store(norm + 3 * channels + f, tl.load(shift + f) - mean * gain)
    old_mean, old_var = tl.load(moving_mean + f), tl.load(moving_var + f)
    tl.store(moving_mean + f, old_mean + momentum * (mean - old_mean))
    tl.store(moving_var + f, old_var + momentum * (var * rows / (rows - 1) - old_var))


@triton.jit
def _cells(runs, F: tl.constexpr, ROWS: tl.constexpr):
    """The windows and filters of a program. Its neighbors take the same windows of other runs, which are
    beside its own in memory."""
    cell = tl.program_id(0) // runs * ROWS + tl.arange(0, ROWS)[:, None]
    return cell, tl.program_id(0) % runs * F + tl.arange(0, F)[None, :]


@triton.jit(do_not_specialize=["batch", "height", "width", "runs"])
def _pool_forward_kernel(
    x, norm, out, batch, height, width, channels, runs, F: tl.constexpr, ROWS: tl.constexpr
):
    across, cells = width // 2, (height // 2) * (width // 2)
    cell, f = _cells(runs, F, ROWS)
    valid = cell < batch * cells
    gain, offset = tl.load(norm + 2 * channels + f), tl.load(norm + 3 * channels + f)
    best = tl.zeros((ROWS, F), tl.float32)  # the ReLU
    b, within = cell // cells, cell % cells
    corner = ((b * height + 2 * (within // across)) * width + 2 * (within % across)) * channels + f
    for d in tl.static_range(4):
        place = corner + ((d // 2) * width + d % 2) * channels
        value = tl.load(x + place, mask=valid, other=0).to(tl.float32)
        best = tl.maximum(best, value * gain + offset)
    tl.store(out + cell * channels + f, best.to(out.dtype.element_ty), mask=valid)


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


@triton.jit(do_not_specialize=["batch", "height", "width", "parts"])
def _pool_sums_kernel(
    x, norm, grad, out, batch, height, width, channels, parts, F: tl.constexpr, ROWS: tl.constexpr
):
    """A slice of the windows: the sums of g and of g x over the winners, for F channels."""
    across, cells = width // 2, (height // 2) * (width // 2)
    f = tl.program_id(0) * F + tl.arange(0, F)[None, :]
    one, two = tl.zeros((ROWS, F), tl.float32), tl.zeros((ROWS, F), tl.float32)
    for first in range(tl.program_id(1) * ROWS, batch * cells, parts * ROWS):
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


@triton.jit(do_not_specialize=["rows", "slices"])
def _fold_backward_kernel(parts, norm, grads, rows, channels, slices, F: tl.constexpr):
    """Sums -> the gradients of scale and shift, and the two constants of the input's gradient."""
    f = tl.program_id(0) * F + tl.arange(0, F)
    g, gx = _added_up(parts, f, channels, slices, F)
    mean, inverse = tl.load(norm + f), tl.load(norm + channels + f)
    scale_grad = inverse * (gx - mean * g)
    tl.store(grads + f, scale_grad)
    tl.store(grads + channels + f, g)
    tl.store(grads + 2 * channels + f, g / rows)
    tl.store(grads + 3 * channels + f, inverse * scale_grad / rows)


@triton.jit(do_not_specialize=["batch", "height", "width", "runs"])
def _pool_backward_kernel(
    x, norm, grads, grad, out, batch, height, width, channels, runs,
    F: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """dx = gain (dy - mean(dy) - x^ mean(dy x^)); dy is g at each window's winner, else 0."""
    across, down = (width + 1) // 2, (height + 1) // 2  # windows that overhang have no winner
    cell, f = _cells(runs, F, ROWS)
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


def check_size(x: Tensor, runs: int) -> None:
    if x.numel() >= 2**31:
        raise InputError(
            f"an update of {runs} runs has {x.numel():,} activations in one layer, more "
            "than 2**31; train fewer splits at a time"
        )


def statistics(x: Tensor, runs: int) -> Tensor:
    """(slices, 2, R * F): sums of the activations and of their squares."""
    batch, channels, height, width = x.shape
    count = slices(runs, PROGRAMS)
    parts = torch.empty(count, 2, channels, device=x.device)
    launch(_statistics_kernel, (runs, count))(
        x, parts, batch * height * width, channels, count, channels // runs, ROWS,
        num_warps=STATISTICS_WARPS,
    )  # fmt: skip
    return parts


@dataclass(frozen=True)
class BatchNorm:
    """Scale and shift (R, F), and the moving averages, which are updated."""

    scale: Tensor
    shift: Tensor
    moving_mean: Tensor
    moving_var: Tensor
    eps: float
    momentum: float


def normalize_and_pool(
    x: Tensor, parts: Tensor, by: BatchNorm, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """(B, R * F, H, W) with its sums -> (B, R * F, H / 2, W / 2), and what the backward pass needs."""
    batch, channels, height, width = x.shape
    groups, filters = by.scale.shape
    norm = torch.empty(4, channels, device=x.device)
    launch(_fold_kernel, (groups,))(
        parts, by.scale, by.shift, by.moving_mean, by.moving_var, norm, batch * height * width,
        channels, len(parts), by.eps, by.momentum, filters,
    )  # fmt: skip
    out = empty_activations(x, batch, channels, height // 2, width // 2, dtype=dtype)
    cells = batch * (height // 2) * (width // 2)
    launch(_pool_forward_kernel, (triton.cdiv(cells, POOL_ROWS) * groups,))(
        x, norm, out, batch, height, width, channels, groups, filters, POOL_ROWS
    )
    return out, norm


def normalize_and_pool_backward(
    x: Tensor, norm: Tensor, grad: Tensor, groups: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, scale and shift."""
    grad = channels_last(grad)
    batch, channels, height, width = x.shape
    filters = channels // groups
    count = slices(groups, PROGRAMS)
    parts = torch.empty(count, 2, channels, device=x.device)
    grads = torch.empty(4, channels, device=x.device)
    launch(_pool_sums_kernel, (groups, count))(
        x, norm, grad, parts, batch, height, width, channels, count, filters, ROWS
    )
    launch(_fold_backward_kernel, (groups,))(
        parts, norm, grads, batch * height * width, channels, count, filters
    )
    out = torch.empty_like(x)
    cells = batch * ((height + 1) // 2) * ((width + 1) // 2)
    launch(_pool_backward_kernel, (triton.cdiv(cells, POOL_ROWS) * groups,))(
        x, norm, grads, grad, out, batch, height, width, channels, groups, filters, POOL_ROWS
    )
    return out, grads[0].view(groups, filters), grads[1].view(groups, filters)
