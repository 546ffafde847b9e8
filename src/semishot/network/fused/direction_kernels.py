"""`refine/oslo.py` in kernels: weights from the directions of all examples, forward and backward.

With H the inner products of the V labeled and unlabeled images, J = I - 1 / V, and g one over lengths, those
of the directions are Z = g_i g_j (J H J)_ij. With C a gradient plus its transpose, as in `points.py`,

    C_JHJ = g_i g_j C_Z - g_i^2 sum_j C_Z Z on the diagonal,   C_H = J C_JHJ J.

Letters as in `steps.py`.
"""

import triton
import triton.language as tl

from semishot.network.fused.points import TILE
from semishot.network.fused.steps import class_squares, presence

SMALLEST = tl.constexpr(1e-6)
"""Of a square relative to that from the center: an image closer to the mean has no direction."""
LEAST_LENGTH = tl.constexpr(1e-12)


@triton.jit(do_not_specialize=["examples"])
def means_kernel(inner, means, examples, points):
    """(R, M): the mean inner product of each point with all examples."""
    run = tl.program_id(0)
    i = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE,), tl.float32)
    for first in range(0, examples, TILE):
        j = first + tl.arange(0, TILE)[None, :]
        h = tl.load(inner + (run * points + i[:, None]) * points + j, mask=j < examples, other=0)
        total += tl.sum(h, 1)
    tl.store(means + run * points + i, total / examples)


@triton.jit
def _total(values, run, examples, points):
    """The sum over all examples."""
    total = tl.zeros((TILE,), tl.float32)
    for first in range(0, examples, TILE):
        j = first + tl.arange(0, TILE)
        total += tl.load(values + run * points + j, mask=j < examples, other=0)
    return tl.sum(total, 0)


@triton.jit
def _direction_closeness(inner, means, mean, run, i, examples, points):
    """g, or 0 where there is no direction."""
    own = tl.load(inner + (run * points + i) * points + i)
    square = own - 2 * tl.load(means + run * points + i) + mean
    real = (i < examples) & (square > own * SMALLEST)
    return tl.where(real, tl.rsqrt(tl.where(real, square, 1)), 0)


@triton.jit(do_not_specialize=["examples"])
def directions_kernel(inner, means, out, examples, points):
    """Z, (R, M, M)."""
    run = tl.program_id(0)
    i = tl.program_id(1) * TILE + tl.arange(0, TILE)
    j = tl.program_id(2) * TILE + tl.arange(0, TILE)
    mean = _total(means, run, examples, points) / examples
    at = (run * points + i[:, None]) * points + j[None, :]
    h = tl.load(inner + at) - tl.load(means + run * points + i)[:, None]
    h += mean - tl.load(means + run * points + j)[None, :]
    g = _direction_closeness(inner, means, mean, run, i, examples, points)[:, None]
    tl.store(
        out + at,
        h * g * _direction_closeness(inner, means, mean, run, j, examples, points)[None, :],
    )


@triton.jit
def _step(
    products, before, closeness, run, point, real, way, temperatures, points,
    NP: tl.constexpr, FIRST: tl.constexpr,
):  # fmt: skip
    """Cosines (U, N), the shares before (U, N), xi (U, 1) and the shares after (U, N)."""
    n = tl.arange(0, NP)[None, :]
    at = (run * NP + n) * points + point[:, None]
    cosines = tl.load(products + at, mask=real[:, None], other=0) * closeness[None, :]
    valid = real[:, None] & (n < way)
    z = tl.where(valid, 1.0 / way, 0)
    if not FIRST:
        z = tl.load(before + at, mask=valid, other=0)
    xi = tl.sigmoid(tl.sum(z * cosines, 1) / temperatures[0])[:, None]
    logits = tl.where(n < way, xi * cosines / temperatures[1], float("-inf"))
    each = tl.exp(logits - tl.max(logits, 1)[:, None])
    return cosines, z, xi, tl.where(valid, each / tl.sum(each, 1)[:, None], 0)


@triton.jit(do_not_specialize=["way", "shot", "unlabeled", "members", "first", "second"])
def shares_kernel(
    assigned, products, before, after, distractors, weights,
    way, shot, unlabeled, members, first, second, points,
    NP: tl.constexpr, UT: tl.constexpr, FIRST: tl.constexpr, PRESENT: tl.constexpr,
):  # fmt: skip
    """A step: the shares and the weights, (R, N, M). `first` and `second` are the temperatures."""
    run = tl.program_id(0)
    n = tl.arange(0, NP)[None, :]
    square = class_squares(assigned, products, run, points, NP)
    closeness = 1 / tl.maximum(tl.sqrt(tl.maximum(square, 0)), LEAST_LENGTH)
    for begin in range(0, unlabeled, UT):
        u = begin + tl.arange(0, UT)
        real = u < unlabeled
        point = way * shot + u
        _, _, xi, z = _step(
            products, before, closeness, run, point, real, way, (first, second), points, NP, FIRST
        )
        at = (run * NP + n) * points + point[:, None]
        tl.store(after + at, z, mask=real[:, None])
        out = xi * z
        if PRESENT:
            out *= presence(distractors, run, u, members)
        tl.store(weights + at, out, mask=real[:, None])


