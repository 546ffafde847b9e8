"""Names before labels: what simulated names of classes save, and what wrong ones cost.

    python benchmarks/names.py FOLDER --half choose --out FILE      as often as you like
    python benchmarks/names.py FOLDER                               once, when the rule is final
    python benchmarks/names.py --page                               fills docs/answers.md

FOLDER and the piles are those of answers.py. What a text encoder would make of a name is simulated: the
mean of the class's images, with noise of the directions in which images differ, and a shift that all names
share. `wrong`: each class has the good name of another one. Counted are the answers until 95 % are right, the
first of them about kinds if there are no names; and what is right with some labels per class.
"""

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from answers import (
    NONE,
    OURS,
    Array,
    Found,
    Task,
    answers_to,
    command,
    drawn,
    judged,
    play,
    sources,
)
from pages import between, markdown
from semishot.estimator.labels import UNLABELED
from semishot.estimator.pile import LabeledPile
from semishot.estimator.spaces import unit

RESULTS = Path(__file__).parents[1] / "results" / "names.json"
BEGIN, END = "<!-- names -->", "<!-- /names -->"
NOISE = {"good": 0.5, "fair": 1.0, "poor": 2.0, "wrong": 0.5}
"""How long the noise is, of what tells the mean of a class from that of all images."""
SHIFT = 1.0
KINDS, LABELS = ("balanced", "half strangers, few kinds"), (0, 1, 3, 5)


def names_of(task: Task, quality: str, rng: np.random.Generator) -> Array:
    """(N, D)."""
    x, way = task.features.astype(np.float64), task.shape.way
    center = x.mean(0)
    means = np.stack([x[task.truth == label].mean(0) for label in range(way)]) - center
    length = np.linalg.norm(means, axis=1).mean()
    noise = unit(rng.normal(size=(way, len(x))) @ (x - center))
    shift = unit(rng.normal(size=(1, x.shape[1])))
    names = center + means + length * (NOISE[quality] * noise + SHIFT * shift)
    return np.roll(names, 1, 0) if quality == "wrong" else names


def share_right(task: Task, each: int, names: Array | None, seed: int) -> float:
    """Of the images without a label, with `each` labels of each class."""
    rng, labels = np.random.default_rng(seed), np.full(len(task.truth), UNLABELED)
    for label in range(task.shape.way):
        labels[rng.permutation(np.flatnonzero(task.truth == label))[:each]] = label
    classes, joint = judged(LabeledPile(task.features), labels, names)
    unlabeled = labels == UNLABELED
    return float((np.append(classes, -1)[joint.argmax(1)] == task.truth)[unlabeled].mean())


def one_run(folder: Path, half: str, of: tuple[str, str, str, int]) -> Found:
    """Answers to 95 % and the shares right with 0, 1, 3 and 5 labels per class."""
    threadpool_limits(1)
    data, pile, quality, seed = of
    task = drawn(folder, half, data, pile, seed)
    rng = np.random.default_rng(seed)
    names = names_of(task, quality, rng) if quality in NOISE else None
    right = [share_right(task, n, names, seed) if n or names is not None else 0.0 for n in LABELS]
    return {"answers": answers_to(play(task, NONE, OURS, seed, names), 0.95), "right": right}


def measure(folder: Path, half: str, tasks: int, jobs: int) -> Found:
    cells = []
    with ProcessPoolExecutor(jobs) as pool:
        for data, pile in product(sources(folder, half), KINDS):
            for quality in ("none", *NOISE):
                wanted = [(data, pile, quality, seed) for seed in range(tasks)]
                runs = list(pool.map(partial(one_run, folder, half), wanted))
                answers = float(np.mean([run["answers"] for run in runs]))
                right = np.mean([run["right"] for run in runs], 0).round(4).tolist()
                cell = {"data": data, "pile": pile, "names": quality, "to_95": round(answers, 1)}
                cells.append({**cell, "right": right})
                print(cells[-1], flush=True)
    return {"tasks": tasks, "labels": LABELS, "cells": cells}


def fill(document: str, result: Found) -> str:
    """A row for each pile and quality."""
    rows = []
    for cell in result["cells"]:
        shares = [f"{100 * share:.1f} %" if share else "" for share in cell["right"]]
        rows.append([f"{cell['data']}, {cell['pile']}", cell["names"], f"{cell['to_95']:.0f}"])
        rows[-1] += shares
    head = ["pile", "names", "answers to 95 %", *(f"right with {n}" for n in result["labels"])]
    return between(document, BEGIN, END, [markdown(head, rows)])


if __name__ == "__main__":
    command(__doc__, RESULTS, measure, fill, noise=NOISE)
