"""The embedded data set: characters of invented scripts in twenty handwritings, drawn by code in seconds.

Shapes: C characters of an alphabet, D drawers, S strokes of a character, K guide points of a
stroke, T dots of ink along it. A script lives in the box [-1, 1]^2, y pointing down.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from semishot.data.framing import Ink
from semishot.data.pool import ImageClass, ImagePool, Split, save_pool
from semishot.system.progress import track

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]

SEED = 2018
ALPHABETS = 48
DRAWERS = 20
SIDE = 28
FRAMING = Ink
FINE = 4 * SIDE
"""Ink is laid on a grid four times finer; the block mean makes its edges smooth."""
MARGIN = 4
"""Fine pixels that stay white along every edge."""
HALF = 41.0
"""Half the size of a character in fine pixels, before a drawer's handwriting changes it."""
STROKES = 4
DOTS = 150
"""Dots per stroke: enough that the longest has no gaps under the thinnest pen."""
CANDIDATES = 80
ALIKE = 0.75
"""Two characters of an alphabet, written with the broad pen, have at most this cosine."""
BROAD_PEN = 9.0
CYCLE: tuple[Split, ...] = ("train", "train", "test", "train", "val", "train", "train", "test")
"""The alphabets' splits, repeated, so that even five alphabets hold all three."""

# The shapes of strokes: points (along, across) a chord of length 100.
LINE = [(0, 0), (17, 0), (33, 0), (50, 0), (67, 0), (83, 0), (100, 0)]
ARC = [(0, 0), (12, 15), (30, 27), (50, 31), (70, 27), (88, 15), (100, 0)]
CUP = [(0, 0), (0, 35), (15, 60), (50, 70), (85, 60), (100, 35), (100, 0)]
WAVE = [(0, 0), (13, 20), (33, 22), (50, 0), (67, -22), (87, -20), (100, 0)]
HOOK = [(0, 0), (30, 0), (60, 0), (86, 3), (100, 16), (96, 32), (80, 36)]
WEDGE = [(0, 0), (17, 20), (33, 40), (50, 60), (67, 40), (83, 20), (100, 0)]
CORNER = [(0, 0), (0, 20), (0, 40), (0, 60), (33, 60), (67, 60), (100, 60)]
ZIGZAG = [(0, 0), (20, 20), (40, 40), (50, 0), (60, -40), (80, -20), (100, 0)]
RING = [(0, 0), (10, 38), (50, 50), (97, 25), (97, -25), (50, -50), (0, -10)]
CURL = [(0, 0), (35, 2), (75, 10), (100, 32), (80, 52), (58, 34), (72, 0)]
MOTIFS = np.array([LINE, ARC, CUP, WAVE, HOOK, WEDGE, CORNER, ZIGZAG, RING, CURL]) / 100
GUIDES = MOTIFS.shape[1]


@dataclass(frozen=True)
class Hands:
    """How each drawer writes, independent of the character."""

    bend: Floats
    """(D, 2, 2) size, proportion, slant and tilt as one linear map."""
    bow: Floats
    """(D, 2) how far the middle of a character is pushed right and down."""
    wobble: Floats
    """(D,) how unsteady the pen is, 1 on average."""
    roundness: Floats
    """(D,) how much corners are rounded, 1 on average."""
    pen: Floats
    """(D,) radius of the pen in fine pixels."""


def _generator(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array([seed, stream], dtype=np.uint64)))


def _sample_hands(rng: np.random.Generator) -> Hands:
    size, proportion, slant, tilt = rng.normal(0, [[0.08], [0.10], [0.2], [0.07]], (4, DRAWERS))
    bend = np.array([[1 + size + proportion, tilt - slant], [-tilt, 1 + size - proportion]])
    return Hands(
        bend=np.moveaxis(bend, -1, 0),
        bow=rng.normal(0, 0.1, (DRAWERS, 2)),
        wobble=rng.uniform(0.6, 1.4, DRAWERS),
        roundness=rng.uniform(0.7, 1.3, DRAWERS),
        pen=rng.uniform(2.0, 3.8, DRAWERS),
    )


