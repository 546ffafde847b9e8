"""The loss of random walks over the pile (`refine/prwn.py`) from inner products, forward and backward.

With X = G_xx, B_0 = G_xp and B_t+1 = X B_t, a walk of t steps comes home with probability
h_t = sum_j G_px B_t. Backward, dB_t = dh_t G_px + X^T dB_t+1, and dX = sum_t dB_t+1 B_t^T; for the softmax of
X's rows,

    sum_j X_ij dX_ij = sum_t dB_t+1 B_t+1 of row i.

A kernel that makes a product takes TILE unlabeled images in a program, one that adds up takes a run. Letters
as in `steps.py`: tables of classes and unlabeled images are (R, N, U), U rounded up to a multiple of TILE.
"""

import triton
import triton.language as tl

from semishot.network.fused.points import PRECISION, TILE
from semishot.network.fused.steps import class_squares
from semishot.refine import prwn

SMOOTH, DECAY = tl.constexpr(prwn.SMOOTH), tl.constexpr(prwn.DECAY)
STEPS, SMALLEST = tl.constexpr(prwn.STEPS), tl.constexpr(prwn.SMALLEST)


@triton.jit
def _similarities(inner, run, i, j, support, unlabeled, points):
    """(TILE, TILE): minus squared distances, minus infinity to itself."""
    row, column = (run * points + support + i) * points, (run * points + support + j) * points
    one = tl.load(inner + row + support + i, mask=i < unlabeled, other=0)[:, None]
    other = tl.load(inner + column + support + j, mask=j < unlabeled, other=0)[None, :]
    both = (i < unlabeled)[:, None] & (j < unlabeled)[None, :]
    product = tl.load(inner + row[:, None] + support + j[None, :], mask=both, other=0)
    far = (j >= unlabeled)[None, :] | (i[:, None] == j[None, :])
    return tl.where(far, float("-inf"), -tl.maximum(one + other - 2 * product, 0))


@triton.jit(do_not_specialize=["support", "unlabeled"])
def between_kernel(inner, between, support, unlabeled, points, width):
    """X, (R, U, U)."""
    run = tl.program_id(0)
    i = tl.program_id(1) * TILE + tl.arange(0, TILE)
    top = tl.zeros((TILE,), tl.float32) + float("-inf")
    for first in range(0, unlabeled, TILE):
        j = first + tl.arange(0, TILE)
        top = tl.maximum(
            top, tl.max(_similarities(inner, run, i, j, support, unlabeled, points), 1)
        )
    total = tl.zeros((TILE,), tl.float32)
    for first in range(0, unlabeled, TILE):
        j = first + tl.arange(0, TILE)
        each = _similarities(inner, run, i, j, support, unlabeled, points)
        total += tl.sum(tl.exp(each - top[:, None]), 1)
    for first in range(0, unlabeled, TILE):
        j = first + tl.arange(0, TILE)
        each = _similarities(inner, run, i, j, support, unlabeled, points)
        each = tl.exp(each - top[:, None]) / total[:, None]
        at = (run * width + i[:, None]) * width + j[None, :]
        tl.store(between + at, tl.where((i < unlabeled)[:, None], each, 0))


@triton.jit
def _to_classes(
    inner, products, squares, run, u, support, way, unlabeled, points, NP: tl.constexpr
):
    """(N, TILE): minus squared distances to the prototypes, before and after they are at least 0; and which
    of them are of a class and an image."""
    n = tl.arange(0, NP)
    point = support + u
    real = u < unlabeled
    own = tl.load(inner + (run * points + point) * points + point, mask=real, other=0)
    at = (run * NP + n[:, None]) * points + point[None, :]
    product = tl.load(products + at, mask=real[None, :], other=0)
    raw = own[None, :] - 2 * product + squares[:, None]
    return raw, -tl.maximum(raw, 0), (n < way)[:, None] & real[None, :]


