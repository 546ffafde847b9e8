"""A pile of made-up photographs of 12 megapixels, 2 to 4 MB each as from a camera, for benchmarks.

    python benchmarks/photo_pile.py birds40.zip PILE --count 2000

leaves PILE/labeled/CLASS and PILE/pile. Birds (a zip of CLASS/NAME.jpg) are enlarged, mirrored in every
second round, and get the noise of a sensor, which is what fills a camera's files. A fourth of them lie on
their side with a note of it in EXIF, as phones leave them. The same numbers make the same files.
"""

import argparse
import io
import os
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

WIDTH, HEIGHT = 4000, 3000
QUALITY = 90
NOISE = (4.0, 5.0, 6.0, 7.0)
"""Standard deviations of the noise, out of 255: files of 2.2 to 3.7 MB."""
CLASSES, LABELED = 20, 5
"""Classes that are labeled, with this many images each; the other classes of the zip are strangers."""
ORIENTATION, TURNED = 0x0112, 6


def photographs(birds: Path, count: int) -> list[tuple[str, bytes, bool]]:
    """(class, encoded bird, mirrored) of each photograph: all classes in turn, then again mirrored."""
    with zipfile.ZipFile(birds) as opened:
        names = sorted(name for name in opened.namelist() if name.lower().endswith(".jpg"))
        by_class: dict[str, list[str]] = {}
        for name in names:
            by_class.setdefault(name.split("/")[-2], []).append(name)
        rounds = max(map(len, by_class.values()))
        in_turn = [
            (label, files[place])
            for place in range(rounds)
            for label, files in by_class.items()
            if place < len(files)
        ]
        chosen = [(*in_turn[n % len(in_turn)], bool(n // len(in_turn) % 2)) for n in range(count)]
        return [(label, opened.read(name), mirrored) for label, name, mirrored in chosen]


def photograph(number: int, bird: bytes, mirrored: bool, noise: np.ndarray) -> bytes:
    """One file, as a camera would write it."""
    with Image.open(io.BytesIO(bird)) as opened:
        shown = ImageOps.mirror(opened) if mirrored else opened
        turned = number % 4 == 3
        size = (HEIGHT, WIDTH) if turned else (WIDTH, HEIGHT)
        large = shown.convert("RGB").resize(size, Image.Resampling.BICUBIC)
    if turned:
        large = large.transpose(Image.Transpose.ROTATE_90)
    rng = np.random.default_rng(number)
    top, left = rng.integers(0, 200, 2)
    pixels = np.asarray(large).astype(np.int16)
    pixels += (noise[top : top + HEIGHT, left : left + WIDTH, None] * NOISE[number % 4]).astype(
        np.int16
    )
    exif = Image.Exif()
    if turned:
        exif[ORIENTATION] = TURNED
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(
        file, "JPEG", quality=QUALITY, exif=exif
    )
    return file.getvalue()


def make(birds: Path, folder: Path, count: int) -> None:
    """Write the photographs; those that are there already stay."""
    noise = np.random.default_rng(0).normal(0, 1, (HEIGHT + 200, WIDTH + 200)).astype(np.float32)
    chosen = photographs(birds, count)
    labels = sorted({label for label, _, _ in chosen})[:CLASSES]
    seen: dict[str, int] = {}
    plan: list[tuple[int, Path, bytes, bool]] = []
    for number, (label, bird, mirrored) in enumerate(chosen):
        seen[label] = seen.get(label, 0) + 1
        known = label in labels and seen[label] <= LABELED
        below = folder / "labeled" / label if known else folder / "pile"
        below.mkdir(parents=True, exist_ok=True)
        plan.append((number, below / f"IMG_{number:05}.jpg", bird, mirrored))

    def write(one: tuple[int, Path, bytes, bool]) -> None:
        number, path, bird, mirrored = one
        if not path.exists():
            part = path.with_suffix(".part")
            part.write_bytes(photograph(number, bird, mirrored, noise))
            part.rename(path)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(write, plan))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("birds", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=2000)
    given = parser.parse_args()
    make(given.birds, given.folder, given.count)
