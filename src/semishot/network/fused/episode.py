"""Prototypes, one refinement and the loss of a fleet's episodes, forward and backward (Eqs. 1-9).

The encoder's maps are (B, P, R, F) in memory. Where features matter, a program takes one run's F filters at
one of the P places; distances are sums over places, written as parts and added up by the next kernel, in the
same order each time. Where only distances and weights matter, a program takes a run. Letters: R runs, B
images, F filters, P places, N classes, U unlabeled images; S, Q support, query images; NP, UP, QP are N, U, Q
rounded up to a power of two, and UT, QT the rows handled at a time.
"""

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from semishot.network.fused import shares
from semishot.network.fused.launching import launch
from semishot.network.fused.layout import channels_last
from semishot.network.fused.methods import Methods

LEAST, MOST_ROWS = 16, 64
"""Rows of the smallest and of the largest product."""
WARPS = 8
PRECISION = tl.constexpr("tf32x3")
"""Three products in TF32, which together have the digits of one in float32."""


@triton.jit
def _at(image, run, place, runs, places, F: tl.constexpr):
    """Where the F filters of some images (A, 1) are, (A, F)."""
    return ((image * places + place) * runs + run) * F + tl.arange(0, F)[None, :]


@triton.jit
def _means(maps, run, place, runs, places, way, shot, NP: tl.constexpr, F: tl.constexpr):
    """Eq. 1: (N, F)."""
    n = tl.arange(0, NP)[:, None]
    total = tl.zeros((NP, F), tl.float32)
    for k in range(shot):
        total += tl.load(
            maps + _at(n * shot + k, run, place, runs, places, F), mask=n < way, other=0
        )
    return total / shot


@triton.jit
def _store_shots(
    maps, value, run, place, runs, places, way, shot, NP: tl.constexpr, F: tl.constexpr
):
    """Store each class's row (N, F) for all its support images."""
    n = tl.arange(0, NP)[:, None]
    for k in range(shot):
        tl.store(maps + _at(n * shot + k, run, place, runs, places, F), value, mask=n < way)


@triton.jit
def _product(a, b):
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def _center(prototypes, way):
    """(1, F). Subtracted from both sides of a distance: far from the origin, it would lose digits."""
    return tl.sum(prototypes, 0)[None, :] / way


@triton.jit
def _moved(prototypes, way, NP: tl.constexpr):
    """(N, F): the prototypes minus their center."""
    exists = tl.arange(0, NP)[:, None] < way
    return tl.where(exists, prototypes - _center(prototypes, way), 0)


@triton.jit
def _distances(rows, prototypes):
    """(A, F), (N, F) -> this place's part of the squared distances (A, N)."""
    squares = tl.sum(rows * rows, 1)[:, None] + tl.sum(prototypes * prototypes, 1)[None, :]
    return squares - 2 * _product(rows, tl.trans(prototypes))