@triton.jit(do_not_specialize=["way", "shot", "unlabeled", "members", "first", "second"])
def shares_backward_kernel(
    assigned, products, before, distractors, weight_grads, after_grads,
    product_grads, square_grads, before_grads,
    way, shot, unlabeled, members, first, second, points,
    NP: tl.constexpr, UT: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr,
    PRESENT: tl.constexpr,
):  # fmt: skip
    """From a step's weights and shares to the products, the squares and the shares before."""
    run = tl.program_id(0)
    n = tl.arange(0, NP)
    square = class_squares(assigned, products, run, points, NP)
    length = tl.sqrt(tl.maximum(square, 0))
    closeness = 1 / tl.maximum(length, LEAST_LENGTH)
    along = tl.zeros((NP,), tl.float32)
    for begin in range(0, points, TILE):
        at = (run * NP + n[:, None]) * points + begin + tl.arange(0, TILE)[None, :]
        v = begin + tl.arange(0, TILE)[None, :]
        outside = (v < way * shot) | (v >= way * shot + unlabeled)
        tl.store(product_grads + at, tl.zeros((NP, TILE), tl.float32), mask=outside)
    for begin in range(0, unlabeled, UT):
        u = begin + tl.arange(0, UT)
        real = u < unlabeled
        point = way * shot + u
        cosines, z, xi, after = _step(
            products, before, closeness, run, point, real, way, (first, second), points, NP, FIRST
        )
        at = (run * NP + n[None, :]) * points + point[:, None]
        valid = real[:, None] & (n < way)[None, :]
        grad = tl.load(weight_grads + at, mask=valid, other=0)
        if PRESENT:
            grad *= presence(distractors, run, u, members)
        after_grad = xi * grad
        if not LAST:
            after_grad += tl.load(after_grads + at, mask=valid, other=0)
        inside = after * (after_grad - tl.sum(after * after_grad, 1)[:, None]) / second
        xi_grad = tl.sum(grad * after + inside * cosines, 1)[:, None]
        belongs = xi_grad * xi * (1 - xi) / first
        cosine_grad = tl.where(valid, inside * xi + belongs * z, 0)
        tl.store(before_grads + at, tl.where(valid, belongs * cosines, 0), mask=real[:, None])
        tl.store(product_grads + at, cosine_grad * closeness[None, :], mask=real[:, None])
        along += tl.sum(cosine_grad * cosines, 0)
    along = tl.where(length > LEAST_LENGTH, along * closeness * closeness / 2, 0)
    tl.store(square_grads + run * NP + n, -along)


@triton.jit
def _normalized_grad(inner, means, both, along, mean, run, i, j, examples, points):
    """(TILE, TILE): C_JHJ."""
    g = _direction_closeness(inner, means, mean, run, i, examples, points)
    other = _direction_closeness(inner, means, mean, run, j, examples, points)
    c = tl.load(both + (run * points + i[:, None]) * points + j[None, :])
    total = tl.zeros((TILE,), tl.float32)
    for tile in range(points // TILE):
        total += tl.load(along + (run * (points // TILE) + tile) * points + i)
    diagonal = tl.where(i[:, None] == j[None, :], (g * g * total)[:, None], 0)
    return g[:, None] * other[None, :] * c - diagonal


@triton.jit(do_not_specialize=["examples"])
def sums_kernel(inner, means, both, along, sums, examples, points):
    """(R, M): the sums of the rows of C_JHJ."""
    run = tl.program_id(0)
    i = tl.program_id(1) * TILE + tl.arange(0, TILE)
    mean = _total(means, run, examples, points) / examples
    out = tl.zeros((TILE,), tl.float32)
    for first in range(0, examples, TILE):
        j = first + tl.arange(0, TILE)
        c = _normalized_grad(inner, means, both, along, mean, run, i, j, examples, points)
        out += tl.sum(c, 1)
    tl.store(sums + run * points + i, out)


@triton.jit(do_not_specialize=["examples"])
def directions_backward_kernel(inner, means, both, along, sums, out, examples, points):
    """C_H, (R, M, M)."""
    run = tl.program_id(0)
    i = tl.program_id(1) * TILE + tl.arange(0, TILE)
    j = tl.program_id(2) * TILE + tl.arange(0, TILE)
    mean = _total(means, run, examples, points) / examples
    total = _total(sums, run, examples, points) / examples
    c = _normalized_grad(inner, means, both, along, mean, run, i, j, examples, points)
    rows = tl.load(sums + run * points + i)[:, None] + tl.load(sums + run * points + j)[None, :]
    c += (total - rows) / examples
    real = (i < examples)[:, None] & (j < examples)[None, :]
    at = (run * points + i[:, None]) * points + j[None, :]
    tl.store(out + at, tl.where(real, c, 0))
