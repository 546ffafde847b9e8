"""How an image becomes the input of an ONNX file, and its output the features of the image.

Letters: B images, H x W pixels, C channels, T tokens, D features.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from semishot.data.framing import MOST_SIDE, Middle
from semishot.errors import InputError


@dataclass(frozen=True)
class Preparation:
    """How an image becomes the input of an ONNX file, and which of its outputs are the features."""

    height: int
    width: int
    channels: int
    crop: float
    mean: tuple[float, ...]
    """Of each channel, on the scale of 0 to 1; empty if the file takes uint8 pixels."""
    std: tuple[float, ...]
    output: str
    tokens: Literal["first", "mean"]

    def __post_init__(self) -> None:
        if not all(1 <= side <= MOST_SIDE for side in (self.height, self.width)):
            raise InputError(
                f"the size must be 1 to {MOST_SIDE} pixels, not {self.height} x {self.width}"
            )
        if self.channels not in (1, 3):
            raise InputError(f"images have 1 or 3 channels, not {self.channels}")
        if not 0 < self.crop <= 1:
            raise InputError(f"the crop must be above 0 and at most 1, not {self.crop}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (0, self.channels) or not np.isfinite(values).all():
                raise InputError(f"the {name} must be {self.channels} numbers, not {values}")
        if len(self.mean) != len(self.std) or any(value <= 0 for value in self.std):
            raise InputError(f"the std must be positive, not {self.std}")


class Scaling(nn.Module):
    """uint8 (B, H, W, C) -> what the file takes: scaled, in its layout."""

    def __init__(self, preparation: Preparation, dtype: torch.dtype, channels_last: bool) -> None:
        super().__init__()
        self.dtype, self.channels_last = dtype, channels_last
        self.mean = [255 * value for value in preparation.mean]
        self.std = [255 * value for value in preparation.std]

    def forward(self, images: Tensor) -> Tensor:
        if self.mean:
            images = (images.float() - torch.tensor(self.mean)) / torch.tensor(self.std)
        images = images.to(self.dtype)
        return images if self.channels_last else images.permute(0, 3, 1, 2)


class Pooling(nn.Module):
    """(B, D) as it is; (B, T, D): the first token or the mean over tokens; maps: the mean over each."""

    def __init__(self, tokens: str, channels_last: bool) -> None:
        super().__init__()
        self.tokens, self.channels_last = tokens, channels_last

    def forward(self, found: Tensor) -> Tensor:
        found = found.float()
        if found.ndim == 4:
            return found.mean((1, 2) if self.channels_last else (2, 3))
        if found.ndim == 3:
            return found[:, 0] if self.tokens == "first" else found.mean(1)
        return found


def framing_of(preparation: Preparation) -> Middle:
    p = preparation
    return Middle(p.height, p.width, p.crop, p.channels)
