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
    found: dict[str, dict[str, list[Shape]]] = {"kind": {}, "other": {}}
    shapes: list[Shape] = []
    for line in own_text("sorter/sample.txt").splitlines():
        first, second, *numbers = line.split()
        if first in found:
            found[first][second] = shapes = []
        elif first != "#":
            shapes.append((first, second, [float(number) for number in numbers]))
    return found["kind"], found["other"]


def write_sample(folder: Path, seed: int = 0) -> list[str]:
    """Write labeled/KIND, pile and truth.csv below a new folder; lines that say what they hold."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty: give the name of a new folder")
    rng, (kinds, others) = Random(seed), objects()
    wanted = [(kind, index) for kind in kinds for index in range(EACH)]
    wanted += [(kind, EACH) for kind in list(others) * (STRANGERS // len(others))]
    names = [f"{number:03}.jpg" for number in range(1, len(wanted) + 1)]
    rng.shuffle(names)
    truth = [("path", "label")]
    for (kind, index), name in zip(wanted, names, strict=True):
        place = f"labeled/{kind}" if index < LABELED else "pile"
        truth.append((f"{place}/{name}", kind if kind in kinds else "stranger"))
        write_whole(folder / place / name, picture({**kinds, **others}[kind], rng))
    write_whole(folder / "truth.csv", csv_text([truth[0], *sorted(truth[1:])]))
    more = len(kinds) * (EACH - LABELED)
    return [
        f"{folder / 'labeled'}: {LABELED} pictures of each of {len(kinds)} kinds: {', '.join(kinds)}",
        f"{folder / 'pile'}: {more} more of them, and {STRANGERS} of other things",
        f"{folder / 'truth.csv'}: what each picture shows",
    ]


def picture(shapes: Sequence[Shape], rng: Random) -> bytes:
    """A JPEG of an object somewhere before a scene; no two are alike."""
    scene, thing = _scene(rng), _thing(shapes, rng)
    side = round(rng.uniform(0.5, 0.85) * HEIGHT * FINE)
    thing = thing.resize((round(side * rng.uniform(0.85, 1.15)), side))
    if rng.random() < 0.5:
        thing = thing.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    thing = thing.rotate(rng.gauss(0, 9), Image.Resampling.BICUBIC, expand=True)
    room = scene.width - thing.width, scene.height - thing.height
    at = round(room[0] * rng.uniform(0.15, 0.85)), round(room[1] * rng.uniform(0.2, 0.8))
    shadow = thing.getchannel("A").point([alpha // 3 for alpha in range(256)])
    scene.paste("black", (at[0] + 4 * FINE, at[1] + 3 * FINE), shadow)
    scene.paste(thing, at, thing)
    small = scene.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
    noise = Image.frombytes("L", small.size, rng.randbytes(WIDTH * HEIGHT)).convert("RGB")
    file = io.BytesIO()
    Image.blend(small, noise, 0.04).save(file, "jpeg", quality=88)
    return file.getvalue()


def _scene(rng: Random) -> Image.Image:
    above, below = rng.choice(SCENES)
    size = WIDTH * FINE, HEIGHT * FINE
    scene = Image.new("RGB", size, _color(above, rng))
    draw, horizon = ImageDraw.Draw(scene), rng.uniform(0.45, 0.8) * size[1]
    draw.rectangle((0, horizon, *size), _color(below, rng))
    for _ in range(rng.randrange(3, 9)):  # clouds, stones, waves
        x, y, w = rng.uniform(0, size[0]), rng.uniform(0, size[1]), rng.uniform(0.05, 0.3) * size[0]
        draw.ellipse((x, y, x + w, y + w * 0.3), _color(above if y > horizon else below, rng, 0.1))
    return scene.filter(ImageFilter.GaussianBlur(3 * FINE))


def _thing(shapes: Sequence[Shape], rng: Random) -> Image.Image:
    """An object on nothing, in colors of its own."""
    hue = rng.random()
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
    side = HEIGHT * FINE
    thing = Image.new("RGBA", (side, side))
    draw = ImageDraw.Draw(thing)
    for form, color, numbers in shapes:
        moved = [(n + (rng.gauss(0, 1) if color != "clear" else 0)) * side / 100 for n in numbers]
        if form == "ellipse":
            left, top, right, bottom = moved
            draw.ellipse((left, top, right, bottom), palette[color])
        else:
            draw.polygon(moved, palette[color])
    return thing


def _color(hsv: tuple[float, float, float], rng: Random, spread: float = 0.05) -> tuple[int, ...]:
    hue, saturation, value = (
        n + rng.gauss(0, spread * s) for n, s in zip(hsv, (1, 2, 2), strict=True)
    )
    red, green, blue = colorsys.hsv_to_rgb(
        hue % 1, min(max(saturation, 0), 1), min(max(value, 0), 1)
    )
    return round(red * 255), round(green * 255), round(blue * 255)
