"""Encoders for photographs on 40 kinds of birds: accuracy, strangers and images per second.

    python benchmarks/encoders.py birds40.zip FOLDER --half choose
    python benchmarks/encoders.py birds40.zip FOLDER --half report
    python benchmarks/encoders_page.py

FOLDER keeps the features. The first 20 kinds are for choosing; the last 20 are reported, once. A task has 5
or 10 classes with 1, 3 or 5 labels and 20 photographs of each in the pile, and as many strangers from the
other kinds. All encoders see the same tasks. Speed is CPU time of one thread, from bytes to features.
"""

import argparse
import io
import statistics
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from measurement import about_tasks
from semishot import PrototypeClassifier
from semishot.data.framing import Framing
from semishot.estimator.labels import UNLABELED
from semishot.sorter.encoders.packaged import SIDES
from semishot.sorter.encoders.photo_networks import efficientnet_lite
from semishot.system.files import write_json, write_whole_with
from semishot.system.open_files import read_json
from tasks import Cell, Task, draw

RESULT = Path(__file__).parents[1] / "results" / "encoders.json"
REJECT, BATCH, TASKS, ROUNDS, TIMED = 0.05, 4, 40, 15, 8
WAYS, SHOTS, EACH = (5, 10), (1, 3, 5), 20
FIGURES = ("sorted", "accuracy", "auroc", "found", "lost")
"""Sorted right: a member in its class and not rejected, a stranger rejected."""

Array = NDArray[Any]


@dataclass(frozen=True)
class Contender:
    """EfficientNet-LiteN at a size; with `mirror`, the mean of an image's and its mirror image's features."""

    number: int
    side: int
    mirror: bool = False

    @property
    def name(self) -> str:
        return f"Lite{self.number}, {self.side}{', mirrored too' if self.mirror else ''}"


CONTENDERS = [
    Contender(number, side, mirror)
    for number, side in [*enumerate(SIDES), (0, 260), (0, 288), (2, 300)]
    for mirror in (False, True)
]


