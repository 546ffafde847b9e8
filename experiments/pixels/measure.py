"""Do the cells of Table 5 that train no encoder agree with the paper, by how the pixels were prepared?

PYTHONPATH=src:experiments:benchmarks python -m pixels.measure LOG.json NAME=FOLDER...

FOLDER is a data root, NAME the reduction of its Omniglot; the miniImageNet of `antialiased` is measured if it is
there. What LOG.json holds already is not measured again.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from json_lines import write_lines
from semishot import datasets
from semishot.data.pool import ImagePool
from semishot.data.splits import all_labeled
from semishot.paper import published_baselines as paper
from semishot.paper.table5 import ADAM_RATE, FeatureKind, baseline_accuracies, features_of
from semishot.training import pretraining
from semishot.training.episode_streams import streams_of
from semishot.training.pretraining import Pretraining

SPLITS, EPISODES = 10, 600
SLOW_SPLITS = 3
"""Logistic regression on the pixels of photographs takes minutes for each split."""
CLASSIFIERS = ("nearest_neighbor", "adam_logistic_regression", "logistic_regression")
NOTHING_TRAINED = ("pixels", "random")


def main(log: Path, roots: dict[str, Path]) -> None:
    held = json.loads(log.read_text(encoding="utf-8")) if log.exists() else {"cells": []}
    for variant, pool, split in variants(roots):
        for features in NOTHING_TRAINED:
            for classifier in CLASSIFIERS:
                for shot in {"omniglot": (1,)}.get(pool.name, (1, 5)):
                    name = {"data": pool.name, "variant": variant, "classes": split}
                    name |= {"features": features, "classifier": classifier, "shot": shot}
                    if not any(name.items() <= cell.items() for cell in held["cells"]):
                        print(name, file=sys.stderr, flush=True)
                        each = accuracies(pool, split, features, classifier, shot)
                        held["cells"].append({**name, **beside_paper(name, each)})
                        write_lines(log, held)


def variants(roots: dict[str, Path]) -> Iterator[tuple[str, ImagePool, str]]:
    """Each pool that is measured: its name, and the classes it is tested on."""
    for reduction, root in roots.items():
        pool = datasets.load("omniglot", root)
        yield f"{reduction}, exact rotations", pool, "test"
        yield f"{reduction}, warped rotations", replace(pool, images=warped(pool.images)), "test"
    if "mini-imagenet" in datasets.prepared(roots["antialiased"]):
        photographs = datasets.load("mini-imagenet", roots["antialiased"])
        yield "the test classes", photographs, "test"
        yield "the validation classes", photographs, "val"


def warped(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rotations as the authors' affine warp makes them, about a point half a pixel off the center: each quarter
    turn moves the drawing down by a pixel, whose row is lost, and theirs are four turns in a row."""
    out = np.array(images)
    by_turns = out.reshape(-1, 4, 20, *images.shape[-2:])  # upright, 90, 180, 270 degrees
    turned = by_turns[:, 0].copy()
    for turns in (1, 2, 3, 4):
        turned = np.rot90(turned, axes=(2, 3))
        turned = np.pad(turned[..., :-1, :], [(0, 0), (0, 0), (1, 0), (0, 0)])
        by_turns[:, turns % 4] = turned
    return out


def accuracies(
    pool: ImagePool, split: str, features: str, classifier: str, shot: int
) -> NDArray[np.float64]:
    """(splits, episodes), as `semishot reproduce table5` tests them."""
    training = Pretraining(pool, pretraining.RECIPE, torch.device("cpu"))
    kind, images = FeatureKind(features, training), all_labeled(pool.of_split(split))
    tests = {test.shot: test for test in paper.TABLE5_TEST.get(pool.name, (paper.ONE_SHOT,))}
    slow = classifier != "nearest_neighbor" and features == "pixels" and pool.name != "omniglot"
    found = []
    for seed in range(SLOW_SPLITS if slow else SPLITS):
        seen = features_of(kind, images, seed, Path())
        stream = streams_of(images, [seed], tests[shot], split)
        found.append(baseline_accuracies(seen, stream, classifier, ADAM_RATE[features], EPISODES))
    return np.stack(found)


def beside_paper(name: dict[str, Any], each: NDArray[np.float64]) -> dict[str, Any]:
    """Percent; the standard error over splits has ddof = 1, and the paper's ± is read as a 95 % interval over the
    episodes of one run, as its script prints it."""
    by_split = 100 * each.mean(1)
    error = float(by_split.std(ddof=1) / len(by_split) ** 0.5)
    key = name["data"], name["shot"], name["classifier"], name["features"]
    theirs = paper.published_cell(*key)
    assert theirs is not None
    gap = float(by_split.mean()) - theirs.mean
    return {
        "by_split": [round(float(value), 3) for value in by_split],
        "accuracy": round(float(by_split.mean()), 2),
        "standard_error": round(error, 2),
        "paper": theirs.mean,
        "paper_ci95": theirs.error,
        "difference": round(gap, 2),
        "z": round(gap / (error**2 + (theirs.error / 1.96) ** 2) ** 0.5, 1),
    }


if __name__ == "__main__":
    given = dict(pair.split("=", 1) for pair in sys.argv[2:])
    main(Path(sys.argv[1]), {name: Path(folder) for name, folder in given.items()})
