"""Random affine maps, crops and quarter turns: drawn by address like episodes, applied on the device.

Letters: E episodes, B images of an episode, R runs, C channels, H x W pixels.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from semishot.data.episodes import draws

ROTATION = np.pi / 12
STRETCH = 0.15
SHEAR = 0.2
SHIFT = 0.1
"""Largest rotation (radians), log-scale, shear and shift (of half the image) at strength 1."""
TURNS = np.array([[[1, 0], [0, 1]], [[0, -1], [1, 0]], [[-1, 0], [0, -1]], [[0, 1], [-1, 0]]], "f4")
"""By 0 to 3 quarters."""


def sample_maps(
    strength: float, seed: int, start: int, size: tuple[int, int], mirror: bool = False
) -> NDArray[np.float32]:
    """(E, B, 2, 3): one map for each of the `size` = (E, B) images of training episodes from `start`
    on, from output to input coordinates.

    `mirror` flips every second image, left to right.
    """
    count, images = size
    u = 2 * draws(seed, "train: affine", start, count, 6 * images) - 1
    angle, across, down, shear, dx, dy = np.moveaxis(u.reshape(count, images, 6), -1, 0) * strength
    cos, sin = np.cos(ROTATION * angle), np.sin(ROTATION * angle)
    sx, sy, k = np.exp(STRETCH * across), np.exp(STRETCH * down), SHEAR * shear
    rows = [  # rotation times shear times stretch, and the shift
        [cos * sx, (cos * k - sin) * sy, SHIFT * dx],
        [sin * sx, (sin * k + cos) * sy, SHIFT * dy],
    ]
    maps = np.stack([np.stack(row, -1) for row in rows], -2).astype(np.float32)
    if mirror:
        maps[draws(seed, "train: mirror", start, count, images) < 0.5, :, 0] *= -1
    return maps


def sample_crops(least: float, seed: int, start: int, size: tuple[int, int]) -> NDArray[np.float32]:
    """(E, B, 2, 3): a square anywhere in each image, of a part of its area between `least` and all."""
    count, images = size
    u = draws(seed, "train: crop", start, count, 3 * images).reshape(count, images, 3)
    return crops(least, u)


def crops(least: float, u: NDArray[np.float64]) -> NDArray[np.float32]:
    """(..., 3) uniforms, for area and place -> maps (..., 2, 3)."""
    side = np.sqrt(1 - (1 - least) * u[..., 0])
    zero = np.zeros_like(side)
    across, down = ((1 - side) * (2 * u[..., i] - 1) for i in (1, 2))
    rows = [[side, zero, across], [zero, side, down]]
    return np.stack([np.stack(row, -1) for row in rows], -2).astype(np.float32)


def quarter_turns(turns: NDArray[np.int64]) -> NDArray[np.float32]:
    """(...) quarters from 0 to 3 -> maps (..., 2, 3)."""
    return np.pad(TURNS, ((0, 0), (0, 0), (0, 1)))[turns]


def compose(outer: NDArray[np.float32], inner: NDArray[np.float32]) -> NDArray[np.float32]:
    """outer(inner(x)), for maps (..., 2, 3)."""
    linear, shift = outer[..., :2] @ inner[..., :2], outer[..., :2] @ inner[..., 2:]
    return np.concatenate([linear, shift + outer[..., 2:]], -1)


def warp(images: Tensor, maps: Tensor) -> Tensor:
    """uint8 images (R, B, C, H, W) transformed by maps (R, B, 2, 3), bilinear.

    Pixels from outside the image are zeros (paper) for one channel, the mirrored image for several.
    """
    flat = images.flatten(0, 1)
    grid = F.affine_grid(maps.flatten(0, 1), list(flat.shape), align_corners=False)
    outside = "zeros" if images.shape[2] == 1 else "reflection"
    moved = F.grid_sample(flat.float(), grid, padding_mode=outside, align_corners=False)
    return moved.round().to(torch.uint8).view_as(images)
