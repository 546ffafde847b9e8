"""The views of a photograph: how much of a pile is right with the middle, the whole frame, or both.

    python benchmarks/views.py DATA FEATURES OUT.json [TASKS]
    python benchmarks/views.py DATA OUT.json    how long a photograph of 3 megapixels takes, added to the file

DATA holds `birds/birds40.zip` and `groceries/groceries24.zip`. Pictures are seen as they are (`plain`), as
frames of 16:9 with the picture's middle square at one end (`edge`), and as frames of 4:3 with the square at
60 % of the height in a lower corner (`corner`); the rest mirrors the outermost fifth of the square.
In `mixed` piles a third of the images is of each sort. Classes of the first half choose, the others report.
"""

import io
import json
import sys
import time
import zipfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from pages import write_lines
from semishot import PrototypeClassifier
from semishot.image_encoders import open_encoder
from semishot.sorter.embedding import look_at
from semishot.sorter.encoders.names import View

Array = NDArray[Any]
ARCHIVES = {"birds": "birds/birds40.zip", "groceries": "groceries/groceries24.zip"}
SORTS, SHOTS = ("plain", "edge", "corner"), (1, 3, 5)
VIEWS: tuple[View, ...] = ("middle", "whole", "both")
PHOTOS = "photos", "photos-lite0"
WAY, EACH = 5, 15


def mirrored(strip: Image.Image, width: int) -> Image.Image:
    """A strip to this width, each time mirrored."""
    filled = Image.new("RGB", (width, strip.height))
    for number, left in enumerate(range(0, width, strip.width)):
        filled.paste(strip if number % 2 else ImageOps.mirror(strip), (left, 0))
    return filled


def widened(square: Image.Image, width: int) -> Image.Image:
    """A square at the right end; the rest mirrors its outermost fifth."""
    side = square.width
    filled = Image.new("RGB", (width, side))
    fill = mirrored(square.crop((0, 0, side // 5, side)), width - side)
    filled.paste(ImageOps.mirror(fill), (0, 0))
    filled.paste(square, (width - side, 0))
    return filled


def framed(image: Image.Image, sort: str, rng: np.random.Generator) -> Image.Image:
    """A picture as one of `SORTS`."""
    if sort == "plain":
        return image
    side, turned = min(image.size), rng.random() < 0.5
    x, y = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((x, y, x + side, y + side))
    if sort == "edge":
        frame = widened(ImageOps.mirror(square) if turned else square, round(side * 16 / 9))
    else:
        height = round(side / 0.6)
        width = round(height * 4 / 3)
        row = widened(square, width)
        top = row.crop((0, 0, width, side // 5)).rotate(90, expand=True)
        above = ImageOps.flip(mirrored(top, height - side).rotate(-90, expand=True))
        frame = Image.new("RGB", (width, height))
        frame.paste(above, (0, 0))
        frame.paste(row, (0, height - side))
    return ImageOps.mirror(frame) if turned else frame


def encoded(archive: Path, folder: Path) -> tuple[dict[str, Array], Array]:
    """Features (3 sorts, P, D) by view, and the classes (P,)."""
    found, names = {}, []
    with zipfile.ZipFile(archive) as opened:
        names = sorted(name for name in opened.namelist() if name.endswith((".jpg", ".png")))
        for view in VIEWS:
            path, encoder = folder / f"{archive.stem}-{view}.npy", open_encoder("photos", view=view)
            if not path.exists():
                rows = [
                    encoder.encode([encoder.prepare(framed(image, sort, np.random.default_rng(p)))])
                    for sort in SORTS
                    for p, name in enumerate(names)
                    for image in [Image.open(io.BytesIO(opened.read(name))).convert("RGB")]
                ]
                np.save(path, np.concatenate(rows).reshape(len(SORTS), len(names), -1))
            found[view] = np.load(path)
    return found, np.array([name.split("/")[-2] for name in names])


def task(
    features: dict[str, Array], classes: Array, names: Array, pile: str, shot: int, seed: int
) -> list[float]:
    """The share of a pile of members and as many strangers that is right, with each view."""
    rng = np.random.default_rng([seed, shot, 7])
    order, given, rows, truth = rng.permutation(names), list[int](), list[int](), list[int]()
    for number, name in enumerate(order[: 2 * WAY]):
        own = rng.permutation(np.flatnonzero(classes == name)).tolist()
        given += own[:shot] if number < WAY else []
        chosen = own[shot : shot + EACH] if number < WAY else own[:EACH]
        rows += chosen
        truth += [number if number < WAY else -1] * len(chosen)
    every = np.array(given + rows)
    sorts = rng.integers(0, 3, len(every)) if pile == "mixed" else SORTS.index(pile)
    y = np.concatenate([np.repeat(np.arange(WAY), shot), np.full(len(rows), -1)])
    shares = []
    for view in VIEWS:
        x = features[view][sorts, every]
        model = PrototypeClassifier(reject=0.05).fit(x, y)
        shares.append(float(np.mean(model.transduction_[len(given) :] == truth)))
    return shares


def speed(data: Path, out: Path, rounds: int = 15) -> None:
    """Medians of milliseconds of a core, with each encoder and view, in turns."""
    with zipfile.ZipFile(data / ARCHIVES["birds"]) as opened:
        name = min(name for name in opened.namelist() if name.endswith((".jpg", ".png")))
        photo = Image.open(io.BytesIO(opened.read(name))).convert("RGB").resize((2000, 1500))
    file = io.BytesIO()
    photo.save(file, "jpeg", quality=90)
    encoders = {(name, view): open_encoder(name, view=view) for name in PHOTOS for view in VIEWS}
    taken: dict[tuple[str, View], list[float]] = {key: [] for key in encoders}
    for _ in range(rounds + 1):
        for key, encoder in encoders.items():
            begun = time.thread_time()
            encoder.encode([look_at(file.getvalue(), encoder)[0]])
            taken[key].append(1000 * (time.thread_time() - begun))
    stored = json.loads(out.read_text())
    stored["milliseconds"] = {
        f"{name}, {view}": round(median(times[1:]), 1) for (name, view), times in taken.items()
    }
    print(stored["milliseconds"])
    write_lines(out, stored)


def main(data: Path, folder: Path, out: Path, tasks: int = 40) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    cells = []
    for name, place in ARCHIVES.items():
        features, classes = encoded(data / place, folder)
        names = np.unique(classes)
        for half, own in zip(("choose", "report"), np.array_split(names, 2), strict=True):
            for pile in (*SORTS, "mixed"):
                for shot in SHOTS:
                    seeds = range(tasks)
                    found = [task(features, classes, own, pile, shot, seed) for seed in seeds]
                    shares = np.array(found)  # (tasks, views)
                    for index, view in enumerate(VIEWS):
                        gain = shares[:, index] - shares[:, 0]
                        cell = {"data": name, "half": half, "pile": pile, "labels": shot}
                        cell |= {"view": view, "right": shares[:, index].mean()}
                        cell |= {"gain": gain.mean(), "gain_se": gain.std(ddof=1) / tasks**0.5}
                        cells.append(cell)
                        print(cell, flush=True)
    write_lines(out, {"tasks": tasks, "cells": cells})


if __name__ == "__main__":
    if len(sys.argv) == 3:
        speed(*map(Path, sys.argv[1:]))
    else:
        main(*map(Path, sys.argv[1:4]), *map(int, sys.argv[4:5]))
