"""Inner products of all points of a fleet's episodes, and back: all that refinement and loss depend on.

The points of a run are its images and, after the last, the origin, seen from a center: no distance between
points depends on it, and near them fewer digits are lost. With a sphere (`network/sphere.py`) the center is
the sphere's, and a point x at a distance of 1 / g has the place r g x, so that the inner products are scaled
by r^2 g_i g_j.

With C the gradient of the inner products plus its transpose, the gradient of point i is sum_j C_ij x_j.
Behind a sphere, with y = r g x and g^-2 = |x|^2 + a constant,

    sum_j r^2 g_i g_j C_ij x_j - g_i^2 x_i sum_j C_ij (y_i y_j).

A program takes TILE of a run's points. Letters: R runs, B images, F filters, P places of the last maps,
D = F P features; M points, rounded up to a multiple of TILE.
"""

import triton
import triton.language as tl

from semishot.network import sphere
from semishot.prototypes import SHORTEST

PRECISION = tl.constexpr("tf32x3")
"""Three products in TF32, which together have the digits of one in float32."""
TILE = tl.constexpr(64)
"""Points of a program. Kernels are compiled for numbers of points that are multiples of 16, so that rows of
tables are loaded in whole words."""
MOST_FILTERS = 64
"""Handled at a time; more are handled in parts."""
PROGRAMS = 512
"""About so many, if there are features enough, multiply points; their sums are added up."""
SPEED = tl.constexpr(sphere.SPEED)
EPSILON = tl.constexpr(SHORTEST)


@triton.jit
def _seen(
    maps, centers, first, run, part, runs, places, images,
    F: tl.constexpr, FT: tl.constexpr, SPHERE: tl.constexpr,
):  # fmt: skip
    """(TILE, FT): points from the center, some of their features."""
    i = first + tl.arange(0, TILE)[:, None]
    place, f = part // (F // FT), part % (F // FT) * FT + tl.arange(0, FT)[None, :]
    at = ((i * places + place) * runs + run) * F + f
    x = tl.load(maps + at, mask=i < images, other=0)
    x -= tl.load(centers + (run * places + place) * F + f)
    points = images if SPHERE else images + 1
    return tl.where(i < points, x, 0)


@triton.jit(do_not_specialize=["runs", "places", "images", "momentum"])
def center_kernel(
    maps, moving, centers, momentum, runs, places, images,
    F: tl.constexpr, FT: tl.constexpr, SPHERE: tl.constexpr,
):  # fmt: skip
    """The mean of the images, or a sphere's center (R, D), which follows it."""
    run, part = tl.program_id(0), tl.program_id(1)
    place, f = part // (F // FT), part % (F // FT) * FT + tl.arange(0, FT)
    total = tl.zeros((FT,), tl.float32)
    for first in range(0, images, TILE):
        i = first + tl.arange(0, TILE)[:, None]
        at = ((i * places + place) * runs + run) * F + f[None, :]
        total += tl.sum(tl.load(maps + at, mask=i < images, other=0), 0)
    center = total / images
    if SPHERE:
        at = (run * F + f) * places + place
        before = tl.load(moving + at)
        center = before + momentum * (center - before)
        tl.store(moving + at, center)
    tl.store(centers + (run * places + place) * F + f, center)


@triton.jit(do_not_specialize=["runs", "places", "images", "slices"])
def inner_kernel(
    maps, centers, inner, runs, places, images, points, slices,
    F: tl.constexpr, FT: tl.constexpr, SPHERE: tl.constexpr,
):  # fmt: skip
    """(slices, R, M, M): inner products seen from the center, of a slice of the features; the lower half is
    the upper one's."""
    run, row, column = tl.program_id(0) % runs, tl.program_id(1) * TILE, tl.program_id(2) * TILE
    if row <= column:
        out = tl.zeros((TILE, TILE), tl.float32)
        for part in range(tl.program_id(0) // runs, places * (F // FT), slices):
            a = _seen(maps, centers, row, run, part, runs, places, images, F, FT, SPHERE)
            b = _seen(maps, centers, column, run, part, runs, places, images, F, FT, SPHERE)
            out += tl.dot(a, tl.trans(b), input_precision=PRECISION)
        i, j = row + tl.arange(0, TILE)[:, None], column + tl.arange(0, TILE)[None, :]
        inner += tl.program_id(0).to(tl.int64) * points * points
        tl.store(inner + i * points + j, out)
        if row < column:
            tl.store(inner + tl.trans(j) * points + tl.trans(i), tl.trans(out))


@triton.jit
def _closeness(inner, run, i, points):
    """g of some points, one over their distance from the center."""
    return tl.rsqrt(tl.load(inner + (run * points + i) * points + i) + EPSILON)


@triton.jit
def square_radius(slow, run):
    """r^2, half the scale of cosines."""
    return tl.exp(tl.load(slow + run) * SPEED) / 2


@triton.jit
def sphere_kernel(inner, slow, out, points):
    """(R, M, M): inner products of points on the sphere."""
    run = tl.program_id(0)
    i = tl.program_id(1) * TILE + tl.arange(0, TILE)
    j = tl.program_id(2) * TILE + tl.arange(0, TILE)
    at = (run * points + i[:, None]) * points + j[None, :]
    g = _closeness(inner, run, i, points)[:, None] * _closeness(inner, run, j, points)[None, :]
    tl.store(out + at, tl.load(inner + at) * g * square_radius(slow, run))


@triton.jit(do_not_specialize=["runs", "places", "images"])
def points_backward_kernel(
    maps, centers, inner, slow, both, along, loss_grads, radius_grads, maps_grad, slow_grad,
    runs, places, images, points, F: tl.constexpr, FT: tl.constexpr, SPHERE: tl.constexpr,
):  # fmt: skip
    """From C, `both` (R, M, M), and its products `along` (R, tiles, M) with the inner products, to the images
    and the sphere's parameter."""
    run, part, first = tl.program_id(0), tl.program_id(1), tl.program_id(2) * TILE
    i = first + tl.arange(0, TILE)
    scale = tl.load(loss_grads + run)
    out = tl.zeros((TILE, FT), tl.float32)
    for other in range(0, points, TILE):
        j = other + tl.arange(0, TILE)
        x = _seen(maps, centers, other, run, part, runs, places, images, F, FT, SPHERE)
        if SPHERE:
            x *= _closeness(inner, run, j, points)[:, None]
        c = tl.load(both + (run * points + i[:, None]) * points + j[None, :])
        out += tl.dot(c, x, input_precision=PRECISION)
    if SPHERE:
        square = square_radius(slow, run)
        g = _closeness(inner, run, i, points)
        total = tl.zeros((TILE,), tl.float32)
        for tile in range(points // TILE):
            total += tl.load(along + (run * (points // TILE) + tile) * points + i)
        x = _seen(maps, centers, first, run, part, runs, places, images, F, FT, SPHERE)
        out = square * g[:, None] * out - (g * g * total)[:, None] * x
        if part == 0 and first == 0:
            of_scale = tl.load(radius_grads + run) * tl.sqrt(square)
            for tile in range(points // TILE * (points // TILE)):
                at = run * (points // TILE) * points + tile * TILE + tl.arange(0, TILE)
                of_scale += tl.sum(tl.load(along + at), 0)
            tl.store(slow_grad + run, scale * of_scale * SPEED / 2)
    place, f = part // (F // FT), part % (F // FT) * FT + tl.arange(0, FT)[None, :]
    at = ((i[:, None] * places + place) * runs + run) * F + f
    tl.store(maps_grad + at, out * scale, mask=i[:, None] < images)