@triton.jit(do_not_specialize=["support", "way", "unlabeled"])
def start_kernel(
    inner, assigned, products, there, back, visits,
    support, way, unlabeled, points, width, NP: tl.constexpr,
):  # fmt: skip
    """G_px and G_xp, and L_visit."""
    run = tl.program_id(0)
    n = tl.arange(0, NP)
    squares = class_squares(assigned, products, run, points, NP)
    top = tl.zeros((NP,), tl.float32) + float("-inf")
    for first in range(0, unlabeled, TILE):
        u = first + tl.arange(0, TILE)
        _, a, valid = _to_classes(
            inner, products, squares, run, u, support, way, unlabeled, points, NP
        )
        top = tl.maximum(top, tl.max(tl.where(valid, a, float("-inf")), 1))
    top = tl.where(n < way, top, 0)
    total = tl.zeros((NP,), tl.float32)
    for first in range(0, unlabeled, TILE):
        u = first + tl.arange(0, TILE)
        _, a, valid = _to_classes(
            inner, products, squares, run, u, support, way, unlabeled, points, NP
        )
        total += tl.sum(tl.where(valid, tl.exp(a - top[:, None]), 0), 1)
    total = tl.where(n < way, total, 1)
    visited = tl.sum(total * 0, 0)
    for first in range(0, unlabeled, TILE):
        u = first + tl.arange(0, TILE)
        _, a, valid = _to_classes(
            inner, products, squares, run, u, support, way, unlabeled, points, NP
        )
        to_points = (1 - SMOOTH) * tl.exp(a - top[:, None]) / total[:, None] + SMOOTH / unlabeled
        to_points = tl.where(valid, to_points, 0)
        each = tl.where((n < way)[:, None], a, float("-inf"))
        each = tl.exp(each - tl.max(each, 0)[None, :])
        to_classes = (1 - SMOOTH) * each / tl.sum(each, 0)[None, :] + SMOOTH / way
        at = (run * NP + n[:, None]) * width + u[None, :]
        tl.store(there + at, to_points)
        tl.store(back + at, tl.where(valid, to_classes, 0))
        mean = tl.maximum(tl.sum(to_points, 0) / way, SMALLEST)
        visited += tl.sum(tl.where(u < unlabeled, tl.log(mean), 0), 0)
    tl.store(visits + run, -visited / unlabeled)


@triton.jit
def step_kernel(between, before, after, width, NP: tl.constexpr):
    """B_t+1 from B_t."""
    run = tl.program_id(0)
    i = tl.program_id(1) * TILE + tl.arange(0, TILE)
    n = tl.arange(0, NP)[:, None]
    out = tl.zeros((NP, TILE), tl.float32)
    for first in range(0, width, TILE):
        j = first + tl.arange(0, TILE)[None, :]
        x = tl.load(between + (run * width + i[:, None]) * width + j)
        b = tl.load(before + (run * NP + n) * width + j)
        out += tl.dot(b, tl.trans(x), input_precision=PRECISION)
    tl.store(after + (run * NP + n) * width + i[None, :], out)


@triton.jit(do_not_specialize=["way", "runs"])
def home_kernel(
    there, backs, visits, walks, losses, home_grads, last_grads, way, runs, width, NP: tl.constexpr
):
    """The loss, times its weight, added to the run's; the gradients of all h_t, and of the last B_t."""
    run = tl.program_id(0)
    n = tl.arange(0, NP)
    weight = tl.load(walks + run)
    loss = tl.load(visits + run)
    decay = 1.0
    for step in tl.static_range(STEPS):
        home = tl.zeros((NP,), tl.float32)
        for first in range(0, width, TILE):
            at = (run * NP + n[:, None]) * width + first + tl.arange(0, TILE)[None, :]
            b = tl.load(backs + step * runs * NP * width + at)
            home += tl.sum(tl.load(there + at) * b, 1)
        likely = tl.where(n < way, tl.maximum(home, SMALLEST), 1)
        loss -= decay * tl.sum(tl.log(likely), 0) / way
        grad = tl.where((n < way) & (home >= SMALLEST), -weight * decay / (way * likely), 0)
        tl.store(home_grads + (step * runs + run) * NP + n, grad)
        if step == STEPS - 1:
            for first in range(0, width, TILE):
                at = (run * NP + n[:, None]) * width + first + tl.arange(0, TILE)[None, :]
                tl.store(last_grads + at, tl.load(there + at) * grad[:, None])
        decay *= DECAY
    tl.store(losses + run, tl.load(losses + run) + weight * loss)


@triton.jit
def step_backward_kernel(between, there, home_grads, later, out_grads, width, NP: tl.constexpr):
    """dB_t from dB_t+1 and dh_t."""
    run = tl.program_id(0)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    n = tl.arange(0, NP)
    at = (run * NP + n[:, None]) * width
    out = tl.load(there + at + j) * tl.load(home_grads + run * NP + n)[:, None]
    for first in range(0, width, TILE):
        i = first + tl.arange(0, TILE)
        x = tl.load(between + (run * width + i[:, None]) * width + j)
        out += tl.dot(tl.load(later + at + i[None, :]), x, input_precision=PRECISION)
    tl.store(out_grads + at + j, out)


