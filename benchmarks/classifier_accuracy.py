"""Accuracy of PrototypeClassifier beside scikit-learn's semi-supervised classifiers, cell by cell.

    python benchmarks/features.py FOLDER
    python benchmarks/classifier_accuracy.py --features FOLDER --dataset omniglot --split test

All contenders get the same features at unit length, ours find their own scale. Defaults were chosen on
Omniglot's validation classes and miniImageNet's training classes; the test classes are for the record.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier

from measurement import about_tasks
from semishot import PrototypeClassifier
from semishot.system.files import write_json
from semishot.training.fleets import find_model, load_model
from tasks import Cell, Features, Task, calibration_error, draw, possible

RESULTS = Path(__file__).parents[1] / "results" / "classifier"
REJECT = 0.05
SLOW = 1000
"""A pile of this size or more leaves SelfTrainingClassifier and the kernels little time: fewer tasks."""
WAYS = {"omniglot": 20, "mini-imagenet": 5}
QUERIES = {"omniglot": 5, "mini-imagenet": 15}
SHOTS, PILES, DISTRACTORS = (1, 2, 5, 10), (100, 1000, 10_000), (0.0, 0.25, 0.5, 0.75, 0.9)


def learned_mask() -> PrototypeClassifier:
    """The masked method as it was trained, with its own embedding's scale."""
    _, model = load_model(find_model("pretrained:omniglot"), torch.device("cpu"))
    refiner = model.refiner
    for name, value in list(refiner.named_parameters()):  # a fleet of one -> one
        setattr(refiner, name, torch.nn.Parameter(value.detach()[0], requires_grad=False))
    return PrototypeClassifier(refiner, steps=model.steps, normalize="none", temperature=1.0)


def self_training(strength: float, threshold: float) -> SelfTrainingClassifier:
    return SelfTrainingClassifier(LogisticRegression(C=strength, max_iter=100), threshold=threshold)


def contenders(dataset: str) -> dict[str, Callable[[], BaseEstimator]]:
    """Theirs at the best on the tuning classes: kernels rbf 5 to 100 and 7 neighbours, C 1 and 100."""
    found: dict[str, Callable[[], BaseEstimator]] = {
        "supervised": partial(PrototypeClassifier, None, reject=REJECT),
        "ours": partial(PrototypeClassifier, reject=REJECT),
        "version 0.1": partial(PrototypeClassifier, "fitted_mask", reject=REJECT),
        "ours, soft_kmeans": partial(PrototypeClassifier, "soft_kmeans"),
        "LabelSpreading": partial(LabelSpreading, gamma=50 if dataset == "omniglot" else 10),
        "LabelPropagation": partial(LabelPropagation, gamma=50 if dataset == "omniglot" else 20),
        "SelfTraining": partial(
            self_training, *((100, 0.95) if dataset == "omniglot" else (1, 0.75))
        ),
    }
    if dataset == "omniglot":
        found["ours, learned mask"] = learned_mask
    return found


def measure(make: Callable[[], BaseEstimator], task: Task, raw: bool) -> dict[str, Any]:
    """One task: accuracy, seconds, confidence and, where there is one, the verdict on distractors."""
    features, queries = task.features, task.queries
    if not raw:
        features, queries = (
            x / np.linalg.norm(x, axis=1, keepdims=True) for x in (features, queries)
        )
    begun = time.perf_counter()
    classifier = make().fit(features, task.labels)
    found: dict[str, Any] = {"seconds": time.perf_counter() - begun}
    probabilities = np.nan_to_num(classifier.predict_proba(queries))
    found["confidence"] = probabilities.max(1)
    found["right"] = probabilities.argmax(1) == task.answers
    found["accuracy"] = float(found["right"].mean())
    if getattr(classifier, "reject", None) is not None:
        found["helps"] = float(classifier.pile_helps_ is not False)
        found["false_rejects"] = float((classifier.predict(queries) == -1).mean())
        strangers = task.truth[task.labels == -1] == -1
        if 0 < strangers.sum() < len(strangers):
            scores = classifier.distractor_score(features[task.labels == -1])
            found["auroc"] = float(roc_auc_score(strangers, scores))
            found["found"] = float((scores[strangers] > 1 - REJECT).mean())
    return found


