"""PrototypeClassifier on piles up to a million: seconds and memory, and beside LabelSpreading.

The pile is a memory-mapped file. Memory is the peak of the process, mapped pages of the file included.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.semi_supervised import LabelSpreading

from measurement import command, result, time_in_turns
from semishot import PrototypeClassifier

FEATURES, CLASSES, SHOT, ROWS = 1280, 20, 5, 10_000
REFINERS = {"PrototypeClassifier": "graph", "PrototypeClassifier, fitted_mask": "fitted_mask"}
FIT = Path(__file__).with_name("fit_pile.py")


def write_pile(folder: Path, count: int, features: int) -> tuple[Path, Path]:
    """Half members, half strangers: normal clusters around as many points again."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(2 * CLASSES, features)).astype(np.float32)
    owner = rng.integers(2 * CLASSES, size=CLASSES * SHOT + count)
    owner[: CLASSES * SHOT] = np.repeat(np.arange(CLASSES), SHOT)
    paths = folder / f"{count}.npy", folder / f"{count}-labels.npy"
    pile = np.lib.format.open_memmap(paths[0], "w+", np.float32, (len(owner), features))
    for first in range(0, len(owner), ROWS):
        part = owner[first : first + ROWS]
        noise = rng.standard_normal((len(part), features), np.float32)
        pile[first : first + ROWS] = centers[part] + 2 * noise
    np.save(paths[1], np.where(np.arange(len(owner)) < CLASSES * SHOT, owner, -1))
    return paths


def measure(device: torch.device, quick: bool) -> dict[str, Any]:
    """On the CPU, wherever the others are."""
    features = 64 if quick else FEATURES
    alone = [200, 400] if quick else [10_000, 100_000, 1_000_000]  # the last is 5 GB on disk
    beside = [200] if quick else [1000, 10_000]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for count in alone:
            paths, seconds = write_pile(folder, count, features), folder / "seconds.json"
            for name, refiner in REFINERS.items():
                words = [sys.executable, str(FIT), *map(str, (*paths, seconds)), refiner]
                subprocess.run(words, check=True)
                row = {"contender": name, "pile": count}
                row |= json.loads(seconds.read_text(encoding="utf-8"))
                row["us_per_example"] = 1e6 * (row["fit_seconds"] + row["predict_seconds"]) / count
                rows.append(row)
            paths[0].unlink()
        for count in beside:
            pile, labels = (np.load(path) for path in write_pile(folder, count, features))
            works: dict[str, Callable[[], object]] = {
                "PrototypeClassifier": lambda p=pile, y=labels: PrototypeClassifier().fit(p, y),
                "LabelSpreading": lambda p=pile, y=labels: LabelSpreading().fit(p, y),
                "LabelSpreading, knn": lambda p=pile, y=labels: LabelSpreading("knn").fit(p, y),
            }
            taken = time_in_turns(works, torch.device("cpu"), rounds=3, seconds=60)
            rows += [
                {
                    "contender": f"{name}, in memory",
                    "pile": count,
                    "fit_seconds": seconds,
                    "times_faster": taken["LabelSpreading"] / seconds,
                }
                for name, seconds in taken.items()
            ]
    settings = {"features": features, "classes": CLASSES, "shot": SHOT, "distractors": 0.5}
    return result("classifier", torch.device("cpu"), quick, settings, rows)


if __name__ == "__main__":
    command("classifier", measure)
