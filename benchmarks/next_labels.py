"""Ten more labels: those that `semishot.next_labels` asks for, ten at random, the ten least certain.

    python benchmarks/features.py FOLDER
    python benchmarks/next_labels.py --features FOLDER --dataset omniglot

The rule was chosen on Omniglot's validation classes and miniImageNet's training classes; the test classes
are for the record. Whoever labels says of a distractor that it is one, and it leaves the pile.
"""

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from classifier_accuracy import QUERIES, RESULTS, WAYS, random_features
from measurement import about_tasks
from semishot import PrototypeClassifier
from semishot.estimator.next_labels import next_to_label
from semishot.system.files import write_json
from tasks import Cell, Features, Task, draw, possible

SHOTS, PILE, DISTRACTORS, ASKED = (1, 2, 5), 200, (0.0, 0.5), 10
Places = NDArray[np.int64]


def entropy(pile: Features, classifier: PrototypeClassifier, seed: int) -> Places:
    p = classifier.predict_proba(pile)
    return np.argsort((p * np.log(np.maximum(p, 1e-12))).sum(1))[:ASKED]


def margin(pile: Features, classifier: PrototypeClassifier, seed: int) -> Places:
    p = np.sort(classifier.predict_proba(pile), 1)
    return np.argsort(p[:, -1] - p[:, -2])[:ASKED]


def at_random(pile: Features, classifier: PrototypeClassifier, seed: int) -> Places:
    return np.random.default_rng(seed).permutation(len(pile))[:ASKED]


def ours(pile: Features, classifier: PrototypeClassifier, seed: int) -> Places:
    return next_to_label(pile, classifier, ASKED)


RULES: dict[str, Callable[[Features, PrototypeClassifier, int], Places]] = {
    "random": at_random,
    "highest entropy": entropy,
    "smallest margin": margin,
    "ours": ours,
}


def fit(features: Features, labels: Places) -> PrototypeClassifier:
    return PrototypeClassifier().fit(features, labels)


def accuracy(classifier: PrototypeClassifier, task: Task) -> float:
    return float((classifier.predict(task.queries) == task.answers).mean())


def label(task: Task, rows: Places) -> PrototypeClassifier:
    """Fitted again, with the truth about these rows."""
    labels = task.labels.copy()
    labels[rows] = task.truth[rows]
    kept = np.ones(len(labels), bool)
    kept[rows] = task.truth[rows] != -1
    return fit(task.features[kept], labels[kept])


def run_cell(features: Features, cell: Cell, tasks: int) -> list[dict[str, Any]]:
    """A row for each rule, and one for no more labels; `gain` is over random."""
    found: dict[str, list[float]] = {name: [] for name in ("no more labels", *RULES)}
    for seed in range(tasks):
        task = draw(features, cell, seed)
        classifier, pile = fit(task.features, task.labels), np.flatnonzero(task.labels == -1)
        found["no more labels"].append(accuracy(classifier, task))
        for name, rule in RULES.items():
            rows = pile[rule(task.features[pile], classifier, seed)]
            found[name].append(accuracy(label(task, rows), task))
    base = np.array(found["random"])
    return [
        {
            **vars(cell),
            "contender": name,
            "tasks": tasks,
            "accuracy": round(float(np.mean(own)), 5),
            "accuracy_ci95": interval(np.array(own)),
            "gain": round(float((own - base).mean()), 5),
            "gain_ci95": interval(own - base),
        }
        for name, own in found.items()
    ]


def interval(values: NDArray[np.float64]) -> float:
    return round(float(1.96 * values.std() / len(values) ** 0.5), 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=Path, help="what benchmarks/features.py filled")
    parser.add_argument("--dataset", choices=sorted(WAYS), default="omniglot")
    parser.add_argument("--split", default="test")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="tiny, random; writes only to --out")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    # scikit-learn takes one label per class for a regression
    warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
    dataset, out = given.dataset, given.out
    if given.quick:
        features, given.tasks = random_features(np.random.default_rng(0)), 2
        cells = [Cell(3, shot, 20, 0.5, 4) for shot in (1, 2)]
    else:
        features = np.load(given.features / f"{dataset}-{given.split}.npy")
        out = out or RESULTS / f"next-labels-{dataset}-{given.split}.json"
        cells = [
            Cell(WAYS[dataset], shot, PILE, share, QUERIES[dataset])
            for shot in SHOTS
            for share in DISTRACTORS
        ]
    rows: list[dict[str, Any]] = []
    for cell in cells:
        if possible(cell, features):
            rows += run_cell(features, cell, given.tasks)
            for row in rows[-len(RULES) - 1 :]:
                print(as_line(row), flush=True)
    about = about_tasks(
        "next_labels",
        dataset=dataset,
        split=given.split,
        asked=ASKED,
        quick=given.quick,
        rows=rows,
    )
    if out is not None:
        write_json(out, about)


def as_line(row: dict[str, Any]) -> str:
    text = f"{row['shot']:2} shot, {row['distractors']:4.0%}  {row['contender']:16}"
    text += f" {100 * row['accuracy']:6.2f} ± {100 * row['accuracy_ci95']:4.2f}"
    return text + f"  over random {100 * row['gain']:+6.2f} ± {100 * row['gain_ci95']:4.2f}"


if __name__ == "__main__":
    main()