def run_cell(
    features: Features, cell: Cell, names: dict[str, Any], tasks: int
) -> list[dict[str, Any]]:
    rows = []
    each: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for seed in range(tasks):
        task = draw(features, cell, seed)
        for name, make in names.items():
            each[name].append(
                measure(make, task, raw=name.startswith(("ours", "supervised", "version")))
            )
    base = np.array([found["accuracy"] for found in each["supervised"]])
    for name, all_found in each.items():
        row: dict[str, Any] = {**vars(cell), "contender": name, "tasks": tasks}
        pooled = [
            np.concatenate([f.pop(key) for f in all_found]) for key in ("confidence", "right")
        ]
        row["ece"] = round(calibration_error(*pooled), 5)
        for key in all_found[0]:
            row[key] = round(float(np.mean([found[key] for found in all_found])), 5)
        accuracies = np.array([found["accuracy"] for found in all_found])
        row["accuracy_ci95"] = round(float(1.96 * accuracies.std() / tasks**0.5), 5)
        row["gain"] = round(float((accuracies - base).mean()), 5)
        row["gain_ci95"] = round(float(1.96 * (accuracies - base).std() / tasks**0.5), 5)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--features", type=Path, help="the folder that benchmarks/features.py filled"
    )
    parser.add_argument("--dataset", choices=sorted(WAYS), default="omniglot")
    parser.add_argument("--split", default="test")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--slow-tasks", type=int, default=20, help="for large piles")
    parser.add_argument("--piles", type=int, nargs="+", default=PILES)
    parser.add_argument("--shots", type=int, nargs="+", default=SHOTS)
    parser.add_argument("--only", nargs="+", help="these contenders, besides supervised")
    parser.add_argument("--quick", action="store_true", help="tiny, random; writes only to --out")
    parser.add_argument("--out", type=Path, help="default: results/classifier/DATASET-SPLIT.json")
    given = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)  # theirs, when labels cannot reach the pile
    warnings.simplefilter("ignore", RuntimeWarning)
    dataset = given.dataset
    if given.quick:
        features = random_features(np.random.default_rng(0))
        cells = [Cell(3, shot, 20, 0.5, 4) for shot in (1, 2)]
        given.tasks = given.slow_tasks = 2
    else:
        features = np.load(given.features / f"{dataset}-{given.split}.npy")
        cells = [
            Cell(WAYS[dataset], shot, pile, share, QUERIES[dataset])
            for shot in given.shots
            for pile in given.piles
            for share in DISTRACTORS
        ]
    names = {
        name: make
        for name, make in contenders(dataset).items()
        if given.only is None or name in ("supervised", *given.only)
    }
    rows: list[dict[str, Any]] = []
    out = given.out or (None if given.quick else RESULTS / f"{dataset}-{given.split}.json")
    for cell in cells:
        if possible(cell, features):
            rows += run_cell(
                features, cell, names, given.slow_tasks if cell.pile >= SLOW else given.tasks
            )
            for row in rows[-len(names) :]:
                print(as_line(row), flush=True)
    about = about_tasks(
        "classifier_accuracy",
        dataset=dataset,
        split=given.split,
        reject=REJECT,
        quick=given.quick,
        rows=rows,
    )
    if out is not None:
        write_json(out, about)


def random_features(rng: np.random.Generator) -> Features:
    """8 classes of 30 in 64 dimensions, as the Omniglot encoder gives them."""
    centers = rng.normal(size=(8, 1, 64))
    return np.maximum(3 * centers + rng.normal(size=(8, 30, 64)), 0).astype(np.float32)


def as_line(row: dict[str, Any]) -> str:
    text = f"{row['shot']:2} shot, pile {row['pile']:5}, {row['distractors']:4.0%}  {row['contender']:20}"
    text += f" {100 * row['accuracy']:6.2f} ± {100 * row['accuracy_ci95']:4.2f}"
    text += f"  gain {100 * row['gain']:+6.2f} ± {100 * row['gain_ci95']:4.2f}"
    text += f"  ECE {100 * row['ece']:5.2f}  {1000 * row['seconds']:7.1f} ms"
    for key in ("auroc", "false_rejects", "found", "helps"):
        if key in row:
            text += f"  {key} {100 * row[key]:.1f}"
    return text


if __name__ == "__main__":
    main()
