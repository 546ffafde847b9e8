"""The loss of the queries from inner products, and its gradients (Eqs. 2-3). Letters as in `steps.py`."""

import triton
import triton.language as tl

from semishot.network.fused import shares
from semishot.network.fused.points import EPSILON, TILE, square_radius
from semishot.network.fused.steps import class_squares


@triton.jit(do_not_specialize=["share", "way", "shot", "unlabeled", "queries"])
def loss_kernel(
    inner, assigned, products, slow, settings, parameters, losses, product_grads, square_grads,
    own_grads, origin_grads, radius_grads, score_grads,
    share, way, shot, unlabeled, queries, points,
    NP: tl.constexpr, QT: tl.constexpr, SPHERE: tl.constexpr, SCORED: tl.constexpr,
    ADD: tl.constexpr,
):  # fmt: skip
    """Eqs. 2-3: `share` of a run's loss, and its gradients. With ADD, they are added to what is there."""
    run = tl.program_id(0)
    n = tl.arange(0, NP)
    class_square = class_squares(assigned, products, run, points, NP)
    stretch = class_square * 0 + 1  # of the prototypes of classes, on to the sphere
    if SPHERE:
        radius = tl.sqrt(square_radius(slow, run))
        stretch = tl.where(n < way, radius * tl.rsqrt(class_square + EPSILON), 1)
    exists = n < way
    divisor = stretch * 0 + 1
    offset = divisor * 0
    scored = n < 0
    if SCORED:
        is_scored = tl.load(settings + run * shares.SETTINGS + 5) > 0
        place = tl.load(settings + run * shares.SETTINGS + 1)
        scale = tl.load(settings + run * shares.SETTINGS + 2).to(tl.float32)
        offset += tl.load(parameters[0] + place, mask=is_scored, other=0)  # log r, or 0
        scored = is_scored & (n == way)
        offset = tl.where(scored, offset, 0)
        divisor = tl.where(is_scored, scale, 1.0) * tl.exp(2 * offset)
        exists = exists | scored
    loss = tl.sum(stretch * 0, 0)
    square_grad, stretch_grad, score_grad = stretch * 0, stretch * 0, stretch * 0
    asked = way * shot + unlabeled  # the first query
    for first in range(0, points, TILE):  # nothing else has a part in the loss
        v = first + tl.arange(0, TILE)
        others = (v < asked) | (v >= asked + queries)
        at = (run * NP + n[:, None]) * points + v[None, :]
        tl.store(product_grads + at, tl.zeros((NP, TILE), tl.float32), mask=others[None, :])
        if not ADD:
            nothing = tl.zeros((TILE,), tl.float32)
            tl.store(own_grads + run * points + v, nothing, mask=others)
            tl.store(origin_grads + run * points + v, nothing)
    for first in range(0, queries, QT):
        q = first + tl.arange(0, QT)
        real = q < queries
        point = asked + q
        own = tl.load(inner + (run * points + point) * points + point, mask=real, other=0)
        at = (run * NP + n[None, :]) * points + point[:, None]
        product = tl.load(products + at, mask=real[:, None], other=0)
        raw = own[:, None] - 2 * stretch[None, :] * product
        raw += (stretch * stretch * class_square)[None, :]
        d = tl.maximum(raw, 0)
        logits = tl.where(exists[None, :], -d / divisor[None, :] - offset[None, :], float("-inf"))
        logits -= tl.max(logits, 1)[:, None]
        each = tl.exp(logits)
        summed = tl.sum(each, 1)[:, None]
        answer = (n[None, :] == q[:, None] // (queries // way)) & real[:, None]
        loss += tl.sum(tl.sum(tl.where(answer, tl.log(summed) - logits, 0), 1), 0)
        valid = real[:, None] & exists[None, :]
        grad = tl.where(valid, (each / summed - answer.to(tl.float32)) * (share / queries), 0)
        steep = 2 * d / divisor[None, :] - 1
        score_grad += tl.sum(tl.where(scored[None, :], grad * steep, 0), 0)
        grad = tl.where(raw >= 0, -grad / divisor[None, :], 0)
        tl.store(product_grads + at, -2 * stretch[None, :] * grad, mask=real[:, None])
        square_grad += tl.sum(grad, 0) * stretch * stretch
        stretched = stretch[None, :] * class_square[None, :] - product
        stretch_grad += tl.sum(2 * grad * stretched, 0)
        own_grad = tl.sum(grad, 1)
        if ADD:
            own_grad += tl.load(own_grads + run * points + point, mask=real, other=0)
        tl.store(own_grads + run * points + point, own_grad, mask=real)
    loss *= share / queries
    radius_grad, score_grad = loss * 0, tl.sum(score_grad, 0)
    if SPHERE:
        stretch_grad = tl.where(n < way, stretch_grad, 0)
        square_grad -= stretch_grad * stretch / (2 * (class_square + EPSILON))
        radius_grad = tl.sum(stretch_grad * stretch, 0) / radius
    if ADD:
        loss += tl.load(losses + run)
        radius_grad += tl.load(radius_grads + run)
        score_grad += tl.load(score_grads + run)
    tl.store(losses + run, loss)
    tl.store(radius_grads + run, radius_grad)
    tl.store(score_grads + run, score_grad)
    tl.store(square_grads + run * NP + n, square_grad)
