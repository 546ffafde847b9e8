"""The first block from uint8 images: convolution, pool, shift, ReLU, and the patches' moments.

The four 3x3 patches under a 2x2 pooling window are in one 4x4 window of pixels, which is loaded once.
Letters as in `encoder.py`; T = taps of such a window, 16 C, rounded up to a power of two.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from semishot.network.fused.layout import channels_last, empty_activations, slices

GRAM, FORWARD, BACKWARD = (128, 4), (64, 4), (64, 4)
"""Rows per program, and its warps: the fastest measured values that fit into registers."""
PROGRAMS = 1024
NO_WINNER = tl.constexpr(4)
"""Marks a window without a winner, whose output the ReLU sets to 0."""
OFFSETS = ((0, 0), (0, 1), (1, 0), (1, 1))
"""Where the 3x3 patches begin in the 4x4 window, in the order in which the pool compares them."""


@triton.jit
def _windows(image, cell, height, width, C: tl.constexpr, T: tl.constexpr):
    """(rows, T): the 4x4 pixels around each pooling window, channel by channel, then zeros."""
    t = tl.arange(0, T)[None, :]
    y = 2 * (cell // (width // 2))[:, None] - 1 + (t % 16) // 4
    x = 2 * (cell % (width // 2))[:, None] - 1 + t % 4
    inside = (y >= 0) & (y < height) & (x >= 0) & (x < width) & (t < 16 * C)
    inside = inside & (cell < (height // 2) * (width // 2))[:, None]
    return tl.load(image + (t // 16) * height * width + y * width + x, mask=inside, other=0)


@triton.jit(do_not_specialize=["height", "width"])
def _gram_kernel(
    images, grams, sums, height, width, C: tl.constexpr, T: tl.constexpr, ROWS: tl.constexpr
):
    """One image: the sums over its windows w of w w^T and of w."""
    image = images + tl.program_id(0) * C * height * width
    gram = tl.zeros((T, T), tl.float32)
    total = tl.zeros((ROWS, T), tl.float32)
    for first in range(0, (height // 2) * (width // 2), ROWS):
        w = _windows(image, first + tl.arange(0, ROWS), height, width, C, T)
        total += w.to(tl.float32)
        w = w.to(tl.bfloat16)  # 0..255 are exact
        gram = tl.dot(tl.trans(w), w, gram)
    t = tl.arange(0, T)
    tl.store(grams + (tl.program_id(0) * T + t[:, None]) * T + t[None, :], gram)
    tl.store(sums + tl.program_id(0) * T + t, tl.sum(total, 0))


@triton.jit
def _convolved(window, weight, d: tl.constexpr, T: tl.constexpr, F: tl.constexpr):
    """(rows, F): the convolution at place d of the four in each window."""
    place = (d * T + tl.arange(0, T)[:, None]) * F + tl.arange(0, F)[None, :]
    return tl.dot(window, tl.load(weight + place))


@triton.jit(do_not_specialize=["runs", "batch", "height", "width"])
def _first_forward_kernel(
    images, weight, shift, out, winner, runs, batch, height, width,
    C: tl.constexpr, T: tl.constexpr, F: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The largest convolution output in each window, shifted, above 0; and which of the four it was."""
    run, b = tl.program_id(0) // batch, tl.program_id(0) % batch
    cells = (height // 2) * (width // 2)
    cell = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    window = _windows(images + tl.program_id(0) * C * height * width, cell, height, width, C, T)
    window = (window.to(tl.float32) / 256).to(tl.float16)  # exact
    weight += run * 4 * T * F
    best = _convolved(window, weight, 0, T, F)
    which = tl.zeros_like(best).to(tl.int32)
    for d in tl.static_range(1, 4):
        value = _convolved(window, weight, d, T, F)
        which = tl.where(value > best, d, which)
        best = tl.maximum(value, best)
    f = tl.arange(0, F)[None, :]
    value = best + tl.load(shift + run * F + f)
    place = ((b * cells + cell[:, None]) * runs + run) * F + f
    valid = (cell < cells)[:, None]
    tl.store(out + place, tl.maximum(value, 0).to(tl.bfloat16), mask=valid)
    tl.store(winner + place, tl.where(value > 0, which, NO_WINNER).to(tl.uint8), mask=valid)


@triton.jit(do_not_specialize=["runs", "batch", "height", "width", "parts"])
def _first_backward_kernel(
    images, winner, grad, weight_grads, shift_grads, runs, batch, height, width, parts,
    C: tl.constexpr, T: tl.constexpr, F: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """A slice of a run's windows: the gradients (4, T, F) of the weight and (F,) of the shift."""
    run, part = tl.program_id(0), tl.program_id(1)
    cells = (height // 2) * (width // 2)
    tiles = tl.cdiv(cells, ROWS)
    t, f = tl.arange(0, T), tl.arange(0, F)[None, :]
    zero = tl.zeros((T, F), tl.float32)
    total0, total1, total2, total3 = zero, zero, zero, zero
    shifts = tl.zeros((ROWS, F), tl.float32)
    for tile in range(part, batch * tiles, parts):
        b, cell = tile // tiles, (tile % tiles) * ROWS + tl.arange(0, ROWS)
        window = _windows(
            images + (run * batch + b) * C * height * width, cell, height, width, C, T
        )
        taps = tl.trans((window.to(tl.float32) / 256).to(tl.bfloat16))  # (T, rows), exact
        place = ((b * cells + cell[:, None]) * runs + run) * F + f
        valid = (cell < cells)[:, None]
        which = tl.load(winner + place, mask=valid, other=NO_WINNER)
        g = tl.load(grad + place, mask=valid, other=0)
        shifts += tl.where(which == NO_WINNER, 0, g).to(tl.float32)
        total0 = tl.dot(taps, tl.where(which == 0, g, 0), total0)
        total1 = tl.dot(taps, tl.where(which == 1, g, 0), total1)
        total2 = tl.dot(taps, tl.where(which == 2, g, 0), total2)
        total3 = tl.dot(taps, tl.where(which == 3, g, 0), total3)
    out = weight_grads + ((run * parts + part) * 4 * T + t[:, None]) * F + f
    tl.store(out, total0)
    tl.store(out + T * F, total1)
    tl.store(out + 2 * T * F, total2)
    tl.store(out + 3 * T * F, total3)
    tl.store(shift_grads + (run * parts + part) * F + tl.arange(0, F), tl.sum(shifts, 0))


class FirstBlock(torch.autograd.Function):
    """Convolution at the four places of each window, max-pool, shift (R, F), ReLU."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, shift: Tensor) -> Tensor:
        """`weight` (R, 4, T, F) is for pixels divided by 256; float16 has as many digits as TF32."""
        runs, batch, channels, height, width = images.shape
        taps, filters = weight.shape[2:]
        shape = (batch, runs * filters, height // 2, width // 2)
        out = empty_activations(images, *shape)
        winner = empty_activations(images, *shape, dtype=torch.uint8)
        rows, warps = FORWARD
        grid = (runs * batch, triton.cdiv((height // 2) * (width // 2), rows))
        _first_forward_kernel[grid](
            images, weight.to(torch.float16).contiguous(), shift, out, winner,
            runs, batch, height, width, channels, taps, filters, rows, num_warps=warps,
        )  # fmt: skip
        ctx.save_for_backward(images, winner)
        ctx.shape = runs, taps, filters
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor]:
        images, winner = ctx.saved_tensors
        batch, channels, height, width = images.shape[1:]
        runs, taps, filters = ctx.shape
        rows, warps = BACKWARD
        parts = slices(runs, PROGRAMS)
        weight_grads = torch.empty(runs, parts, 4, taps, filters, device=grad.device)
        shift_grads = torch.empty(runs, parts, filters, device=grad.device)
        _first_backward_kernel[(runs, parts)](
            images, winner, channels_last(grad), weight_grads, shift_grads,
            runs, batch, height, width, parts, channels, taps, filters, rows, num_warps=warps,
        )  # fmt: skip
        return None, weight_grads.sum(1), shift_grads.sum(1)


def first_block(images: Tensor, weight: Tensor, shift: Tensor) -> Tensor:
    """uint8 (R, B, C, H, W), (R, F, C, 3, 3), (R, F) -> (B, R * F, H / 2, W / 2) in bf16."""
    channels = images.shape[2]
    placed = [F.pad(weight, (x, 1 - x, y, 1 - y)) for y, x in OFFSETS]  # (R, F, C, 4, 4) each
    windows = torch.stack(placed, 1).flatten(3).mT * (256 / 255)  # (R, 4, 16 C, F)
    padded = F.pad(windows, (0, 0, 0, taps_of(channels) - 16 * channels))
    out: Tensor = FirstBlock.apply(images, padded, shift)  # type: ignore[no-untyped-call]
    return out


def patch_moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """`encoder.patch_moments` of uint8 images of even height and width."""
    runs, batch, channels, height, width = images.shape
    taps, used = taps_of(channels), 16 * channels
    grams = torch.empty(runs, batch, taps, taps, device=images.device)
    sums = torch.empty(runs, batch, taps, device=images.device)
    rows, warps = GRAM
    _gram_kernel[(runs * batch,)](
        images, grams, sums, height, width, channels, taps, rows, num_warps=warps
    )
    gram = grams.sum(1)[:, :used, :used].reshape(runs, channels, 4, 4, channels, 4, 4)
    total = sums.sum(1)[:, :used].reshape(runs, channels, 4, 4)
    pixels = batch * height * width
    mean = torch.stack([total[:, :, y : y + 3, x : x + 3] for y, x in OFFSETS]).sum(0)
    second = torch.stack(
        [gram[:, :, y : y + 3, x : x + 3, :, y : y + 3, x : x + 3] for y, x in OFFSETS]
    ).sum(0)  # (R, C, 3, 3, C, 3, 3)
    mean = mean.flatten(1) / (255 * pixels)  # (R, 9 C)
    second = second.flatten(4).flatten(1, 3) / (255**2 * pixels)  # (R, 9 C, 9 C)
    return mean, second - mean.unsqueeze(-1) * mean.unsqueeze(-2)


def taps_of(channels: int) -> int:
    return int(triton.next_power_of_2(16 * channels))
