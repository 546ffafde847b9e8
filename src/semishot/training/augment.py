"""Random affine maps, crops and quarter turns of images, drawn by address like episodes.

Letters: E episodes, B images of an episode, V views.
"""

import numpy as np
from numpy.typing import NDArray

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


def maps_at_test(strength: float, views: int) -> NDArray[np.float32]:
    """(V - 1, 2, 3): how the views of an image at test are moved, the same for all images; the first view is
    the image itself."""
    maps: NDArray[np.float32] = sample_maps(strength, 0, 0, (1, views - 1))[0]
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
