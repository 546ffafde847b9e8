"""Names before labels: how much of a pile is right with simulated names, and how many answers names save.

    python benchmarks/names.py FOLDER OUT.json [TASKS]

FOLDER holds features, as `pile_tasks/encode.py` leaves them. The features of a name are those of its class's
mean, moved with all names of the pile and by differences between other classes: `good`, `fair`; or the
names of the classes are exchanged: `wrong`.
Letters: P rows of the pile, N classes, D features.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semishot import PrototypeClassifier
from semishot.estimator.next_labels import next_to_label, varied
from semishot.estimator.spaces import fit_space

Array = NDArray[Any]
WAY, STRANGE, EACH = 5, 3, 20
SHOTS = (0, 1, 3, 5, 10)
QUALITIES = {"none": None, "good": 0.4, "fair": 1.2, "wrong": 0.4}
"""How far names are moved, in units of the distance of two classes."""
ASKED, MOST, ENOUGH = 5, 80, 0.95


def unit(rows: Array) -> Array:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def named(means: Array, others: Array, quality: str, rng: np.random.Generator) -> Array:
    """(N, D): what an encoder of texts might make of the names."""
    means, others = unit(means), unit(others)
    pairs = np.array([rng.choice(len(others), 2, replace=False) for _ in means])
    off = others[pairs[:, 0]] - others[pairs[:, 1]]
    shift = unit(rng.normal(size=means.shape[1]))  # texts lie apart from images
    moved = means + QUALITIES[quality] * off + 0.5 * shift
    return np.roll(moved, 1, 0) if quality == "wrong" else moved


def right(model: PrototypeClassifier, truth: Array, pile: Array) -> float:
    return float((model.transduction_[pile] == truth[pile]).mean())


def fitted(x: Array, y: Array, names: dict[int, Array] | None) -> PrototypeClassifier:
    return PrototypeClassifier(reject="auto").fit(x, y, class_features=names)


def answers(x: Array, truth: Array, names: dict[int, Array] | None) -> int:
    """Answers until 95 % of the pile is right; without names, the first ones are about varied rows."""
    y = np.full(len(x), -1)
    while (count := int((y != -1).sum())) < MOST:
        model = fitted(x, y, names) if names or (y >= 0).any() else None
        if model is not None and (model.transduction_ == truth_label(truth)).mean() >= ENOUGH:
            break
        if model is None:
            rows = varied(x, fit_space(x, "auto", y == -1), count + ASKED)
            rows = rows[y[rows] == -1][:ASKED]
        else:
            asked = next_to_label(x, model, ASKED, labeled=x[y != -1], leave_out=y != -1)
            rows = asked if len(asked) else np.flatnonzero(y == -1)[:ASKED]
        y[rows] = np.where(truth[rows] >= 0, truth[rows], -2)
    return count


def truth_label(truth: Array) -> Array:
    return np.where(truth >= 0, truth, -1)


def task(classes: list[Array], seed: int, found: dict[str, list[float]]) -> None:
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(classes))
    kinds, strange = order[:WAY], order[WAY : WAY + STRANGE * WAY // 3]
    rows = [classes[k][rng.permutation(len(classes[k]))][: EACH + max(SHOTS)] for k in kinds]
    means = np.stack([classes[k].mean(0) for k in kinds])
    others = np.stack([classes[k].mean(0) for k in order[WAY:]])
    pile = [own[max(SHOTS) :] for own in rows] + [classes[k][:EACH] for k in strange]
    truth = np.concatenate([np.full(len(own), n) for n, own in enumerate(pile)])
    truth = np.where(truth < WAY, truth, -1)
    for quality in QUALITIES:
        own = np.random.default_rng([seed, 1])
        names = None
        if QUALITIES[quality] is not None:
            names = dict(enumerate(named(means, others, quality, own)))
        for shot in SHOTS:
            if names is None and not shot:
                continue
            given = [each[:shot] for each in rows]
            x = np.concatenate([*given, *pile])
            y = np.concatenate([np.repeat(np.arange(WAY), shot), np.full(len(truth), -1)])
            model = fitted(x, y, names)
            share = float((model.transduction_[WAY * shot :] == truth).mean())
            found.setdefault(f"{quality}, {shot} labels", []).append(share)
        found.setdefault(f"{quality}, answers", []).append(
            answers(np.concatenate(pile), truth, names)
        )


def main(folder: Path, out: Path, tasks: int = 20) -> None:
    result = {}
    for data in ("birds-photos", "groceries-photos"):
        with np.load(folder / f"{data}.npz") as file:
            features, labels = file["x"].astype(np.float32), file["y"]
        classes = [features[labels == each] for each in np.unique(labels)]
        classes, found = classes[len(classes) // 2 :], dict[str, list[float]]()
        for seed in range(tasks):
            task(classes, seed, found)
        for key, values in found.items():
            error = float(np.std(values, ddof=1) / len(values) ** 0.5)
            result[f"{data}: {key}"] = [round(float(np.mean(values)), 4), round(error, 4)]
            print(data, key, *result[f"{data}: {key}"], flush=True)
    out.write_text(json.dumps({"tasks": tasks, "mean and error": result}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:4]))
