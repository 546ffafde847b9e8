"""`semishot sample`: two hundred small pictures drawn by code, to try everything with."""

import colorsys
import io
from collections.abc import Sequence
from pathlib import Path
from random import Random

from PIL import Image, ImageDraw, ImageFilter

from semishot.errors import InputError
from semishot.system.files import own_text, write_whole
from semishot.system.tables import csv_text

EACH, LABELED, STRANGERS = 30, 3, 20
"""Pictures of each kind, those of them that are labeled, and strangers in the pile."""
WIDTH, HEIGHT, FINE = 240, 180, 2
"""Pixels of a picture, and how many times finer it is drawn."""
SCENES = (
    ((0.56, 0.35, 0.95), (0.55, 0.10, 1.0)),  # sky
    ((0.05, 0.45, 0.95), (0.65, 0.40, 0.55)),  # dusk
    ((0.55, 0.25, 0.95), (0.28, 0.55, 0.65)),  # meadow
    ((0.54, 0.20, 0.95), (0.58, 0.60, 0.60)),  # sea
    ((0.12, 0.10, 0.97), (0.10, 0.35, 0.85)),  # sand
)
"""Hue, saturation and value above and below the horizon."""
Shape = tuple[str, str, list[float]]
"""polygon or ellipse; a color; x and y of its corners, or of its box, from 0 to 100."""


def objects() -> tuple[dict[str, list[Shape]], dict[str, list[Shape]]]:
    """Shapes of each kind, and of each other object, from `sample.txt`."""
    shapes: dict[str, dict[str, list[Shape]]] = {"kind": {}, "other": {}}
    for line in own_text("sorter/sample.txt").splitlines():
        first, second, *numbers = line.split()
        if first in shapes:
            shapes[first][second] = drawn = []
        elif first != "#":
            drawn.append((first, second, [float(number) for number in numbers]))
    return shapes["kind"], shapes["other"]


def write_sample(folder: Path, seed: int = 0) -> list[str]:
    """Write labeled/KIND, pile and truth.csv below a new folder; lines that say what they hold."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty: give the name of a new folder")
    rng, (kinds, others) = Random(seed), objects()
    wanted = [(kind, index) for kind in kinds for index in range(EACH)]
    wanted += [(kind, EACH) for kind in list(others) * (STRANGERS // len(others))]
    names = [f"{number:03}.jpg" for number in range(1, len(wanted) + 1)]
    rng.shuffle(names)
    truth = []
    for (kind, index), name in zip(wanted, names, strict=True):
        path = f"labeled/{kind}/{name}" if index < LABELED else f"pile/{name}"
        truth.append((path, kind if kind in kinds else "stranger"))
        write_whole(folder / path, picture({**kinds, **others}[kind], rng))
    write_whole(folder / "truth.csv", csv_text([("path", "label"), *sorted(truth)]))
    return [
        f"{folder / 'labeled'}: {LABELED} pictures of each of {len(kinds)} kinds: {', '.join(kinds)}",
        f"{folder / 'pile'}: {len(kinds) * (EACH - LABELED)} more of them, and {STRANGERS} of other things",
        f"{folder / 'truth.csv'}: what each picture shows",
    ]


def picture(shapes: Sequence[Shape], rng: Random) -> bytes:
    """A JPEG of an object somewhere before a scene; no two are alike."""
    scene, thing = _scene(rng), _thing(shapes, rng)
    side = round(rng.uniform(0.5, 0.85) * scene.height)
    thing = thing.resize((round(side * rng.uniform(0.85, 1.15)), side))
    if rng.random() < 0.5:
        thing = thing.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    thing = thing.rotate(rng.gauss(0, 9), Image.Resampling.BICUBIC, expand=True)
    x = round((scene.width - thing.width) * rng.uniform(0.15, 0.85))
    y = round((scene.height - thing.height) * rng.uniform(0.2, 0.8))
    shadow = thing.getchannel("A").point([alpha // 3 for alpha in range(256)])
    scene.paste("black", (x + 4 * FINE, y + 3 * FINE), shadow)
    scene.paste(thing, (x, y), thing)
    small = scene.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
    noise = Image.frombytes("L", small.size, rng.randbytes(WIDTH * HEIGHT)).convert("RGB")
    file = io.BytesIO()
    Image.blend(small, noise, 0.04).save(file, "jpeg", quality=88)
    return file.getvalue()


def _scene(rng: Random) -> Image.Image:
    above, below = rng.choice(SCENES)
    width, height = WIDTH * FINE, HEIGHT * FINE
    scene = Image.new("RGB", (width, height), _color(above, rng))
    draw, horizon = ImageDraw.Draw(scene), rng.uniform(0.45, 0.8) * height
    draw.rectangle((0, horizon, width, height), _color(below, rng))
    for _ in range(rng.randrange(3, 9)):  # clouds, stones, waves
        x, y, w = rng.uniform(0, width), rng.uniform(0, height), rng.uniform(0.05, 0.3) * width
        draw.ellipse((x, y, x + w, y + w * 0.3), _color(above if y > horizon else below, rng, 0.1))
    return scene.filter(ImageFilter.GaussianBlur(3 * FINE))


def _thing(shapes: Sequence[Shape], rng: Random) -> Image.Image:
    """An object on nothing, in colors of its own."""
    hue, side = rng.random(), HEIGHT * FINE
    palette = {
        "main": _color((hue, 0.75, 0.85), rng),
        "second": _color(((hue + rng.uniform(0.3, 0.6)) % 1, 0.6, 0.9), rng),
        "light": _color((0.12, 0.08, 0.97), rng),
        "dark": _color((0.6, 0.3, 0.2), rng),
        "wood": _color((0.07, 0.6, 0.5), rng),
        "green": _color((0.33, 0.6, 0.5), rng),
        "yellow": _color((0.13, 0.8, 0.97), rng),
        "clear": (0, 0, 0, 0),
    }
    thing = Image.new("RGBA", (side, side))
    draw = ImageDraw.Draw(thing)
    for form, color, numbers in shapes:
        moved = [(n + (rng.gauss(0, 1) if color != "clear" else 0)) * side / 100 for n in numbers]
        drawn = draw.ellipse if form == "ellipse" else draw.polygon
        drawn(moved, palette[color])
    return thing


def _color(hsv: tuple[float, float, float], rng: Random, spread: float = 0.05) -> tuple[int, ...]:
    hue, *others = (n + rng.gauss(0, spread * s) for n, s in zip(hsv, (1, 2, 2), strict=True))
    saturation, value = (min(max(other, 0), 1) for other in others)
    return tuple(round(255 * part) for part in colorsys.hsv_to_rgb(hue % 1, saturation, value))
