"""An image -> the pixels an encoder takes: all of it, its middle, or its ink; drawing detection.

A framing is a small value; as JSON it is saved with a model and is part of its encoder's identity.
"""

import json
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct, structs
from PIL import Image

from semishot.data.decoding import Picture, Pixels, opened, quiet, upright
from semishot.errors import InputError
from semishot.system.structs import decode

FAINTEST = 64
"""The least contrast, out of 255, that is stretched to full ink. Anything less is paper."""
SMALL, LARGEST_DRAWING = 32, 128
"""Pixels per side: any gray image up to the first is a drawing, or up to the second if mostly paper."""
NEAR_PAPER, PAPER_SHARE = 16, 0.7
"""The most, out of 255, by which paper differs from the border's color, and its least share of pixels."""
MOST_SIDE = 4096
LARGEST_SQUARE, SHRUNK = 8000, 1024
"""Pixels per side: a longer drawing is shrunk before it gets margins, to this length."""
Side = Annotated[int, Meta(ge=1, le=MOST_SIDE)]


def _seen(framing: "Framing", picture: Picture) -> Pixels:
    """(H, W, C)."""
    with upright(picture, framing.channels, least(framing)) as image:
        return framing.frame(image)


class Whole(Struct, frozen=True, tag=True, tag_field="kind"):
    """The whole image, resized to the encoder's rectangle whatever its proportions."""

    height: Side
    width: Side
    channels: int = 3
    bicubic: bool = False

    __call__ = _seen

    def frame(self, image: Image.Image) -> Pixels:
        """Of an upright image."""
        return _resized(image, self)


class Middle(Struct, frozen=True, tag=True, tag_field="kind"):
    """The largest rectangle of the encoder's proportions, less a margin, from the middle."""

    height: Side
    width: Side
    share: float
    """The share of each side that is kept."""
    channels: int = 3
    bicubic: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InputError(f"share must be above 0 and at most 1, not {self.share}")

    __call__ = _seen

    def frame(self, image: Image.Image) -> Pixels:
        """Of an upright image."""
        scale = self.share * min(image.width / self.width, image.height / self.height)
        half_width, half_height = self.width * scale / 2, self.height * scale / 2
        x, y = image.width / 2, image.height / 2
        return _resized(
            image, self, (x - half_width, y - half_height, x + half_width, y + half_height)
        )


class Both(Struct, frozen=True, tag=True, tag_field="kind"):
    """The whole image above its middle: (2 H, W, C)."""

    view_height: Side
    width: Side
    share: float
    channels: int = 3
    bicubic: bool = True

    @property
    def height(self) -> int:
        return 2 * self.view_height

    __call__ = _seen

    def frame(self, image: Image.Image) -> Pixels:
        """Of an upright image."""
        whole = Whole(self.view_height, self.width, self.channels, self.bicubic)
        middle = Middle(self.view_height, self.width, self.share, self.channels, self.bicubic)
        return np.concatenate([whole.frame(image), middle.frame(image)])


class Ink(Struct, frozen=True, tag=True, tag_field="kind"):
    """A line drawing as in Omniglot's pool: ink 255 on 0, whatever the colors of ink and paper.

    The pixels that differ most from the color of the paper become full ink. A drawing that is not square
    gets margins of paper, which keep its proportions.
    """

    height: Side = 28
    width: Side = 28
    channels: int = 1

    __call__ = _seen

    def frame(self, image: Image.Image) -> Pixels:
        """Of an upright gray image: (H, W, 1)."""
        paper = paper_color(image)
        contrast = int(np.abs(np.asarray(image.getextrema()) - paper).max())
        if max(image.size) > LARGEST_SQUARE:  # its square would have billions of pixels
            scale = SHRUNK / max(image.size)
            size = [max(1, round(side * scale)) for side in image.size]
            image = image.resize(size, Image.Resampling.BICUBIC)
        side = max(image.size)
        square = Image.new("L", (side, side), paper)
        square.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
        small = square.resize((self.width, self.height), Image.Resampling.BICUBIC)
        differs = np.abs(np.asarray(small)[:, :, None].astype(np.float64) - paper)
        ink = differs * (255 / max(contrast, FAINTEST))
        return ink.round().clip(0, 255).astype(np.uint8)


Framing = Whole | Middle | Both | Ink


def least(framing: Framing) -> tuple[int, int] | None:
    """The width and height that an image must at least be decoded at: twice those of the result. None: whole,
    as thin lines would be lost."""
    if isinstance(framing, Ink):
        return None
    height = framing.view_height if isinstance(framing, Both) else framing.height
    side = 2 * max(height, framing.width)
    return side, side


def _resized(
    image: Image.Image,
    framing: Whole | Middle,
    box: tuple[float, float, float, float] | None = None,
) -> Pixels:
    """(H, W, C), by Pillow's filters, which average over every pixel."""
    filter = Image.Resampling.BICUBIC if framing.bicubic else Image.Resampling.BILINEAR
    small = image.resize((framing.width, framing.height), filter, box)
    return np.array(small).reshape(framing.height, framing.width, framing.channels)


def to_json(framing: Framing) -> str:
    return json.dumps({"kind": type(framing).__name__, **structs.asdict(framing)})


def framing_from_json(text: str, where: object) -> Framing:
    """Read what `to_json` has written, checking its fields."""
    union: Any = Framing
    framing: Framing = decode(union, text, f"the framing of {where}")
    if framing.channels not in (1, 3):
        raise InputError(f"the framing of {where}: channels must be 1 or 3, not {framing.channels}")
    return framing


def is_drawing(data: bytes, name: str) -> bool:
    """Whether an encoded image is a small gray drawing, which fits into 28x28 pixels of one channel.

    Above `SMALL` pixels per side, only lines on paper count as drawings, not gray photographs.
    """
    with quiet(), opened(data, name) as image:
        if not _is_gray(image) or max(image.size) > LARGEST_DRAWING:
            return False
        if max(image.size) <= SMALL:
            return True
        with upright(image, 1) as drawing:
            differs = np.abs(np.asarray(drawing).astype(np.int16) - paper_color(drawing))
    return bool((differs <= NEAR_PAPER).mean() >= PAPER_SHARE)


def _is_gray(image: Image.Image) -> bool:
    if image.mode == "P":
        palette = np.array(image.getpalette("RGB")).reshape(-1, 3)
        return bool((palette == palette[:, :1]).all())
    return image.mode in {"1", "L", "LA", "I", "F"} or image.mode.startswith("I;16")


def paper_color(drawing: Image.Image) -> int:
    """Of a gray image: the median of the border."""
    width, height = drawing.size
    lines = [(0, 0, width, 1), (0, height - 1, width, height)]
    columns = [(0, 0, 1, height), (width - 1, 0, width, height)]
    border = [np.asarray(drawing.crop(box)).ravel() for box in lines + columns]
    return int(np.median(np.concatenate(border)))
