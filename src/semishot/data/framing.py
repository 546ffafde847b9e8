"""An opened picture -> the pixels an encoder takes: whole, the middle of it, or its ink.

Each is a small value that says how; as JSON it is part of an encoder's identity.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from semishot.data.decoding import upright

Pixels = NDArray[np.uint8]
"""(H, W, C)."""
FAINTEST = 64
"""Contrast, of 255, that is stretched to full ink. Less is paper."""


@dataclass(frozen=True)
class Whole:
    """The whole picture, squeezed into the encoder's rectangle."""

    height: int
    width: int
    channels: int = 3
    bicubic: bool = False

    def __call__(self, image: Image.Image) -> Pixels:
        draft(image, self.height, self.width)
        return resized(upright(image, self.channels), self.height, self.width, self.bicubic)


@dataclass(frozen=True)
class Middle:
    """The largest rectangle of the encoder's proportions, less a margin, from the middle."""

    height: int
    width: int
    share: float
    """Of the sides that is kept."""
    channels: int = 3
    bicubic: bool = True

    def __call__(self, image: Image.Image) -> Pixels:
        draft(image, self.height, self.width)
        seen = upright(image, self.channels)
        scale = self.share * min(seen.width / self.width, seen.height / self.height)
        half_width, half_height = self.width * scale / 2, self.height * scale / 2
        x, y = seen.width / 2, seen.height / 2
        box = (x - half_width, y - half_height, x + half_width, y + half_height)
        return resized(seen, self.height, self.width, self.bicubic, box)


@dataclass(frozen=True)
class Ink:
    """A line drawing as in Omniglot's pool: ink 255 on 0, whatever the colors of ink and paper.

    The sheet's color is the median of the border. What differs from it most is full ink. A drawing that is
    not square gets margins of paper, so that its shape stays.
    """

    height: int = 28
    width: int = 28
    channels: int = 1

    def __call__(self, image: Image.Image) -> Pixels:
        drawing = upright(image, 1)
        pixels = np.asarray(drawing)
        border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
        paper = int(np.median(border))
        contrast = int(np.abs(pixels.astype(np.int16) - paper).max())
        side = max(drawing.size)
        square = Image.new("L", (side, side), paper)
        square.paste(drawing, ((side - drawing.width) // 2, (side - drawing.height) // 2))
        small = resized(square, self.height, self.width, True).astype(np.float64)
        ink = np.abs(small - paper) * (255 / max(contrast, FAINTEST))
        return ink.round().clip(0, 255).astype(np.uint8)


Framing = Whole | Middle | Ink


def draft(image: Image.Image, height: int, width: int) -> None:
    """Let a JPEG that is more than twice too large decode at a fraction of its size, much faster."""
    side = 2 * max(height, width)
    image.draft(None, (side, side))


def resized(
    image: Image.Image,
    height: int,
    width: int,
    bicubic: bool,
    box: tuple[float, float, float, float] | None = None,
) -> Pixels:
    """(H, W, C), by a filter that looks at every pixel."""
    if image.size != (width, height) or box is not None:
        filter = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
        image = image.resize((width, height), filter, box)
    return np.array(image).reshape(height, width, -1)
