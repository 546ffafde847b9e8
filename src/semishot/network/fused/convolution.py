"""3x3 convolutions of all runs at once, F filters to F, in bf16: forward and both gradients.

cuDNN's rule sometimes cuts such a convolution into one per run, with copies in between. These kernels treat
all fleets alike; cuDNN's are used where they are faster. Letters as in `encoder.py`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from semishot.network.fused.launching import launch
from semishot.network.fused.layout import channels_last, empty_activations
from semishot.network.fused.norm_relu_pool import statistics

FORWARD, BACK, WEIGHT = (128, 4, 3), (128, 8, 3), (64, 4, 3)
"""Rows per step, warps and stages of a program: the fastest measured."""
WEIGHT_PROGRAMS, LEAST_ROWS = 256, 1024
"""About so many programs, each with at least so many rows."""
MOST_ROWS, MOST_ROWS_OF_WEIGHT, FEW_RUNS = 2**16, 20_000, 8
"""With more rows (pixels of a run) cuDNN is faster, except for few runs."""
FILTERS_AT_ONCE = tl.constexpr(16)


@triton.jit(do_not_specialize=["rows", "height", "width"])
def _convolve_kernel(
    x, packed, out, parts, rows, height, width, channels,
    F: tl.constexpr, ROWS: tl.constexpr, BACK: tl.constexpr,
):  # fmt: skip
    """Some rows (pixels) of one run. Forward, also the sums of the outputs and of their squares.

    BACK: from the outputs' gradient to the inputs', the taps turned round and the weights transposed.
    """
    run = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    f = tl.arange(0, F)
    down, across = (row // width) % height, row % width
    total = tl.zeros((ROWS, F), tl.float32)
    for tap in range(9):
        y, z = tap // 3 - 1, tap % 3 - 1
        inside = (down + y >= 0) & (down + y < height) & (across + z >= 0) & (across + z < width)
        inside = inside & (row < rows)
        at = (row + y * width + z)[:, None] * channels + run * F + f[None, :]
        value = tl.load(x + at, mask=inside[:, None], other=0)
        if BACK:
            w = tl.load(packed + ((run * F + f[:, None]) * 9 + 8 - tap) * F + f[None, :])
        else:
            w = tl.load(packed + ((run * F + f[None, :]) * 9 + tap) * F + f[:, None])
        total = tl.dot(value, w, total)
    rounded = total.to(tl.bfloat16)
    tl.store(
        out + row[:, None] * channels + run * F + f[None, :], rounded, mask=(row < rows)[:, None]
    )
    if not BACK:
        value = rounded.to(tl.float32)  # rows beyond the last are zero
        place = parts + tl.program_id(0) * 2 * channels + run * F + f
        tl.store(place, tl.sum(value, 0))
        tl.store(place + channels, tl.sum(value * value, 0))


@triton.jit(do_not_specialize=["rows", "height", "width", "slices"])
def _weight_grad_kernel(
    x, grad, parts, rows, height, width, channels, slices,
    F: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """A slice of a run's rows: the gradient (3, F in, F out) of one row of taps."""
    run, y, part = tl.program_id(0) // 3, tl.program_id(0) % 3, tl.program_id(1)
    f = tl.arange(0, F)
    left = tl.zeros((F, F), tl.float32)
    middle, right = left, left
    for first in range(part * ROWS, rows, slices * ROWS):
        row = first + tl.arange(0, ROWS)
        down, across = (row // width) % height + y - 1, row % width
        inside = (row < rows) & (down >= 0) & (down < height)
        g = tl.load(
            grad + row[:, None] * channels + run * F + f[None, :],
            mask=(row < rows)[:, None],
            other=0,
        )
        at = (row + (y - 1) * width)[:, None] * channels + run * F + f[None, :]
        value = tl.load(x + at - channels, mask=(inside & (across > 0))[:, None], other=0)
        left = tl.dot(tl.trans(value), g, left)
        value = tl.load(x + at, mask=inside[:, None], other=0)
        middle = tl.dot(tl.trans(value), g, middle)
        value = tl.load(x + at + channels, mask=(inside & (across < width - 1))[:, None], other=0)
        right = tl.dot(tl.trans(value), g, right)
    out = ((run * slices + part) * 9 + y * 3) * F * F + f[:, None] * F + f[None, :]
    tl.store(parts + out, left)
    tl.store(parts + out + F * F, middle)
    tl.store(parts + out + 2 * F * F, right)


@triton.jit(do_not_specialize=["slices"])
def _unpack_kernel(parts, out, slices, F: tl.constexpr, M: tl.constexpr):
    """The slices' sum, (9, F in, F out) -> (F out, F in, 9), for some filters of one run."""
    run = tl.program_id(0)
    o = tl.program_id(1) * FILTERS_AT_ONCE + tl.arange(0, FILTERS_AT_ONCE)[None, :]
    m = tl.arange(0, M)[:, None]
    total = tl.zeros((M, FILTERS_AT_ONCE), tl.float32)
    for part in range(slices):
        at = (((run * slices + part) * 9 + m % 9) * F + m // 9) * F + o
        total += tl.load(parts + at, mask=m < 9 * F, other=0)
    tl.store(out + (run * F + o) * 9 * F + m, total, mask=m < 9 * F)


def pack(weight: Tensor) -> Tensor:
    """(R, F out, F in, 3, 3) -> (R * F out, F in, 3, 3) in bf16, the inputs innermost."""
    return weight.flatten(0, 1).to(torch.bfloat16, memory_format=torch.channels_last)


def convolve(x: Tensor, packed: Tensor, runs: int) -> tuple[Tensor, Tensor]:
    """(B, R * F, H, W) -> the same, and the sums (tiles, 2, R * F) of outputs and of their squares."""
    batch, channels, height, width = x.shape
    rows, (tile, warps, stages) = batch * height * width, FORWARD
    if rows > MOST_ROWS and runs >= FEW_RUNS:
        out = channels_last(functional.conv2d(x, packed, padding=1, groups=runs))
        return out, statistics(out, runs)
    tiles = triton.cdiv(rows, tile)
    out = empty_activations(x, *x.shape)
    parts = torch.empty(tiles, 2, channels, device=x.device)
    launch(_convolve_kernel, (tiles, runs))(
        x, packed, out, parts, rows, height, width, channels, channels // runs, tile, False,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out, parts


def input_grad(grad: Tensor, x: Tensor, packed: Tensor, runs: int) -> Tensor:
    batch, channels, height, width = grad.shape
    rows, (tile, warps, stages) = batch * height * width, BACK
    if rows > MOST_ROWS and runs >= FEW_RUNS:
        return _by_cudnn(grad, x, packed, runs, (True, False, False))[0]
    out = empty_activations(grad, *grad.shape)
    launch(_convolve_kernel, (triton.cdiv(rows, tile), runs))(
        grad, packed, out, out, rows, height, width, channels, channels // runs, tile, True,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out


def weight_grad(grad: Tensor, x: Tensor, packed: Tensor, runs: int) -> Tensor:
    """(R, F, F, 3, 3) in float32."""
    batch, channels, height, width = x.shape
    filters = channels // runs
    shape = (runs, filters, filters, 3, 3)
    rows, (tile, warps, stages) = batch * height * width, WEIGHT
    if rows > MOST_ROWS_OF_WEIGHT:
        found = _by_cudnn(grad, x, packed, runs, (False, True, False))[1]
        return found.to(torch.float32, memory_format=torch.contiguous_format).view(shape)
    slices = max(1, min(triton.cdiv(WEIGHT_PROGRAMS, 3 * runs), rows // LEAST_ROWS))
    parts = torch.empty(runs, slices, 9, filters, filters, device=x.device)
    launch(_weight_grad_kernel, (3 * runs, slices))(
        x, grad, parts, rows, height, width, channels, slices, filters, tile,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    out = torch.empty(shape, device=x.device)
    numbers = int(triton.next_power_of_2(9 * filters))
    launch(_unpack_kernel, (runs, filters // FILTERS_AT_ONCE.value))(
        parts, out, slices, filters, numbers, num_warps=8
    )
    return out


def _by_cudnn(
    grad: Tensor, x: Tensor, packed: Tensor, runs: int, wanted: tuple[bool, bool, bool]
) -> tuple[Tensor, Tensor, Tensor]:
    ones = [1, 1]
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        grad, x, packed, None, ones, ones, ones, False, [0, 0], runs, wanted
    )
    return found