def _sample_repertoire(rng: np.random.Generator) -> Floats:
    """The strokes that an alphabet is made of, each relative to its first point: (?, K, 2)."""
    count = rng.integers(7, 13)
    angles = rng.choice(8, rng.integers(2, 5), replace=False) * np.pi / 4
    angle = rng.choice(angles, count) + rng.normal(0, 0.1, count)
    length = rng.choice([0.7, 1.2, 1.8], count, p=rng.dirichlet([1, 2, 2]))
    motif = rng.choice(len(MOTIFS), count, p=rng.dirichlet(np.full(len(MOTIFS), 0.5)))
    along, across = np.moveaxis(MOTIFS[motif], -1, 0)  # (?, K), (?, K)
    across = across * rng.choice([-1, 1], (count, 1))
    dx, dy = (length * np.cos(angle))[:, None], (length * np.sin(angle))[:, None]
    return np.stack([along * dx - across * dy, along * dy + across * dx], -1)


def _compose(rng: np.random.Generator, repertoire: Floats, attach: float) -> Floats:
    """Place strokes of the repertoire, (S, K, 2), on a 3x3 grid or on a stroke already there."""
    strokes = repertoire[rng.choice(len(repertoire), STROKES, replace=False)]
    for i in range(STROKES):
        if i > 0 and rng.random() < attach:
            there = strokes[rng.integers(i), rng.choice([0, GUIDES // 2, GUIDES - 1])]
            strokes[i] += there - strokes[i, rng.choice([0, GUIDES // 2])]
        else:
            strokes[i] += rng.choice([-0.6, 0, 0.6], 2) - strokes[i].mean(0)
    return strokes


def _invent_alphabet(rng: np.random.Generator) -> tuple[Floats, Bools, float]:
    """Characters (C, S, K, 2), which strokes they use (C, S, 1, 1), and how round the script is."""
    repertoire = _sample_repertoire(rng)
    attach = float(rng.choice([0.5, 0.75, 0.95]))
    roundness = float(rng.choice([0.0, 0.7, 1.0], p=[0.2, 0.3, 0.5]))
    fewest, wanted = int(rng.integers(1, 4)), int(rng.integers(14, 27))
    used = rng.integers(fewest, min(fewest + 2, STROKES) + 1, CANDIDATES)
    drawn = (np.arange(STROKES) < used[:, None])[:, :, None, None]
    strokes = np.stack([_compose(rng, repertoire, attach) for _ in range(CANDIDATES)])
    strokes = np.where(drawn, strokes, strokes[:, :1])
    low, high = strokes.min((1, 2), keepdims=True), strokes.max((1, 2), keepdims=True)
    centered, extent = strokes - (low + high) / 2, high - low
    size = extent.max(-1, keepdims=True)
    # Compared as stretched to a square: a broad and a narrow ring are one character to a reader.
    square = 2 * centered / np.maximum(extent, size / 2)
    images = _ink(_dots(square[None], np.array([roundness])), np.array([BROAD_PEN]))[0]
    legible = images.mean((1, 2)) / np.sqrt(used)  # strokes side by side, not on top of each other
    kept = _unlike(images, np.argsort(-legible, kind="stable"))[:wanted]
    return (2 * centered / size)[kept], drawn[kept], roundness


def _unlike(images: Bytes, order: NDArray[np.intp]) -> list[int]:
    """The characters, in order, that do not resemble any kept before."""
    flat = images.reshape(len(images), -1).astype(np.float64)
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    kept: list[int] = []
    for i in order:
        if (flat[kept] @ flat[i] < ALIKE).all():
            kept.append(i)
    return kept


def _by_hand(rng: np.random.Generator, hands: Hands, strokes: Floats, drawn: Bools) -> Floats:
    """Every drawer writes every character once: (C, S, K, 2) -> guides (D, C, S, K, 2)."""
    lead = (DRAWERS, *strokes.shape[:2])
    wobble = hands.wobble[:, None, None, None, None]
    middle = strokes.mean(2, keepdims=True)
    guides = middle + (strokes - middle) * (1 + wobble * rng.normal(0, 0.13, (*lead, 1, 2)))
    guides += wobble * rng.normal(0, 0.09, (*lead, 1, 2))  # the start of the stroke
    guides += wobble * rng.normal(0, 0.04, (*lead, GUIDES, 2))  # its course
    overshoot = rng.normal(0.1, 0.3, (*lead, 1))
    guides[..., -1, :] += overshoot * (guides[..., -1, :] - guides[..., -2, :])
    guides += hands.bow[:, None, None, None] * (1 - guides[..., ::-1] ** 2)
    bend = hands.bend[:, None] + rng.normal(0, 0.07, (*lead[:2], 2, 2))
    from_x, from_y = np.moveaxis(bend[:, :, None, None], -1, 0)  # (D, C, 1, 1, 2) each
    bent: Floats = from_x * guides[..., :1] + from_y * guides[..., 1:]
    bent += rng.normal(0, 0.06, (*lead[:2], 1, 1, 2))
    return np.where(drawn, bent, bent[:, :, :1])  # an unused stroke repeats the first


def _dots(guides: Floats, roundness: Floats) -> Floats:
    """Dots along a spline through the guides, (D, C, S, K, 2) -> (D, C, S, T, 2) in fine pixels."""
    # Rounded, so that the last bit of a machine's cosine cannot reach the pixels.
    points = np.round(guides * HALF * 64) / 64
    slopes = np.gradient(points, axis=3) * roundness[:, None, None, None, None]
    at = np.linspace(0, GUIDES - 1, DOTS)
    i = np.minimum(at.astype(np.intp), GUIDES - 2)
    t = (at - i)[:, None]
    dots: Floats = (1 + 2 * t) * (1 - t) ** 2 * points[..., i, :]
    dots += t * (1 - t) ** 2 * slopes[..., i, :]
    dots += t**2 * (3 - 2 * t) * points[..., i + 1, :]
    dots += t**2 * (t - 1) * slopes[..., i + 1, :]
    return dots


def _ink(dots: Floats, pen: Floats) -> Bytes:
    """Dots (D, C, S, T, 2) under pens of radius (D,) -> images (D, C, 28, 28)."""
    drawers, characters = dots.shape[:2]
    dots = dots.reshape(drawers, characters, -1, 2)
    low, high = dots.min(2, keepdims=True), dots.max(2, keepdims=True)
    room = (FINE / 2 - 1 - MARGIN - pen)[:, None, None, None]
    shrink = np.minimum(1, 2 * room / (high - low).max(-1, keepdims=True))
    middle, half = (low + high) / 2, (high - low) / 2 * shrink
    placed = (dots - middle) * shrink + np.clip(middle, half - room, room - half) + FINE / 2
    column, row = np.moveaxis(placed.astype(np.intp), -1, 0)  # (D, C, S * T) each
    image = np.arange(drawers * characters).reshape(drawers, characters, 1)
    fine = np.zeros((drawers, characters * FINE * FINE), dtype=bool)
    fine.reshape(-1)[(image * FINE + row) * FINE + column] = True
    thick = np.stack([_thicken(flat, radius) for flat, radius in zip(fine, pen, strict=True)])
    rows = thick.reshape(-1, SIDE, 4, FINE).sum(2, dtype=np.uint8)
    blocks = rows.reshape(drawers, characters, SIDE, SIDE, 4).sum(-1, dtype=np.uint16)  # 0 to 16
    images: Bytes = (blocks * 255 // 16).astype(np.uint8)
    return images


def _thicken(flat: Bools, radius: float) -> Bools:
    """Widen every dot to a disc by shifting the flattened images: the margin keeps rows from wrapping."""
    thick = flat.copy()
    reach = range(-int(radius), int(radius) + 1)
    for shift in (y * FINE + x for y in reach for x in reach if x * x + y * y <= radius * radius):
        if shift > 0:  # a disc is symmetric: each shift is also used in the opposite direction
            thick[shift:] |= flat[:-shift]
            thick[:-shift] |= flat[shift:]
    return thick


def draw(seed: int = SEED, alphabets: int = ALPHABETS) -> tuple[Bytes, list[ImageClass]]:
    """Images (I, 1, 28, 28), ink 255 on 0, and their classes; fewer alphabets give a prefix."""
    hands = _sample_hands(_generator(seed, 0))
    pages: list[Bytes] = []
    classes: list[ImageClass] = []
    for a in track(range(alphabets), "drawing glyphs", alphabets):
        rng = _generator(seed, 1 + a)
        strokes, drawn, roundness = _invent_alphabet(rng)
        dots = _dots(_by_hand(rng, hands, strokes, drawn), roundness * hands.roundness)
        images = _ink(dots, hands.pen).swapaxes(0, 1)  # (C, D, 28, 28)
        pages.append(images.reshape(-1, 1, SIDE, SIDE))
        for c in range(len(images)):
            name, group, split = f"character{c:02}", f"alphabet{a:02}", CYCLE[a % len(CYCLE)]
            classes.append(ImageClass(name, group, split, len(classes) * DRAWERS, DRAWERS))
    return np.concatenate(pages), classes


def prepare(folder: Path) -> ImagePool:
    """Draw the glyphs and save them as the pool `folder`."""
    images, classes = draw()
    about = {"source": "drawn by semishot.datasets.glyphs", "seed": SEED, "ink": 255}
    return save_pool(folder, "glyphs", images, classes, about)
