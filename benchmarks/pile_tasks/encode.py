"""Photographs, drawings and docstrings -> the features that `domains` reads.

    PYTHONPATH=benchmarks python -m pile_tasks.encode DATA FOLDER

DATA holds birds/birds40.zip, groceries/groceries24.zip, mini-imagenet/*.zip with its csv files and
omniglot/images_{background,evaluation}.zip. Writes FOLDER/NAME.npz: `x` (M, D) in float16, framed as
`semishot classify` does it, or small pixels, and `y` (M,), classes in sorted order. A file that is there is
kept.
"""

import ast
import csv
import importlib.util
import io
import sys
import sysconfig
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.feature_extraction.text import TfidfVectorizer

from semishot.image_encoders import ImageEncoder, open_encoder

MOST = {"train": 60, "val": 100, "test": 100}
"""Images of a class of miniImageNet."""
PACKAGES = {"learn": ("scipy", "sklearn"), "choose": ("torch",), "report": ("",)}
"""Whose docstrings; "" is Python's standard library."""
Images = list[tuple[Path, str, str]]
"""Archive, name, class; by class and name."""


def in_folders(path: Path) -> Images:
    """An archive with a folder for each class."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith((".jpg", ".png"))]
    return sorted((path, name, name.rpartition("/")[0]) for name in names)


def mini_imagenet(folder: Path, split: str) -> Images:
    place = {}
    for path in sorted(folder.glob(f"images-{split}*.zip")):
        with zipfile.ZipFile(path) as archive:
            place |= {name.rpartition("/")[2]: (path, name) for name in archive.namelist()}
    classes: dict[str, list[str]] = {}
    with (folder / f"{split}.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            classes.setdefault(row["label"], []).append(row["filename"])
    return [
        (*place[name], each)
        for each in sorted(classes)
        for name in sorted(classes[each])[: MOST[split]]
    ]


def by_encoder(encoder: ImageEncoder, picture: Image.Image) -> np.ndarray:
    return encoder.encode([encoder.prepare(picture)])[0]


def as_pixels(size: int, picture: Image.Image) -> np.ndarray:
    small = picture.convert("L" if picture.mode == "1" else "RGB").reduce(picture.width // size)
    return np.asarray(small.resize((size, size), Image.Resampling.BOX), np.float32).ravel() / 255


def encoded(encode: Callable[[Image.Image], np.ndarray], images: Images) -> dict[str, np.ndarray]:
    opened = threading.local()  # each thread reads archives through handles of its own

    def features(image: tuple[Path, str, str]) -> np.ndarray:
        path, name, _ = image
        archives = opened.__dict__.setdefault("archives", {})
        if path not in archives:
            archives[path] = zipfile.ZipFile(path)
        with Image.open(io.BytesIO(archives[path].read(name))) as picture:
            return encode(picture)

    with ThreadPoolExecutor(2) as threads:
        x = np.stack(list(threads.map(features, images)))
    return {
        "x": x.astype(np.float16),
        "y": np.unique([each for *_, each in images], return_inverse=True)[1],
    }


def docstrings(packages: tuple[str, ...]) -> dict[str, np.ndarray]:
    """What functions say of themselves, as TF-IDF: a class is a package's folder or module."""
    texts: dict[str, list[str]] = {}
    for package in packages:
        for key, text in texts_of(package):
            texts.setdefault(key, []).append(text)
    texts = {key: sorted(set(each))[:120] for key, each in texts.items()}
    texts = {key: each for key, each in sorted(texts.items()) if len(each) >= 20}
    vectorizer = TfidfVectorizer(max_features=1500, sublinear_tf=True, stop_words="english")
    rows = vectorizer.fit_transform([text for each in texts.values() for text in each])
    labels = np.repeat(np.arange(len(texts)), [len(each) for each in texts.values()])
    return {"x": rows.toarray().astype(np.float16), "y": labels}


def texts_of(package: str) -> Iterator[tuple[str, str]]:
    root = Path(sysconfig.get_path("stdlib"))
    if package:
        spec = importlib.util.find_spec(package)
        root = Path(spec.origin).parent if spec and spec.origin else root
    for path in sorted(root.rglob("*.py")):
        where = path.relative_to(root).parts
        if {"test", "tests", "site-packages", "idlelib", "lib2to3"} & set(where):
            continue
        key = f"{package}.{where[0]}"
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                text = ast.get_docstring(node) or ""
                if len(text) > 80:
                    yield key, text[:600]


def main() -> None:
    data, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    photographs = {"photos": "photos", "lite0": "photos-lite0"}
    of_classes = {
        "birds": data / "birds/birds40.zip",
        "groceries": data / "groceries/groceries24.zip",
    }
    work = [
        (f"{name}-{short}", encoder, in_folders(path))
        for short, encoder in photographs.items()
        for name, path in of_classes.items()
    ]
    work += [
        (f"mini-{split}-{short}", encoder, mini_imagenet(data / "mini-imagenet", split))
        for split in ("val", "test", "train")
        for short, encoder in photographs.items()
    ]
    work += [
        (f"omniglot-{split}", "omniglot", in_folders(data / f"omniglot/images_{split}.zip"))
        for split in ("background", "evaluation")
    ]
    makers = {
        name: partial(encoded, partial(by_encoder, open_encoder(encoder)), images)
        for name, encoder, images in work
    }
    drawings = in_folders(data / "omniglot/images_background.zip")
    makers["pixels-drawings"] = partial(encoded, partial(as_pixels, 16), drawings)
    thumbnails = mini_imagenet(data / "mini-imagenet", "train")
    makers["pixels-photographs"] = partial(encoded, partial(as_pixels, 8), thumbnails)
    makers |= {f"docstrings-{part}": partial(docstrings, own) for part, own in PACKAGES.items()}
    for name, make in makers.items():
        path = folder / f"{name}.npz"
        if not path.exists():
            found, part = make(), path.with_suffix(".part")
            with part.open("wb") as file:
                np.savez(file, **found)
            part.rename(path)
            print(path, found["x"].shape, flush=True)


if __name__ == "__main__":
    main()