@triton.jit
def _table(run, place, places, row, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Where rows (A, 1) of this run's and place's table (ROWS, COLUMNS) are among all tables."""
    return ((run * places + place) * ROWS + row) * COLUMNS + tl.arange(0, COLUMNS)[None, :]


@triton.jit
def _added_up(parts, run, places, count, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The first `count` rows of a run's table, summed over places."""
    row = tl.arange(0, ROWS)[:, None]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for place in range(places):
        at = _table(run, place, places, row, ROWS, COLUMNS)
        total += tl.load(parts + at, mask=row < count, other=0)
    return total


@triton.jit(do_not_specialize=["way", "shot", "unlabeled", "runs", "places"])
def _distance_kernel(
    maps, distance_parts, square_parts, way, shot, unlabeled, runs, places,
    NP: tl.constexpr, UP: tl.constexpr, UT: tl.constexpr, F: tl.constexpr,
):  # fmt: skip
    """Parts of the squared distances of some unlabeled images to the prototypes, and to the origin."""
    run, place = tl.program_id(0), tl.program_id(1)
    u = tl.program_id(2) * UT + tl.arange(0, UT)
    prototypes = _means(maps, run, place, runs, places, way, shot, NP, F)
    at = _at(way * shot + u[:, None], run, place, runs, places, F)
    rows = tl.load(maps + at, mask=u[:, None] < unlabeled, other=0)
    tl.store(square_parts + (run * places + place) * UP + u, tl.sum(rows * rows, 1))
    part = _distances(rows - _center(prototypes, way), _moved(prototypes, way, NP))
    tl.store(distance_parts + _table(run, place, places, u[:, None], UP, NP), part)


@triton.jit(do_not_specialize=["way", "shot", "unlabeled", "places"])
def _shares_kernel(
    distance_parts, square_parts, settings, parameters,
    distances, squares, weights, totals, way, shot, unlabeled, places,
    NP: tl.constexpr, UP: tl.constexpr, WITH: tl.constexpr,
):  # fmt: skip
    """A run's weights, and their sums with the labels'."""
    run = tl.program_id(0)
    u = tl.arange(0, UP)
    table = _table(run, 0, 1, u[:, None], UP, NP)
    d = _added_up(distance_parts, run, places, unlabeled, UP, NP)
    tl.store(distances + table, d)
    d = tl.maximum(d, 0)
    square = tl.zeros((UP,), tl.float32)
    for place in range(places):
        at = (run * places + place) * UP + u
        square += tl.load(square_parts + at, mask=u < unlabeled, other=0)
    tl.store(squares + run * UP + u, square)
    valid = (u[:, None] < unlabeled) & (tl.arange(0, NP)[None, :] < way)
    out, _ = shares.forward(
        d, square, d, valid, settings, parameters, run, way, unlabeled, NP, WITH
    )
    tl.store(weights + table, out)
    tl.store(totals + run * NP + tl.arange(0, NP), shot + tl.sum(out, 0))


@triton.jit(do_not_specialize=["way", "shot", "unlabeled", "queries", "runs", "places"])
def _refine_kernel(
    maps, weights, totals, prototypes_out, query_parts,
    way, shot, unlabeled, queries, runs, places,
    NP: tl.constexpr, UP: tl.constexpr, UT: tl.constexpr, QP: tl.constexpr, QT: tl.constexpr,
    F: tl.constexpr,
):  # fmt: skip
    """Eqs. 4, 9: refined prototypes; then parts of the queries' squared distances to them."""
    run, place = tl.program_id(0), tl.program_id(1)
    n = tl.arange(0, NP)[:, None]
    prototypes = _means(maps, run, place, runs, places, way, shot, NP, F)
    if unlabeled > 0:
        total = shot * prototypes
        for first in range(0, unlabeled, UT):
            u = first + tl.arange(0, UT)[:, None]
            at = _at(way * shot + u, run, place, runs, places, F)
            rows = tl.load(maps + at, mask=u < unlabeled, other=0)
            weight = tl.load(weights + _table(run, 0, 1, u, UP, NP))  # zero beyond the last
            total += _product(tl.trans(weight), rows)
        prototypes = total / tl.load(totals + run * NP + n)
    tl.store(prototypes_out + _table(run, place, places, n, NP, F), prototypes)
    center, moved = _center(prototypes, way), _moved(prototypes, way, NP)
    for first in range(0, queries, QT):
        q = first + tl.arange(0, QT)[:, None]
        at = _at(way * shot + unlabeled + q, run, place, runs, places, F)
        asked = tl.load(maps + at, mask=q < queries, other=0)
        part = _distances(asked - center, moved)
        tl.store(query_parts + _table(run, place, places, q, QP, NP), part)


@triton.jit(do_not_specialize=["way", "queries", "places"])
def _loss_kernel(
    query_parts, losses, grads, way, queries, places, NP: tl.constexpr, QP: tl.constexpr
):
    """Eqs. 2-3: a run's loss, and its gradient with respect to the distances."""
    run = tl.program_id(0)
    q, n = tl.arange(0, QP)[:, None], tl.arange(0, NP)[None, :]
    total = _added_up(query_parts, run, places, queries, QP, NP)
    logits = tl.where(n < way, -tl.maximum(total, 0), float("-inf"))
    logits -= tl.max(logits, 1)[:, None]
    each = tl.exp(logits)
    summed = tl.sum(each, 1)[:, None]
    own = (n == q // (queries // way)) & (q < queries)
    loss = tl.sum(tl.sum(tl.where(own, tl.log(summed) - logits, 0), 1), 0)
    tl.store(losses + run, loss / queries)
    grad = (own.to(tl.float32) - each / summed) / queries
    valid = (q < queries) & (n < way) & (total >= 0)
    tl.store(grads + _table(run, 0, 1, q, QP, NP), tl.where(valid, grad, 0))


@triton.jit(do_not_specialize=["way", "shot", "unlabeled", "queries", "runs", "places"])
def _query_backward_kernel(
    maps, prototypes_in, totals, query_grads, loss_grads, maps_grad, prototype_grads, weight_parts,
    way, shot, unlabeled, queries, runs, places,
    NP: tl.constexpr, UP: tl.constexpr, UT: tl.constexpr, QP: tl.constexpr, QT: tl.constexpr,
    F: tl.constexpr,
):  # fmt: skip
    """From the queries' distances to the queries, the refined prototypes, and parts of the weights."""
    run, place = tl.program_id(0), tl.program_id(1)
    n = tl.arange(0, NP)[:, None]
    prototypes = tl.load(prototypes_in + _table(run, place, places, n, NP, F))
    center, moved = _center(prototypes, way), _moved(prototypes, way, NP)
    scale = 2 * tl.load(loss_grads + run)
    out = tl.zeros((NP, F), tl.float32)
    for first in range(0, queries, QT):
        q = first + tl.arange(0, QT)[:, None]
        at = _at(way * shot + unlabeled + q, run, place, runs, places, F)
        asked = tl.load(maps + at, mask=q < queries, other=0) - center
        grad = tl.load(query_grads + _table(run, 0, 1, q, QP, NP)) * scale
        own = tl.sum(grad, 1)[:, None] * asked - _product(grad, moved)
        tl.store(maps_grad + at, own, mask=q < queries)
        out += tl.sum(grad, 0)[:, None] * moved - _product(tl.trans(grad), asked)
    if unlabeled > 0:
        total = tl.load(totals + run * NP + n)
        out /= total
        tl.store(prototype_grads + _table(run, place, places, n, NP, F), out)
        along = tl.sum(out * moved, 1)[None, :]
        for first in range(0, unlabeled, UT):
            u = first + tl.arange(0, UT)[:, None]
            at = _at(way * shot + u, run, place, runs, places, F)
            rows = tl.load(maps + at, mask=u < unlabeled, other=0) - center
            part = _product(rows, tl.trans(out)) - along
            tl.store(weight_parts + _table(run, place, places, u, UP, NP), part)
    else:
        _store_shots(maps_grad, out / shot, run, place, runs, places, way, shot, NP, F)


@triton.jit(do_not_specialize=["way", "unlabeled", "places"])
def _shares_backward_kernel(
    weight_parts, distances, squares, settings, parameters, distance_grads, square_grads, grads,
    way, unlabeled, places, NP: tl.constexpr, UP: tl.constexpr, WITH: tl.constexpr,
):  # fmt: skip
    """From a run's weights to the distances and the refiner's parameters."""
    run = tl.program_id(0)
    u = tl.arange(0, UP)
    table = _table(run, 0, 1, u[:, None], UP, NP)
    raw = tl.load(distances + table)
    grad = _added_up(weight_parts, run, places, unlabeled, UP, NP)
    valid = (u[:, None] < unlabeled) & (tl.arange(0, NP)[None, :] < way)
    square = tl.load(squares + run * UP + u)
    d = tl.maximum(raw, 0)
    distance_grad, square_grad, _, first, second = shares.backward(
        grad, square * 0, d, square, d, valid, settings, parameters, grads, 1.0,
        run, way, unlabeled, NP, WITH, False,
    )  # fmt: skip
    shares.store_sums(first, second, settings, grads, run, WITH, False)
    tl.store(distance_grads + table, tl.where(raw >= 0, distance_grad, 0))
    tl.store(square_grads + run * UP + u, square_grad)


@triton.jit(do_not_specialize=["way", "shot", "unlabeled", "runs", "places"])
def _refine_backward_kernel(
    maps, weights, prototype_grads, distance_grads, square_grads, maps_grad,
    way, shot, unlabeled, runs, places,
    NP: tl.constexpr, UP: tl.constexpr, UT: tl.constexpr, F: tl.constexpr,
):  # fmt: skip
    """From the refined prototypes and the distances to the unlabeled and support images."""
    run, place = tl.program_id(0), tl.program_id(1)
    n = tl.arange(0, NP)[:, None]
    refined_grad = tl.load(prototype_grads + _table(run, place, places, n, NP, F))
    prototypes = _means(maps, run, place, runs, places, way, shot, NP, F)
    center, moved = _center(prototypes, way), _moved(prototypes, way, NP)
    total = tl.zeros((NP, F), tl.float32)
    for first in range(0, unlabeled, UT):
        u = first + tl.arange(0, UT)[:, None]
        at = _at(way * shot + u, run, place, runs, places, F)
        rows = tl.load(maps + at, mask=u < unlabeled, other=0)
        table = _table(run, 0, 1, u, UP, NP)
        grad = 2 * tl.load(distance_grads + table)
        out = 2 * tl.load(square_grads + run * UP + u) * rows
        rows -= center
        out += tl.sum(grad, 1)[:, None] * rows - _product(grad, moved)
        out += _product(tl.load(weights + table), refined_grad)
        tl.store(maps_grad + at, out, mask=u < unlabeled)
        total += tl.sum(grad, 0)[:, None] * moved - _product(tl.trans(grad), rows)
    out = refined_grad + total / shot  # a support image has its share of the mean
    _store_shots(maps_grad, out, run, place, runs, places, way, shot, NP, F)


@dataclass(frozen=True)
class Sizes:
    """Of an episode."""

    way: int
    shot: int
    unlabeled: int
    queries: int

    @property
    def rounded(self) -> tuple[int, int, int]:
        """NP, UP, QP."""
        least = (max(LEAST, size) for size in (self.way, self.unlabeled, self.queries))
        n, u, q = (int(triton.next_power_of_2(size)) for size in least)
        return n, u, q

    def fit(self, filters: int) -> bool:
        """Whether programs can hold the tables."""
        n, u, q = self.rounded
        return n <= 64 and max(u, q) <= 256 and filters <= 64

    @property
    def warps(self) -> int:
        """Of a program that holds a run's tables."""
        n, u, q = self.rounded
        return min(16, max(4, n * max(u, q) // 512))


class EpisodeLosses(torch.autograd.Function):
    """Maps (B, R * F, H, W), and the parameters of the refiners -> losses (R,)."""

    @staticmethod
    def forward(
        ctx: Any,
        maps: Tensor,
        settings: Tensor,
        sizes: Sizes,
        parts: int,
        *parameters: Tensor,
    ) -> Tensor:
        maps = channels_last(maps)
        runs = len(settings)
        filters, places = maps.shape[1] // runs, maps.shape[2] * maps.shape[3]
        n, u, q = sizes.rounded
        ut, qt = min(u, MOST_ROWS), min(q, MOST_ROWS)
        shape = sizes.way, sizes.shot, sizes.unlabeled

        def empty(*size: int) -> Tensor:
            return torch.empty(size, device=maps.device)

        distances, squares = empty(runs, u, n), empty(runs, u)
        weights, totals = empty(runs, u, n), empty(runs, n)
        prototypes, query_parts = empty(runs, places, n, filters), empty(runs, places, q, n)
        if sizes.unlabeled:
            distance_parts, square_parts = empty(runs, places, u, n), empty(runs, places, u)
            launch(_distance_kernel, (runs, places, triton.cdiv(sizes.unlabeled, ut)))(
                maps, distance_parts, square_parts, *shape, runs, places, n, u, ut, filters,
                num_warps=WARPS,
            )  # fmt: skip
            launch(_shares_kernel, (runs,))(
                distance_parts, square_parts, settings, parameters,
                distances, squares, weights, totals, *shape, places, n, u, parts,
                num_warps=sizes.warps,
            )  # fmt: skip
        launch(_refine_kernel, (runs, places))(
            maps, weights, totals, prototypes, query_parts,
            *shape, sizes.queries, runs, places, n, u, ut, q, qt, filters, num_warps=WARPS,
        )  # fmt: skip
        losses, query_grads = empty(runs), empty(runs, q, n)
        launch(_loss_kernel, (runs,))(
            query_parts, losses, query_grads, sizes.way, sizes.queries, places, n, q,
            num_warps=sizes.warps,
        )  # fmt: skip
        ctx.save_for_backward(
            maps,
            distances,
            squares,
            weights,
            totals,
            prototypes,
            query_grads,
            settings,
            *parameters,
        )
        ctx.sizes, ctx.parts = sizes, parts
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        maps, distances, squares, weights, totals, prototypes, query_grads, settings = (
            ctx.saved_tensors[:8]
        )
        parameters = ctx.saved_tensors[8:]
        sizes, runs = ctx.sizes, len(settings)
        filters, places = maps.shape[1] // runs, maps.shape[2] * maps.shape[3]
        n, u, q = sizes.rounded
        ut, qt = min(u, MOST_ROWS), min(q, MOST_ROWS)
        shape = sizes.way, sizes.shot, sizes.unlabeled
        maps_grad, prototype_grads = torch.empty_like(maps), torch.empty_like(prototypes)
        weight_parts = torch.empty(runs, places, u, n, device=maps.device)
        launch(_query_backward_kernel, (runs, places))(
            maps, prototypes, totals, query_grads, grad.contiguous(), maps_grad, prototype_grads,
            weight_parts, *shape, sizes.queries, runs, places, n, u, ut, q, qt, filters,
            num_warps=WARPS,
        )  # fmt: skip
        if not sizes.unlabeled:
            return maps_grad, *[None] * (3 + len(parameters))
        distance_grads, square_grads = torch.empty_like(distances), torch.empty_like(squares)
        grads = [torch.empty_like(parameter) for parameter in parameters]
        launch(_shares_backward_kernel, (runs,))(
            weight_parts, distances, squares, settings, parameters, distance_grads, square_grads,
            tuple(grads), sizes.way, sizes.unlabeled, places, n, u, ctx.parts,
            num_warps=sizes.warps,
        )  # fmt: skip
        launch(_refine_backward_kernel, (runs, places))(
            maps, weights, prototype_grads, distance_grads, square_grads, maps_grad,
            *shape, runs, places, n, u, ut, filters, num_warps=WARPS,
        )  # fmt: skip
        wanted = (g if g.is_floating_point() else None for g in grads)
        return maps_grad, None, None, None, *wanted


def episode_losses(maps: Tensor, methods: Methods, sizes: Sizes) -> Tensor:
    """The last feature maps of a fleet's episodes, (B, R * F, H, W) in float32 -> losses (R,)."""
    assert methods.settings is not None
    out: Tensor = EpisodeLosses.apply(  # type: ignore[no-untyped-call]
        maps, methods.settings, sizes, methods.parts, *methods.parameters()
    )
    return out
