"""Pictures drawn by code, in folders as people keep them: for the tests of `classify`."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

MEMBERS = ("circle", "cross", "stripes")
STRANGER = "dots"
DRAWN = ["--encoder", "omniglot", "--device", "cpu"]
"""Flags of a command that sorts drawings."""


def draw(kind: str, number: int, side: int = 96, ink="black", paper="white") -> Image.Image:
    """A drawing of a kind; each number is another hand."""
    rng = np.random.default_rng([number, *kind.encode()])
    image = Image.new("RGB", (side, side), paper)
    pen = ImageDraw.Draw(image)
    low, high = side * 0.2 + rng.uniform(-4, 4, 2), side * 0.8 + rng.uniform(-4, 4, 2)
    width = int(rng.integers(3, 6))
    if kind == "circle":
        pen.ellipse((*low, *high), outline=ink, width=width)
    elif kind == "cross":
        pen.line((*low, *high), ink, width)
        pen.line((low[0], high[1], high[0], low[1]), ink, width)
    elif kind == "stripes":
        for x in np.linspace(low[0], high[0], 4):
            pen.line((x, low[1], x, high[1]), ink, width)
    else:
        for x, y in rng.uniform(side * 0.15, side * 0.85, (25, 2)):
            pen.ellipse((x - 3, y - 3, x + 3, y + 3), fill=ink)
    return image


def save(image: Image.Image, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    return path


def folders(root: Path, shots: int = 3, pile: int = 6, strangers: int = 6) -> tuple[Path, Path]:
    """labeled/CLASS and pile; a name in the pile says what the picture is."""
    for kind in MEMBERS:
        for number in range(shots):
            save(draw(kind, number), root / "labeled" / kind / f"{number}.png")
        for number in range(pile):
            save(draw(kind, 100 + number), root / "pile" / "more" / f"{kind}-{number}.png")
    for number in range(strangers):
        save(draw(STRANGER, number), root / "pile" / f"{STRANGER}-{number}.png")
    return root / "labeled", root / "pile"
