"""An opened image -> the pixels an encoder takes: all of it, its middle, or its ink; drawing detection.

A framing is a small value; as JSON it is saved with a model and is part of its encoder's identity.
"""

import json
from dataclasses import asdict, dataclass
from typing import get_args

import numpy as np
from PIL import Image

from semishot.data.decoding import Pixels, header, opened, quiet, resized, upright
from semishot.errors import InputError
from semishot.system.json_fields import from_json

FAINTEST = 64
"""The least contrast, out of 255, that is stretched to full ink. Anything less is paper."""
SMALL, LARGEST_DRAWING = 32, 128
"""Pixels per side: any gray image up to the first is a drawing, or up to the second if mostly paper."""
NEAR_PAPER, PAPER_SHARE = 16, 0.7
"""The most, out of 255, by which paper differs from the border's color, and its least share of pixels."""
MOST_SIDE = 4096
LARGEST_SQUARE, SHRUNK = 8000, 1024
"""Pixels per side: a longer drawing is shrunk before it gets margins, to this length."""


@dataclass(frozen=True)
class Whole:
    """The whole image, resized to the encoder's rectangle whatever its proportions."""

    height: int
    width: int
    channels: int = 3
    bicubic: bool = False

    def __call__(self, image: Image.Image) -> Pixels:
        draft(image, self.height, self.width)
        with upright(image, self.channels) as seen:
            return resized(seen, self.height, self.width, self.bicubic)


@dataclass(frozen=True)
class Middle:
    """The largest rectangle of the encoder's proportions, less a margin, from the middle."""

    height: int
    width: int
    share: float
    """The share of each side that is kept."""
    channels: int = 3
    bicubic: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InputError(f"share must be above 0 and at most 1, not {self.share}")

    def __call__(self, image: Image.Image) -> Pixels:
        draft(image, self.height, self.width)
        with upright(image, self.channels) as seen:
            scale = self.share * min(seen.width / self.width, seen.height / self.height)
            half_width, half_height = self.width * scale / 2, self.height * scale / 2
            x, y = seen.width / 2, seen.height / 2
            box = (x - half_width, y - half_height, x + half_width, y + half_height)
            return resized(seen, self.height, self.width, self.bicubic, box)


@dataclass(frozen=True)
class Ink:
    """A line drawing as in Omniglot's pool: ink 255 on 0, whatever the colors of ink and paper.

    The pixels that differ most from the color of the paper become full ink. A drawing that is not square
    gets margins of paper, which keep its proportions.
    """

    height: int = 28
    width: int = 28
    channels: int = 1

    def __call__(self, image: Image.Image) -> Pixels:
        with upright(image, 1) as drawing:
            return self._frame(drawing)

    def _frame(self, drawing: Image.Image) -> Pixels:
        paper = paper_color(drawing)
        shades = np.asarray(drawing.getextrema())
        contrast = int(np.abs(shades - paper).max())
        side = max(drawing.size)
        if side > LARGEST_SQUARE:  # margins of paper would make it a square of billions of pixels
            size = tuple(max(1, round(length * SHRUNK / side)) for length in drawing.size)
            drawing = Image.fromarray(resized(drawing, size[1], size[0], True)[:, :, 0])
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


def to_json(framing: Framing) -> str:
    return json.dumps({"kind": type(framing).__name__, **asdict(framing)})


def framing_from_json(text: str, where: object) -> Framing:
    """Read what `to_json` has written, checking its fields."""
    where = f"the framing of {where}"
    written = json.loads(text)
    kinds = {kind.__name__: kind for kind in get_args(Framing)}
    kind = written.pop("kind") if isinstance(written, dict) and "kind" in written else None
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(f"{where}: kind must be one of {', '.join(kinds)}, not {kind!r:.40}")
    framing: Framing = from_json(kinds[kind], written, where)
    sides = (framing.height, framing.width)
    if not all(1 <= side <= MOST_SIDE for side in sides) or framing.channels not in (1, 3):
        raise InputError(f"{where}: {sides[0]} x {sides[1]} x {framing.channels} is not an image")
    return framing


def is_drawing(data: bytes, name: str) -> bool:
    """Whether an encoded image is a small gray drawing, which fits into 28x28 pixels of one channel.

    Above `SMALL` pixels per side, only lines on paper count as drawings, not gray photographs.
    """
    width, height, gray = header(data, name)
    if not gray or max(width, height) > LARGEST_DRAWING:
        return False
    if max(width, height) <= SMALL:
        return True
    with quiet(), opened(data, name) as image, upright(image, 1) as seen:
        near = np.abs(np.asarray(seen).astype(np.int16) - paper_color(seen)) <= NEAR_PAPER
    return bool(near.mean() >= PAPER_SHARE)


def paper_color(drawing: Image.Image) -> int:
    """Of a gray image: the median of the border."""
    width, height = drawing.size
    lines = [(0, 0, width, 1), (0, height - 1, width, height)]
    columns = [(0, 0, 1, height), (width - 1, 0, width, height)]
    border = [np.asarray(drawing.crop(box)).ravel() for box in lines + columns]
    return int(np.median(np.concatenate(border)))
