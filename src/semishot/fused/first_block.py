"""The first block from uint8 images: convolution, pool, shift, ReLU, and the patches' moments.

Letters as in `encoder.py`; T = taps of a 3x3 patch and a 1, 9 C + 1, rounded up to a power of two.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from semishot.fused.layout import ROWS, SLICES, channels_last, empty_activations


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
        out = empty_activations(images, batch, runs * filters, height // 2, width // 2)
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
            images, weight, shift, channels_last(grad), parts, runs, batch, height, width,
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
