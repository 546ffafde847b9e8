"""Drawings made smaller: by Pillow, which looks at every pixel, or as OpenCV does it, which does not.

`antialiased` is Pillow's bicubic filter, widened with the scale. OpenCV's `cubic` and `linear` take the 4
or 2 pixels around a point along each axis whatever the scale, `nearest` one, and `area` the mean of all.

Letters: I images, H x W pixels of an image.
"""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from semishot.data.settings import Reduction

CURVE = -0.75
"""The parameter of OpenCV's cubic kernel; Pillow's has -0.5."""
FIXED = 2048
"""OpenCV rounds the weights of 8-bit images to multiples of 1/2048."""


def reduced(drawing: NDArray[np.uint8], side: int, how: Reduction) -> NDArray[np.uint8]:
    """(H, W) -> (side, side). OpenCV's bits for drawings in black and white, except `linear`; otherwise
    within one level of OpenCV's."""
    if how == "antialiased":
        return np.asarray(Image.fromarray(drawing).resize((side, side), Image.Resampling.BICUBIC))
    rows, columns = (weights(size, side, how) for size in drawing.shape)
    exact = rows @ drawing.astype(np.float64) @ columns.T
    whole = np.rint(exact) if how == "area" else np.floor(exact + 0.5)
    return whole.clip(0, 255).astype(np.uint8)


def weights(size: int, side: int, how: Reduction) -> NDArray[np.float64]:
    """(side, size): how much of each pixel along an axis goes into each pixel of the result."""
    scale, out = size / side, np.arange(side)
    found = np.zeros((side, size))
    if how == "nearest":
        found[out, np.floor(out * scale).astype(int)] = 1
    elif how == "area":  # the length of each pixel that is inside the result's
        ends, pixels = scale * (out[:, None] + 1), np.arange(size)
        inside = np.minimum(ends, pixels + 1) - np.maximum(ends - scale, pixels)
        found = inside.clip(0) / scale
    else:
        center = (out + 0.5) * scale - 0.5
        for tap in (-1, 0, 1, 2):
            pixel = np.floor(center).astype(int) + tap
            share = np.rint(FIXED * kernel(np.abs(center - pixel), how)) / FIXED
            np.add.at(found, (out, pixel.clip(0, size - 1)), share)  # the border is repeated
    return found


def kernel(distance: NDArray[np.float64], how: Reduction) -> NDArray[np.float64]:
    """The weight of a pixel at this distance from the point."""
    if how == "linear":
        return (1 - distance).clip(0)
    near = ((CURVE + 2) * distance - (CURVE + 3)) * distance**2 + 1
    far = CURVE * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))
