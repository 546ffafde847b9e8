"""The kernels of the first block, in the order in which an update runs them.

The four patches under a 2x2 pooling window are in one 4x4 window of pixels; all windows are laid out one
after the other, because three kernels read them. Letters as in `first_block.py`.
"""

import triton
import triton.language as tl

NO_WINNER = tl.constexpr(4)
"""Marks a window without a winner, whose output the ReLU sets to 0."""
PIXEL = tl.constexpr(256 / 255)
"""Pixels are divided by 256, which is exact, not by 255: weights make up for it."""


@triton.jit(do_not_specialize=["batch", "height", "width"])
def window_kernel(
    pairs, windows, batch, height, width,
    C: tl.constexpr, WORDS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The 4x4 pixels around each pooling window of a run, channel by channel, then zeros.

    A window is WORDS words of four pixels in a row, which are read from three pairs of pixels.
    """
    run = tl.program_id(1)
    half = width // 2
    cells = (height // 2) * half
    window = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    image, cell = (window // cells)[:, None], window % cells
    word = tl.arange(0, WORDS)[None, :]
    y = 2 * (cell // half)[:, None] - 1 + word % 4
    x = (cell % half)[:, None]
    inside = (y >= 0) & (y < height) & (word < 4 * C) & (window < batch * cells)[:, None]
    pairs += run.to(tl.int64) * batch * C * height * half
    at = pairs + ((image * C + word // 4) * height + y) * half + x
    left = tl.load(at - 1, mask=inside & (x > 0), other=0).to(tl.int32) & 0xFFFF
    middle = tl.load(at, mask=inside, other=0).to(tl.int32) & 0xFFFF
    right = tl.load(at + 1, mask=inside & (x < half - 1), other=0).to(tl.int32) & 0xFFFF
    windows += run.to(tl.int64) * batch * cells * WORDS
    out = (left >> 8) | (middle << 8) | ((right & 0xFF) << 24)
    tl.store(windows + window[:, None] * WORDS + word, out, mask=(window < batch * cells)[:, None])


@triton.jit
def _rows(windows, row, count, T: tl.constexpr):
    """(rows, T): some windows in float16, where 0..255 are exact.

    The bits of 1024 + n are 0x6400 + n: faster than converting an integer.
    """
    at = row[:, None] * T + tl.arange(0, T)[None, :]
    value = tl.load(windows + at, mask=(row < count)[:, None], other=0)
    return (value.to(tl.uint16) | 0x6400).to(tl.float16, bitcast=True) - 1024.0


@triton.jit(do_not_specialize=["count", "parts"])
def gram_kernel(windows, grams, count, parts, C: tl.constexpr, T: tl.constexpr, ROWS: tl.constexpr):
    """A slice of a run's windows w: the sums of w w^T and, in one more row, of w."""
    run, part = tl.program_id(0), tl.program_id(1)
    windows += run.to(tl.int64) * count * T
    t = tl.arange(0, T)
    gram = tl.zeros((T, T), tl.float32)
    total = tl.zeros((ROWS, T), tl.float32)
    for first in range(part * ROWS, count, parts * ROWS):
        row = first + tl.arange(0, ROWS)
        w = _rows(windows, row, count, T)
        if T > 16 * C:  # a tap to spare is 1: its products are the sums
            one = (t == 16 * C)[None, :] & (row < count)[:, None]
            w = tl.where(one, 1.0, w).to(tl.float16)
        else:
            total += w
        gram = tl.dot(tl.trans(w), w, gram)
    grams += (run * parts + part) * (T + 1) * T
    tl.store(grams + t[:, None] * T + t[None, :], gram)
    if T == 16 * C:
        tl.store(grams + T * T + t, tl.sum(total, 0))


@triton.jit
def _tap(k, d: tl.constexpr):
    """Where number k of the patch at place d of the four is in the window."""
    return (k // 9) * 16 + ((k % 9) // 3 + d // 2) * 4 + k % 3 + d % 2


@triton.jit(do_not_specialize=["pixels"])
def fold_kernel(
    grams, weight, scale, shift, moving_mean, moving_var,
    means, covariances, norm, placed, offset, pixels, eps, momentum,
    C: tl.constexpr, T: tl.constexpr, K: tl.constexpr, F: tl.constexpr,
):  # fmt: skip
    """One run: moments -> batch norm's affine map, folded into the weights at the four places."""
    run = tl.program_id(0)
    k, f = tl.arange(0, K), tl.arange(0, F)
    real = k < 9 * C
    first = tl.zeros((K,), tl.float32)
    second = tl.zeros((K, K), tl.float32)
    grams += run * (T + 1) * T
    for d in tl.static_range(4):
        tap = _tap(k, d)
        first += tl.load(grams + 16 * C * T + tap, mask=real, other=0)
        both = real[:, None] & real[None, :]
        second += tl.load(grams + tap[:, None] * T + tap[None, :], mask=both, other=0)
    patch = first / (255.0 * pixels)
    covariance = second / (255.0 * 255.0 * pixels) - patch[:, None] * patch[None, :]
    tl.store(means + run * K + k, patch)
    tl.store(covariances + (run * K + k[:, None]) * K + k[None, :], covariance)
    weight += run * F * 9 * C
    w = tl.load(weight + f[:, None] * 9 * C + k[None, :], mask=real[None, :], other=0)  # (F, K)
    mean = tl.sum(w * patch[None, :], 1)
    var = tl.sum(tl.dot(w, covariance, input_precision="ieee") * w, 1)
    inverse = 1 / tl.sqrt(tl.maximum(var, 0) + eps)
    at = run * F + f
    gain = tl.load(scale + at) * inverse
    tl.store(offset + at, tl.load(shift + at) - mean * gain)
    norm += run * 4 * F + f
    tl.store(norm, mean)
    tl.store(norm + F, var)
    tl.store(norm + 2 * F, inverse)
    tl.store(norm + 3 * F, gain)
    old_mean, old_var = tl.load(moving_mean + at), tl.load(moving_var + at)
    tl.store(moving_mean + at, old_mean + momentum * (mean - old_mean))
    tl.store(moving_var + at, old_var + momentum * (tl.maximum(var, 0) - old_var))
    t = tl.arange(0, T)[:, None]
    for d in tl.static_range(4):
        y, x = (t % 16) // 4 - d // 2, t % 4 - d % 2
        inside = (y >= 0) & (y < 3) & (x >= 0) & (x < 3) & (t < 16 * C)
        at = f[None, :] * 9 * C + (t // 16) * 9 + y * 3 + x
        value = tl.load(weight + at, mask=inside, other=0) * gain[None, :] * PIXEL
        place = ((run * 4 + d) * T + t) * F + f[None, :]
        tl.store(placed + place, value.to(placed.dtype.element_ty))


@triton.jit(do_not_specialize=["runs", "count", "parts"])
def first_forward_kernel(
    windows, weight, shift, out, winner, runs, count, parts,
    T: tl.constexpr, F: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The largest convolution output in each window, shifted, above 0; and which of the four it was."""
    part, run = tl.program_id(0), tl.program_id(1)
    windows += run.to(tl.int64) * count * T
    f = tl.arange(0, F)[None, :]
    weight += run * 4 * T * F
    taps = weight + tl.arange(0, T)[:, None] * F + f
    weight0, weight1 = tl.load(taps), tl.load(taps + T * F)
    weight2, weight3 = tl.load(taps + 2 * T * F), tl.load(taps + 3 * T * F)
    down = tl.load(shift + run * F + f)
    for first in range(part * ROWS, count, parts * ROWS):
        row = first + tl.arange(0, ROWS)
        window = _rows(windows, row, count, T) * 0.00390625  # 1 / 256: exact
        best = tl.dot(window, weight0)
        value = tl.dot(window, weight1)
        which = tl.where(value > best, 1, 0)
        best = tl.maximum(value, best)
        value = tl.dot(window, weight2)
        which = tl.where(value > best, 2, which)
        best = tl.maximum(value, best)
        value = tl.dot(window, weight3)
        which = tl.where(value > best, 3, which)
        best = tl.maximum(value, best) + down
        place = (row[:, None] * runs + run) * F + f
        valid = (row < count)[:, None]
        tl.store(out + place, tl.maximum(best, 0).to(tl.bfloat16), mask=valid)
        tl.store(winner + place, tl.where(best > 0, which, NO_WINNER).to(tl.uint8), mask=valid)


@triton.jit(do_not_specialize=["runs", "count", "parts"])
def first_backward_kernel(
    windows, winner, grad, grads, runs, count, parts,
    T: tl.constexpr, F: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """A slice of a run's windows: the gradients (4 T, F) of the placed weight and, in one more row, of the
    shift."""
    run, part = tl.program_id(0), tl.program_id(1)
    windows += run.to(tl.int64) * count * T
    t, f = tl.arange(0, T), tl.arange(0, F)[None, :]
    zero = tl.zeros((T, F), tl.float32)
    total0, total1, total2, total3 = zero, zero, zero, zero
    shifts = tl.zeros((ROWS, F), tl.float32)
    for first in range(part * ROWS, count, parts * ROWS):
        row = first + tl.arange(0, ROWS)
        window = _rows(windows, row, count, T) * 0.00390625  # 1 / 256: exact, as is bf16
        taps = tl.trans(window.to(tl.float32).to(tl.bfloat16))  # (T, rows)
        place = (row[:, None] * runs + run) * F + f
        valid = (row < count)[:, None]
        which = tl.load(winner + place, mask=valid, other=NO_WINNER)
        g = tl.load(grad + place, mask=valid, other=0)
        shifts += tl.where(which == NO_WINNER, 0, g).to(tl.float32)
        total0 = tl.dot(taps, tl.where(which == 0, g, 0), total0)
        total1 = tl.dot(taps, tl.where(which == 1, g, 0), total1)
        total2 = tl.dot(taps, tl.where(which == 2, g, 0), total2)
        total3 = tl.dot(taps, tl.where(which == 3, g, 0), total3)
    grads += (run * parts + part) * (4 * T + 1) * F
    out = grads + t[:, None] * F + f
    tl.store(out, total0)
    tl.store(out + T * F, total1)
    tl.store(out + 2 * T * F, total2)
    tl.store(out + 3 * T * F, total3)
    tl.store(grads + 4 * T * F + tl.arange(0, F), tl.sum(shifts, 0))


@triton.jit
def fold_backward_kernel(
    grads, weight, means, covariances, norm, weight_grad, scale_grad, shift_grad,
    C: tl.constexpr, T: tl.constexpr, K: tl.constexpr, F: tl.constexpr,
):  # fmt: skip
    """One run: from the folded weights and shift to the convolution's weights and the scale.

    For weight v = gain w and shift - gain m p, with gain = scale / sqrt(w Cov w + eps) and m p = w E[p].
    """
    run = tl.program_id(0)
    k, f = tl.arange(0, K), tl.arange(0, F)
    real = k < 9 * C
    grads += run * (4 * T + 1) * F
    g = tl.zeros((F, K), tl.float32)
    for d in tl.static_range(4):
        at = (d * T + _tap(k, d)[None, :]) * F + f[:, None]
        g += tl.load(grads + at, mask=real[None, :], other=0)
    g *= PIXEL
    at = (run * F + f[:, None]) * 9 * C + k[None, :]
    w = tl.load(weight + at, mask=real[None, :], other=0)
    patch = tl.load(means + run * K + k)
    covariance = tl.load(covariances + (run * K + k[:, None]) * K + k[None, :])
    norm += run * 4 * F + f
    mean, var = tl.load(norm), tl.load(norm + F)
    inverse, gain = tl.load(norm + 2 * F), tl.load(norm + 3 * F)
    down = tl.load(grads + 4 * T * F + f)
    tl.store(shift_grad + run * F + f, down)
    gain_grad = tl.sum(g * w, 1) - down * mean
    tl.store(scale_grad + run * F + f, gain_grad * inverse)
    var_grad = -0.5 * gain_grad * gain * inverse * inverse
    var_grad = tl.where(var >= 0, var_grad, 0)
    out = g * gain[:, None] - (down * gain)[:, None] * patch[None, :]
    out += 2 * var_grad[:, None] * tl.dot(w, covariance, input_precision="ieee")
    tl.store(weight_grad + at, out, mask=real[None, :])
