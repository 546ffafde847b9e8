"""Features of photographs for `strangers.py`: birds40 and miniImageNet by EfficientNet-Lite0.

    PYTHONPATH=benchmarks python -m stranger_tasks.features DATA FOLDER

DATA holds birds/birds40.zip and mini-imagenet/*.zip with its csv files. Writes FOLDER/NAME.npy, (classes,
images, 1280) in float32, framed as `semishot classify` does it. A file that is there is kept.
"""

import argparse
import csv
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from semishot.sorter.encoders.image_encoder import ImageEncoder, open_encoder
from semishot.system.npy import write_array

PER_CLASS = {"val": 100, "test": 100, "train": 60}
"""Of miniImageNet's 600 images: a task takes at most 35 of a class."""

Opened = Iterator[Image.Image]


def birds(data: Path) -> list[list[tuple[Path, str]]]:
    """Zip and name of each photograph, 40 classes of 30 in sorted order."""
    path = data / "birds" / "birds40.zip"
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
    folders = sorted({name.rsplit("/", 1)[0] for name in names})
    return [[(path, name) for name in names if name.startswith(f + "/")] for f in folders]


def mini_imagenet(data: Path, split: str) -> list[list[tuple[Path, str]]]:
    """The first images of each class, classes in the order of the csv."""
    folder = data / "mini-imagenet"
    place = {}
    for path in sorted(folder.glob(f"images-{split}*.zip")):
        with zipfile.ZipFile(path) as archive:
            place |= {name.rsplit("/", 1)[-1]: (path, name) for name in archive.namelist()}
    classes: dict[str, list[tuple[Path, str]]] = {}
    with (folder / f"{split}.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            classes.setdefault(row["label"], []).append(place[row["filename"]])
    return [images[: PER_CLASS[split]] for images in classes.values()]


def encoded(encoder: ImageEncoder, images: list[tuple[Path, str]]) -> NDArray[np.float32]:
    """I photographs -> (I, D)."""
    archives = {path: zipfile.ZipFile(path) for path in {path for path, _ in images}}
    pixels = []
    for path, name in images:
        with Image.open(io.BytesIO(archives[path].read(name))) as image:
            pixels.append(encoder.prepare(image))
    for archive in archives.values():
        archive.close()
    return np.concatenate([encoder.encode([image]) for image in pixels])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    encoder = open_encoder("photos-lite0")
    wanted = {"birds40": lambda: birds(given.data)}
    for split in ("val", "test", "train"):
        wanted[f"mini-imagenet-{split}"] = lambda split=split: mini_imagenet(given.data, split)
    for name, classes in wanted.items():
        path = given.folder / f"{name}.npy"
        if path.exists():
            continue
        found = np.stack([encoded(encoder, images) for images in classes()])
        write_array(path, found)
        print(path, found.shape, flush=True)


if __name__ == "__main__":
    main()
