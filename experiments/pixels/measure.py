"""Do the cells of Table 5 that train no encoder agree with the paper, by how the pixels were prepared?

PYTHONPATH=src:experiments:benchmarks python -m pixels.measure LOG.json ROOT...

ROOT is a data root with an Omniglot, prepared in one way; the miniImageNet of the first is measured too, if
it is there. What LOG.json holds already is not measured again.
"""

import json
import sys
from collections.abc import Iterator, Sequence
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
from semishot.training import classification
from semishot.training.classification import ClassificationRequest
from semishot.training.episode_streams import streams_of

SPLITS, EPISODES = 10, 600
SLOW_SPLITS = 3
"""Logistic regression on the pixels of photographs takes minutes for each split."""
NEAREST, ADAM = "nearest_neighbor", "adam_logistic_regression"
FEATURES = {"pixels": "pixels", "random": "random", "random, the authors'": "authors_random"}
"""What is measured, by its name in the log."""
ROWS = tuple((features, classifier) for features in FEATURES for classifier in (NEAREST, ADAM))
"""The rows of Table 5 that train no encoder."""
TEST, VAL = "the test classes", "the validation classes"
USUAL = "antialiased-exact"
WITH_RANDOM = (USUAL, "cubic-warped", TEST, VAL)
"""An encoder embeds every image of these: minutes for each split."""


def main(log: Path, roots: Sequence[Path]) -> None:
    held = json.loads(log.read_text(encoding="utf-8")) if log.exists() else {"cells": []}
    for features, classifier in ROWS:
        for variant, pool, split in variants(roots):
            if features != "pixels" and variant not in WITH_RANDOM:
                continue
            for shot in {"omniglot": (1,)}.get(pool.name, (1, 5)):
                name = {"data": pool.name, "variant": variant, "classes": split}
                name |= {"features": features, "classifier": classifier, "shot": shot}
                if not any(name.items() <= cell.items() for cell in held["cells"]):
                    print(name, file=sys.stderr, flush=True)
                    each = accuracies(pool, split, features, classifier, shot)
                    held["cells"].append({**name, **beside_paper(name, each)})
                    write_lines(log, held)


def variants(roots: Sequence[Path]) -> Iterator[tuple[str, ImagePool, str]]:
    """Each pool that is measured: its name, and the classes it is tested on."""
    for root in roots:
        pool = datasets.load("omniglot", root)
        yield str(pool.about.get("preparation", USUAL)), pool, "test"
    if (roots[0] / "mini-imagenet").is_dir():
        photographs = datasets.load("mini-imagenet", roots[0])
        yield TEST, photographs, "test"
        yield VAL, photographs, "val"


def accuracies(
    pool: ImagePool, split: str, features: str, classifier: str, shot: int
) -> NDArray[np.float64]:
    """(splits, episodes), as `semishot reproduce table5` tests them."""
    training = ClassificationRequest(pool, classification.AUTHORS_RECIPE, torch.device("cpu"))
    kind, images = FeatureKind(FEATURES[features], training), all_labeled(pool.of_split(split))
    tests = {test.shot: test for test in paper.TABLE5_TEST.get(pool.name, (paper.ONE_SHOT,))}
    slow = classifier == ADAM and features == "pixels" and pool.name != "omniglot"
    seen, found = None, []
    for seed in range(SLOW_SPLITS if slow else SPLITS):
        if seen is None or kind.differs_by_split:
            seen = features_of(kind, images, seed, Path())
        stream = streams_of(images, [seed], tests[shot], split)
        rate = ADAM_RATE[kind.name]
        found.append(baseline_accuracies(seen, stream, classifier, rate, EPISODES))
    return np.stack(found)


def beside_paper(name: dict[str, Any], each: NDArray[np.float64]) -> dict[str, Any]:
    """Percent; the standard error over splits has ddof = 1, and the paper's ± is read as the standard error
    over the episodes of one run."""
    by_split = 100 * each.mean(1)
    error = float(by_split.std(ddof=1) / len(by_split) ** 0.5)
    key = name["data"], name["shot"], name["classifier"], FEATURES[name["features"]]
    theirs = paper.published_cell(*key)
    assert theirs is not None
    gap = float(by_split.mean()) - theirs.mean
    return {
        "by_split": [round(float(value), 3) for value in by_split],
        "accuracy": round(float(by_split.mean()), 2),
        "standard_error": round(error, 2),
        "paper": theirs.mean,
        "paper_error": theirs.error,
        "difference": round(gap, 2),
        "z": round(gap / (error**2 + theirs.error**2) ** 0.5, 1),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), list(map(Path, sys.argv[2:])))
