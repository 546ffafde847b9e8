"""Affine maps applied to images. Letters: R runs, B images, C channels, H x W pixels."""

import torch
from torch import Tensor
from torch.nn import functional as F


def warp(images: Tensor, maps: Tensor) -> Tensor:
    """uint8 images (R, B, C, H, W) transformed by maps (R, B, 2, 3), bilinear.

    Pixels from outside the image are zeros (paper) for one channel, the mirrored image for several.
    """
    flat = images.flatten(0, 1)
    grid = F.affine_grid(maps.flatten(0, 1), list(flat.shape), align_corners=False)
    outside = "zeros" if images.shape[2] == 1 else "reflection"
    moved = F.grid_sample(flat.float(), grid, padding_mode=outside, align_corners=False)
    return moved.round().to(torch.uint8).view_as(images)
