"""Refinement steps from inner products alone, forward and backward (Eqs. 1, 4-9).

A prototype is a weighted mean of a run's points, p_n = sum_v A_nv x_v. Its inner products with all points
are P = A H, H those of the points; its square is sum_v A_nv P_nv. Distances and cosines follow from these,
from them the weights of the next step, and so on to the loss (`scores.py`). Backward, with dP and dq the
gradients of P and of the squares,

    dP + dq A =: E,   dA = E H^T + dq P,   dH = A^T E.

A kernel that makes one of these products takes TILE points in a program; one that turns them into weights, or
into the loss, takes a run. Letters as in `points.py`; N classes, U unlabeled images, Q queries; NP is N,
rounded up to a power of two, UT and QT are the rows handled at a time. All (R, N, M) tables are zero where
nothing is assigned.
"""

import triton
import triton.language as tl

from semishot.network.fused import shares
from semishot.network.fused.points import EPSILON, PRECISION, TILE


@triton.jit
def _labels(n, v, way, shot):
    """1 where point v is one of class n's labeled images."""
    return tl.where((v < way * shot) & (v // shot == n), 1.0, 0.0)


@triton.jit(do_not_specialize=["way", "shot", "unlabeled", "images"])
def products_kernel(
    inner, weights, assigned, products, totals, way, shot, unlabeled, images, points,
    FIRST: tl.constexpr, SCORED: tl.constexpr, NP: tl.constexpr,
):  # fmt: skip
    """A and P of labels and weights; the first step has only labels."""
    run = tl.program_id(0)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    n = tl.arange(0, NP)[:, None]
    examples = way * shot if FIRST else way * shot + unlabeled
    total = tl.zeros((NP,), tl.float32)
    out = tl.zeros((NP, TILE), tl.float32)
    for first in range(0, examples, TILE):
        v = first + tl.arange(0, TILE)
        a = _labels(n, v[None, :], way, shot)
        if not FIRST:
            shared = (v[None, :] >= way * shot) & (v[None, :] < examples)
            a += tl.load(weights + (run * NP + n) * points + v[None, :], mask=shared, other=0)
        total += tl.sum(a, 1)
        h = tl.load(inner + (run * points + v[:, None]) * points + column)
        out += tl.dot(a, h, input_precision=PRECISION)
    divisor = tl.where(total == 0, 1, total)[:, None]
    at = (run * NP + n) * points + column
    own = _labels(n, column, way, shot)
    if not FIRST:
        shared = (column >= way * shot) & (column < examples)
        own += tl.load(weights + at, mask=shared, other=0)
    if SCORED:  # a cluster that nothing belongs to is at the origin
        empty = (n == way) & (total == 0)[:, None]
        origin = tl.load(inner + (run * points + images) * points + column)
        out = tl.where(empty, origin, out)
        own = tl.where(empty & (column == images), 1.0, own)
    tl.store(assigned + at, own / divisor)
    tl.store(products + at, out / divisor)
    if tl.program_id(1) == 0:
        tl.store(totals + run * NP + tl.arange(0, NP), tl.where(total == 0, 1, total))


@triton.jit
def class_squares(assigned, products, run, points, NP: tl.constexpr):
    """(N,): the squares of the prototypes."""
    n = tl.arange(0, NP)[:, None]
    out = tl.zeros((NP,), tl.float32)
    for first in range(0, points, TILE):
        at = (run * NP + n) * points + first + tl.arange(0, TILE)[None, :]
        out += tl.sum(tl.load(assigned + at) * tl.load(products + at), 1)
    return out


@triton.jit
def _tables(inner, products, class_square, run, point, real, images, points, NP: tl.constexpr):
    """Of some points: squared distances to prototypes (U, N), and to the origin (U,), not yet at least 0; and
    with the origin as zero: inner products with prototypes (U, N), one over lengths (U,), (N,)."""
    n = tl.arange(0, NP)
    own = tl.load(inner + (run * points + point) * points + point, mask=real, other=0)
    origin = tl.load(inner + (run * points + images) * points + point, mask=real, other=0)
    zero = tl.load(inner + (run * points + images) * points + images)
    at = (run * NP + n[None, :]) * points + point[:, None]
    product = tl.load(products + at, mask=real[:, None], other=0)
    class_origin = tl.load(products + (run * NP + n) * points + images)
    raw = own[:, None] - 2 * product + class_square[None, :]
    square = own - 2 * origin + zero
    dot = product - origin[:, None] - class_origin[None, :] + zero
    length = tl.rsqrt(tl.maximum(square, 0) + EPSILON)
    class_length = class_square - 2 * class_origin + zero
    return raw, square, dot, length, tl.rsqrt(tl.maximum(class_length, 0) + EPSILON)


@triton.jit
def presence(distractors, run, u, members):
    """(U, 1): whether an unlabeled image takes part; the distractors come after the classes' own."""
    return tl.where(u < members, 1.0, tl.load(distractors + run))[:, None]


@triton.jit(do_not_specialize=["way", "shot", "unlabeled", "members", "images"])
def weights_kernel(
    inner, assigned, products, settings, parameters, distractors, weights,
    way, shot, unlabeled, members, images, points,
    NP: tl.constexpr, UT: tl.constexpr, WITH: tl.constexpr, PRESENT: tl.constexpr,
    SCORED: tl.constexpr,
):  # fmt: skip
    """A run's weights, (N, M), from its prototypes' products."""
    run = tl.program_id(0)
    n = tl.arange(0, NP)[None, :]
    class_square = class_squares(assigned, products, run, points, NP)
    for first in range(0, unlabeled, UT):
        u = first + tl.arange(0, UT)
        real = u < unlabeled
        point = way * shot + u
        raw, square, dot, length, class_length = _tables(
            inner, products, class_square, run, point, real, images, points, NP
        )
        cosines = dot * length[:, None] * class_length[None, :]
        out, other = shares.forward(
            tl.maximum(raw, 0), tl.maximum(square, 0), cosines, real[:, None] & (n < way),
            settings, parameters, run, way, unlabeled, NP, WITH,
        )  # fmt: skip
        if PRESENT:
            out *= presence(distractors, run, u, members)
        if SCORED:
            scored = tl.load(settings + run * shares.SETTINGS + 5) > 0
            out = tl.where((n == way) & scored, other[:, None], out)
        at = (run * NP + n) * points + point[:, None]
        tl.store(weights + at, out, mask=real[:, None])


@triton.jit(do_not_specialize=["way", "shot", "unlabeled"])
def weight_grads_kernel(
    inner, assigned, products, totals, product_grads, square_grads, weight_grads,
    way, shot, unlabeled, points, NP: tl.constexpr,
):  # fmt: skip
    """From P and the squares to the weights before they were divided by their sums, (R, N, M)."""
    run = tl.program_id(0)
    u = tl.program_id(1) * TILE + tl.arange(0, TILE)
    v = way * shot + u
    n = tl.arange(0, NP)
    square_grad = tl.load(square_grads + run * NP + n)[:, None]
    out = tl.zeros((NP, TILE), tl.float32)
    along = tl.zeros((NP,), tl.float32)
    for first in range(0, points, TILE):
        c = first + tl.arange(0, TILE)[None, :]
        at = (run * NP + n[:, None]) * points + c
        a, p = tl.load(assigned + at), tl.load(products + at)
        e = tl.load(product_grads + at) + square_grad * a
        along += tl.sum((e + square_grad * a) * p, 1)
        within = (u < unlabeled)[:, None]
        h = tl.load(inner + (run * points + v[:, None]) * points + c, mask=within, other=0)
        out += tl.dot(e, tl.trans(h), input_precision=PRECISION)
    at = (run * NP + n[:, None]) * points + v[None, :]
    real = (u < unlabeled)[None, :]
    out += square_grad * tl.load(products + at, mask=real, other=0)
    out = (out - along[:, None]) / tl.load(totals + run * NP + n)[:, None]
    tl.store(weight_grads + at, out, mask=real)


@triton.jit(do_not_specialize=["way", "shot", "unlabeled", "members", "images"])
def weights_backward_kernel(
    inner, assigned, products, settings, parameters, distractors, weight_grads, loss_grads,
    product_grads, square_grads, own_grads, origin_grads, score_grads, grads,
    way, shot, unlabeled, members, images, points,
    NP: tl.constexpr, UT: tl.constexpr, WITH: tl.constexpr, PRESENT: tl.constexpr,
    SCORED: tl.constexpr, ADD: tl.constexpr, ADD_SUMS: tl.constexpr,
):  # fmt: skip
    """From a run's weights to its prototypes' products and squares, the points and the parameters."""
    run = tl.program_id(0)
    n = tl.arange(0, NP)
    class_square = class_squares(assigned, products, run, points, NP)
    square_grad, origin_grad = class_square * 0, class_square * 0
    first_sum, second_sum = tl.sum(square_grad, 0), tl.sum(square_grad, 0)
    scale = tl.load(loss_grads + run)
    for first in range(0, unlabeled, UT):
        u = first + tl.arange(0, UT)
        real = u < unlabeled
        point = way * shot + u
        raw, square, dot, length, class_length = _tables(
            inner, products, class_square, run, point, real, images, points, NP
        )
        cosines = dot * length[:, None] * class_length[None, :]
        at = (run * NP + n[None, :]) * points + point[:, None]
        grad = tl.load(weight_grads + at, mask=real[:, None], other=0)
        other_grad = square * 0
        if SCORED:
            scored = tl.load(settings + run * shares.SETTINGS + 5) > 0
            of_other = (n == way)[None, :] & scored & real[:, None]
            other_grad = tl.sum(tl.where(of_other, grad, 0), 1)
        if PRESENT:
            grad *= presence(distractors, run, u, members)
        d_grad, of_square, cosine_grad, one, two = shares.backward(
            grad, other_grad, tl.maximum(raw, 0), tl.maximum(square, 0), cosines,
            real[:, None] & (n < way)[None, :], settings, parameters, grads, scale,
            run, way, unlabeled, NP, WITH, ADD_SUMS,
        )  # fmt: skip
        first_sum += one
        second_sum += two
        d_grad = tl.where((raw >= 0) & real[:, None], d_grad, 0)
        of_square = tl.where((square >= 0) & real, of_square, 0)
        dot_grad = cosine_grad * length[:, None] * class_length[None, :]
        turned = cosine_grad * cosines / 2
        of_square -= length * length * tl.sum(turned, 1)
        of_class = -class_length * class_length * tl.sum(turned, 0)
        tl.store(product_grads + at, dot_grad - 2 * d_grad, mask=real[:, None])
        square_grad += tl.sum(d_grad, 0) + of_class
        origin_grad -= tl.sum(dot_grad, 0) + 2 * of_class
        own_grad = tl.sum(d_grad, 1) + of_square
        between = -2 * of_square - tl.sum(dot_grad, 1)
        at = run * points + point
        own_grad += tl.load(own_grads + at, mask=real, other=0)
        between += tl.load(origin_grads + at, mask=real, other=0)
        tl.store(own_grads + at, own_grad, mask=real)
        tl.store(origin_grads + at, between, mask=real)
    for first in range(0, points, TILE):
        v = first + tl.arange(0, TILE)[None, :]
        at = (run * NP + n[:, None]) * points + v
        out = tl.where(v == images, origin_grad[:, None], 0)
        if ADD:
            out += tl.load(product_grads + at)
        outside = (v < way * shot) | (v >= way * shot + unlabeled)
        tl.store(product_grads + at, out, mask=outside)
    if ADD:
        square_grad += tl.load(square_grads + run * NP + n)
    tl.store(square_grads + run * NP + n, square_grad)
    first_sum += tl.load(score_grads + run)
    shares.store_sums(first_sum * scale, second_sum * scale, settings, grads, run, WITH, ADD_SUMS)


@triton.jit(do_not_specialize=["runs", "count", "support", "unlabeled", "images"])
def both_kernel(
    inner, assigned, product_grads, square_grads, own_grads, origin_grads, between_grads,
    direction_grads, both, along, runs, count, support, unlabeled, images, points, width,
    NP: tl.constexpr, SPHERE: tl.constexpr, WALKS: tl.constexpr, DIRECTIONS: tl.constexpr,
):  # fmt: skip
    """C = dH + dH^T of all steps, (R, M, M), and sums of its products with H. The gradients of similarities
    between unlabeled images, 2 H_ij - H_ii - H_jj, are (R, U, U), U rounded up to `width`."""
    run = tl.program_id(0)
    i = tl.program_id(1) * TILE + tl.arange(0, TILE)
    j = tl.program_id(2) * TILE + tl.arange(0, TILE)
    n = tl.arange(0, NP)
    out = tl.zeros((TILE, TILE), tl.float32)
    for step in range(count):
        row = (step * runs + run) * NP + n
        square_grad = tl.load(square_grads + row)[:, None]
        row = row[:, None] * points
        ai, aj = tl.load(assigned + row + i[None, :]), tl.load(assigned + row + j[None, :])
        ei = tl.load(product_grads + row + i[None, :]) + square_grad * ai
        ej = tl.load(product_grads + row + j[None, :]) + square_grad * aj
        out += tl.dot(tl.trans(ai), ej, input_precision=PRECISION)
        out += tl.dot(tl.trans(ei), aj, input_precision=PRECISION)
    own = 2 * tl.load(own_grads + run * points + i)[:, None]
    out += tl.where(i[:, None] == j[None, :], own, 0)
    between = tl.load(origin_grads + run * points + i)[:, None]
    out += tl.where(j[None, :] == images, between, 0)
    if WALKS:
        u, v = i[:, None] - support, j[None, :] - support
        real = (u >= 0) & (u < unlabeled) & (v >= 0) & (v < unlabeled)
        one = tl.load(between_grads + (run * width + u) * width + v, mask=real, other=0)
        out += 2 * (
            one + tl.load(between_grads + (run * width + v) * width + u, mask=real, other=0)
        )
    at = (run * points + i[:, None]) * points + j[None, :]
    if DIRECTIONS:  # such a C by `directions.py`
        out += tl.load(direction_grads + at)
    tl.store(both + at, out)
    if SPHERE:
        total = tl.sum(out * tl.load(inner + at), 1)
        tl.store(along + (run * (points // TILE) + tl.program_id(2)) * points + i, total)