@triton.jit(do_not_specialize=["support", "unlabeled", "runs"])
def between_backward_kernel(
    between, backs, back_grads, between_grads, own_grads,
    support, unlabeled, runs, points, width, NP: tl.constexpr,
):  # fmt: skip
    """The gradient of the similarities under X, (R, U, U), and its part in the squares of images: a column of
    it; a row adds up to zero."""
    run = tl.program_id(0)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    n = tl.arange(0, NP)[:, None]
    one_step = runs * NP * width
    total = tl.zeros((TILE,), tl.float32)
    for first in range(0, width, TILE):
        i = first + tl.arange(0, TILE)
        grad = tl.zeros((TILE, TILE), tl.float32)
        mean = tl.zeros((TILE,), tl.float32)
        for step in tl.static_range(STEPS - 1):
            at = (run * NP + n) * width
            later = tl.load(back_grads + (step + 1) * one_step + at + i[None, :])
            b = tl.load(backs + step * one_step + at + j[None, :])
            grad += tl.dot(tl.trans(later), b, input_precision=PRECISION)
            mean += tl.sum(later * tl.load(backs + (step + 1) * one_step + at + i[None, :]), 0)
        at = (run * width + i[:, None]) * width + j[None, :]
        grad = tl.load(between + at) * (grad - mean[:, None])
        tl.store(between_grads + at, grad)
        total += tl.sum(grad, 0)
    at = own_grads + run * points + support + j
    real = j < unlabeled
    tl.store(at, tl.load(at, mask=real, other=0) - total, mask=real)


@triton.jit
def _there_grad(
    backs, home_grads, to_points, weight, run, n, u, way, unlabeled, runs, width, NP: tl.constexpr
):
    """(N, TILE): the gradient of G_px."""
    mean = tl.sum(to_points, 0) / way
    seen = (mean >= SMALLEST) & (u < unlabeled)
    visit = tl.where(seen, -weight / (unlabeled * way * tl.maximum(mean, SMALLEST)), 0)
    grad = visit[None, :] + to_points * 0
    for step in tl.static_range(STEPS):
        row = (step * runs + run) * NP + n
        b = tl.load(backs + row[:, None] * width + u[None, :])
        grad += tl.load(home_grads + row)[:, None] * b
    return grad


@triton.jit(do_not_specialize=["support", "way", "unlabeled", "runs"])
def start_backward_kernel(
    inner, assigned, products, there, backs, first_grads, home_grads, walks,
    product_grads, square_grads, own_grads,
    support, way, unlabeled, runs, points, width, NP: tl.constexpr,
):  # fmt: skip
    """From G_px and G_xp to the prototypes' products and squares and the images, added to what is there."""
    run = tl.program_id(0)
    n = tl.arange(0, NP)
    weight = tl.load(walks + run)
    squares = class_squares(assigned, products, run, points, NP)
    mean = tl.zeros((NP,), tl.float32)
    for first in range(0, width, TILE):
        u = first + tl.arange(0, TILE)
        valid = (n < way)[:, None] & (u < unlabeled)[None, :]
        to_points = tl.load(there + (run * NP + n[:, None]) * width + u[None, :])
        grad = _there_grad(
            backs, home_grads, to_points, weight, run, n, u, way, unlabeled, runs, width, NP
        )
        share = tl.where(valid, (to_points - SMOOTH / unlabeled) / (1 - SMOOTH), 0)
        mean += tl.sum(share * grad, 1)
    square_grad = tl.zeros((NP,), tl.float32)
    for first in range(0, width, TILE):
        u = first + tl.arange(0, TILE)
        raw, _, valid = _to_classes(
            inner, products, squares, run, u, support, way, unlabeled, points, NP
        )
        at = (run * NP + n[:, None]) * width + u[None, :]
        to_points = tl.load(there + at)
        grad = _there_grad(
            backs, home_grads, to_points, weight, run, n, u, way, unlabeled, runs, width, NP
        )
        share = tl.where(valid, (to_points - SMOOTH / unlabeled) / (1 - SMOOTH), 0)
        d_grad = -(1 - SMOOTH) * share * (grad - mean[:, None])
        grad = tl.load(first_grads + at)
        share = tl.where(valid, (tl.load(backs + at) - SMOOTH / way) / (1 - SMOOTH), 0)
        d_grad -= (1 - SMOOTH) * share * (grad - tl.sum(share * grad, 0)[None, :])
        d_grad = tl.where(raw >= 0, d_grad, 0)
        real = u < unlabeled
        to = product_grads + (run * NP + n[:, None]) * points + support + u[None, :]
        found = tl.load(to, mask=real[None, :], other=0)
        tl.store(to, found - 2 * d_grad, mask=real[None, :])
        square_grad += tl.sum(d_grad, 1)
        own = own_grads + run * points + support + u
        tl.store(own, tl.load(own, mask=real, other=0) + tl.sum(d_grad, 0), mask=real)
    at = square_grads + run * NP + n
    tl.store(at, tl.load(at) + square_grad)