class Mirrored(nn.Module):
    """uint8 (B, H, W, C) -> (B, D), of the mirror image."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.module(images.flip(2))
        return found


def opened(contender: Contender) -> tuple[nn.Module, Framing]:
    """The encoder without its mirror image."""
    module, framing = efficientnet_lite(contender.number, contender.side)
    return module.eval().requires_grad_(False), framing


def photographs(path: Path) -> list[list[bytes]]:
    """40 classes of 30 files, in the order of their names."""
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
        folders = sorted({name.rsplit("/", 1)[0] for name in names})
        return [
            [archive.read(name) for name in names if name.startswith(f"{folder}/")]
            for folder in folders
        ]


def prepared(framing: Framing, files: list[bytes]) -> Tensor:
    """Files -> uint8 (files, H, W, C)."""
    pixels = []
    for data in files:
        with Image.open(io.BytesIO(data)) as image:
            pixels.append(framing(image))
    return torch.from_numpy(np.stack(pixels))


@torch.inference_mode()
def encoded(module: nn.Module, pixels: Tensor) -> NDArray[np.float32]:
    features: NDArray[np.float32] = torch.cat([module(b) for b in pixels.split(BATCH)]).numpy()
    return features


def features_of(contender: Contender, classes: list[list[bytes]], folder: Path) -> Array:
    """(classes, images, D), kept in the folder."""
    path = folder / f"lite{contender.number}-{contender.side}.npy"
    module, framing = opened(contender)
    views = {path: module}
    if contender.mirror:
        views[path.with_name(f"{path.stem}-mirror.npy")] = Mirrored(module)
    for file, view in views.items():
        if not file.exists():
            found = np.stack([encoded(view, prepared(framing, files)) for files in classes])
            write_whole_with(file, partial(np.save, arr=found))
            print(file, found.shape, flush=True)
    kept: Array = np.mean([np.load(file) for file in views], 0)
    return kept


def judged(task: Task) -> dict[str, float]:
    """The pile of a task, sorted by the default of PrototypeClassifier."""
    found, pile = PrototypeClassifier().fit(task.features, task.labels), task.labels == UNLABELED
    truth, scores = task.truth[pile], found.distractor_score_[pile]
    member, rejected = truth >= 0, scores > 1 - REJECT
    right = found.label_distributions_[pile].argmax(1) == truth
    return {
        "sorted": float(np.where(member, right & ~rejected, rejected).mean()),
        "accuracy": float(right[member].mean()),
        "auroc": float(roc_auc_score(~member, scores)),
        "found": float(rejected[~member].mean()),
        "lost": float(rejected[member].mean()),
    }


def compared(features: dict[str, Array], tasks: int) -> list[dict[str, Any]]:
    """A row for each contender and number of labels; differences from the first one are paired by task."""
    rows, first = [], next(iter(features))
    for shot in SHOTS:
        found: dict[str, list[dict[str, float]]] = {}
        for name, classes in features.items():
            cells = [Cell(way, shot, 2 * EACH * way, 0.5, 0) for way in WAYS]
            found[name] = [
                judged(draw(classes, cell, seed)) for cell in cells for seed in range(tasks)
            ]
        for name, figures in found.items():
            row: dict[str, Any] = {"encoder": name, "shot": shot, "tasks": len(figures)}
            for figure in FIGURES:
                values = np.array([each[figure] for each in figures])
                gains = values - [each[figure] for each in found[first]]
                row |= {figure: mean(values), f"{figure}_se": error(values)}
                row |= {f"{figure}_gain": mean(gains), f"{figure}_gain_se": error(gains)}
            rows.append(row)
            print(name, {key: value for key, value in row.items() if key in FIGURES}, flush=True)
    return rows


def mean(values: Array) -> float:
    return round(float(values.mean()), 5)


def error(values: Array) -> float:
    return round(float(values.std(ddof=1) / len(values) ** 0.5), 5)


def speeds(contenders: list[Contender], files: list[bytes], rounds: int) -> list[dict[str, Any]]:
    """Images per second of CPU time. Contenders take turns; ratios are taken within a round."""

    def work_of(contender: Contender) -> Callable[[], object]:
        module, framing = opened(contender)

        def work() -> None:
            pixels = prepared(framing, files)
            encoded(module, pixels)
            if contender.mirror:
                encoded(Mirrored(module), pixels)

        return work

    works = {contender.name: work_of(contender) for contender in contenders}
    for work in works.values():
        work()  # warm up
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            begun = time.process_time()
            work()
            taken[name].append(time.process_time() - begun)
    base = next(iter(taken.values()))
    return [
        {
            "encoder": name,
            "images_per_second": round(len(files) / statistics.median(times), 2),
            "relative": round(
                statistics.median(b / t for b, t in zip(base, times, strict=True)), 4
            ),
            "relative_quartiles": [
                round(float(value), 4)
                for value in np.quantile(
                    [b / t for b, t in zip(base, times, strict=True)], [0.25, 0.75]
                )
            ],
        }
        for name, times in taken.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("birds", type=Path, help="birds40.zip")
    parser.add_argument("folder", type=Path, help="where features are kept")
    parser.add_argument("--half", choices=("choose", "report", "speed"), required=True)
    parser.add_argument("--tasks", type=int, default=TASKS, help="of each way and number of labels")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.folder.mkdir(parents=True, exist_ok=True)
    classes = photographs(given.birds)
    held = read_json(given.out) if given.out.exists() else {}
    about = about_tasks("encoders", reject=REJECT, ways=WAYS, pile_each=EACH)
    if given.half == "speed":
        files = [data for each in classes[:TIMED] for data in each[:1]]
        held["speed"] = speeds(CONTENDERS, files, given.rounds)
    else:
        half = slice(0, 20) if given.half == "choose" else slice(20, 40)
        features = {
            each.name: features_of(each, classes, given.folder)[half] for each in CONTENDERS
        }
        held[given.half] = compared(features, given.tasks)
    write_json(
        given.out, about | {key: held[key] for key in ("speed", "choose", "report") if key in held}
    )


if __name__ == "__main__":
    main()
