"""Table 5: each classifier on each kind of features, over test episodes -> records (Appendix C).

Letters: E episodes, I images of the test classes, D features, S support, Q query images.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from semishot.data.episodes import EpisodeShape, check_enough, sample_episodes
from semishot.data.pool import ImagePool
from semishot.data.splits import ClassImages, all_labeled
from semishot.errors import InputError
from semishot.network.encoder import ConvEncoder
from semishot.network.protonet import ProtoNet
from semishot.paper import baselines
from semishot.paper.published_baselines import (
    CLASSIFIERS,
    FEATURES,
    LABELED_FRACTION,
    ONE_SHOT,
    TABLE5_TEST,
)
from semishot.system.devices import device_name
from semishot.system.files import write_json
from semishot.system.locks import Lock
from semishot.training import pretraining
from semishot.training.config import Recipe
from semishot.training.evaluation import EPISODES, embed_classes
from semishot.training.records import (
    Baseline,
    BaselineRecord,
    Measurement,
    baseline_record,
    records_so_far,
)

Features = Literal["pixels", "random", "pretrained"]
ADAM_RATE = {"pixels": 1e-3, "random": 1e-2, "pretrained": 1e-2}
NUMBERS_AT_A_TIME = 20_000_000
"""Episodes are taken together as long as their features are no more than this."""


def table5(
    pool: ImagePool,
    features: Sequence[Features],
    splits: int,
    updates: int | None,
    runs: Path,
    device: torch.device,
    with_scale_bug: bool = False,
) -> list[BaselineRecord]:
    """Measure what is asked and missing; return all that has been measured with these settings.

    Pre-trained classifiers and records are kept below `runs` and found again there.
    """
    if splits < 1:
        raise InputError(f"--splits must be at least 1, not {splits}")
    if not features and not with_scale_bug:
        raise InputError(f"--features takes at least one of {', '.join(FEATURES)}")
    recipe = replace(pretraining.RECIPE, labeled_fraction=LABELED_FRACTION.get(pool.name, 0.1))
    recipe = recipe if updates is None else recipe.with_updates(updates)
    images = all_labeled(pool.of_split("test"))
    tests = TABLE5_TEST.get(pool.name, (ONE_SHOT,))
    check_enough(images, *tests)
    if "pretrained" in features or with_scale_bug:
        pretraining.check_labeled(pool, recipe)
    path = runs / pool.name / "table5" / f"{pool.fingerprint[:8]}-{recipe.updates}updates.json"
    variants = [(kind, False) for kind in FEATURES if kind in features]
    variants += [("pretrained", True)] if with_scale_bug else []
    with Lock(path.with_name(f".{path.name}.lock")):
        held = [r for r in records_so_far(path) if r["kind"] == "baseline"]
        for kind, bug in variants:
            missing = [s for s in range(splits) if not any(_is(r, kind, bug, s) for r in held)]
            if kind == "pretrained":  # all of them before the tests: on a GPU they train as a fleet
                pretraining.pretrained_encoders(pool, recipe, missing, runs, device, bug)
            for seed in missing:
                seen = see(pool, images, kind, recipe, seed, runs, device, bug)
                for test in tests:
                    held += measure(pool, images, seen, kind, recipe, test, seed, device, bug)
                write_json(path, held)
    return held


def see(
    pool: ImagePool,
    images: ClassImages,
    kind: str,
    recipe: Recipe,
    seed: int,
    runs: Path,
    device: torch.device,
    scale_bug: bool = False,
) -> Tensor:
    """The features (I, D) of every test image: uint8 pixels, or what an encoder makes of them."""
    if kind == "pixels":
        return torch.from_numpy(pool.images[images.order]).flatten(1).to(device)
    encoder: ConvEncoder
    if kind == "random":
        encoder = pretraining.untrained(pool, recipe, [seed]).to(device)
    else:
        (encoder,) = pretraining.pretrained_encoders(pool, recipe, [seed], runs, device, scale_bug)
    return embed_classes(ProtoNet(encoder), pool, images)[0]


def measure(
    pool: ImagePool,
    images: ClassImages,
    seen: Tensor,
    kind: str,
    recipe: Recipe,
    test: EpisodeShape,
    seed: int,
    device: torch.device,
    scale_bug: bool = False,
) -> list[BaselineRecord]:
    """One record per classifier."""
    found = []
    for classifier in CLASSIFIERS:
        begun = time.monotonic()
        rate = ADAM_RATE[kind]
        right = episode_accuracies(seen, images, test, seed, classifier, rate, EPISODES)
        measurement = Measurement(test, "test", time.monotonic() - begun, device_name(device))
        baseline = Baseline(pool.name, classifier, kind, seed, scale_bug)
        if kind == "pretrained":
            baseline = replace(baseline, recipe=recipe, batch=pretraining.BATCH)
        found.append(baseline_record(baseline, measurement, right))
    return found


@torch.inference_mode()
def episode_accuracies(
    features: Tensor,
    images: ClassImages,
    shape: EpisodeShape,
    seed: int,
    classifier: str,
    adam_rate: float,
    episodes: int,
) -> NDArray[np.float64]:
    """(E,): the share of queries right in each episode, on the episodes every other table uses."""
    place = np.empty(images.order.max() + 1, np.int64)
    place[images.order] = np.arange(len(images.order))
    together = min(episodes, max(1, NUMBERS_AT_A_TIME // (shape.images * features.shape[1])))
    labels = torch.arange(shape.way, device=features.device).repeat_interleave(shape.shot)  # (S,)
    truth = torch.arange(shape.way, device=features.device).repeat_interleave(shape.query)  # (Q,)
    parts = []
    for start in range(0, episodes, together):
        count = min(together, episodes - start)
        drawn = sample_episodes(images, shape, seed, "test", start, count)
        support, queries = (
            as_numbers(features[torch.from_numpy(place[rows]).to(features.device)])
            for rows in (drawn.support, drawn.query)
        )  # (E, S, D), (E, Q, D)
        predicted = classify(classifier, support, labels, queries, adam_rate)  # (E, Q)
        parts.append((predicted == truth).double().mean(-1).cpu())
    return torch.cat(parts).numpy()


def classify(
    classifier: str, support: Tensor, labels: Tensor, queries: Tensor, adam_rate: float
) -> Tensor:
    """(E, S, D), (S,), (E, Q, D) -> (E, Q), by a classifier's name."""
    if classifier == "adam_logistic_regression":
        scores = baselines.adam_logistic_regression(support, labels, queries, adam_rate)
        return scores.argmax(-1)
    support, queries = support.double(), queries.double()
    if classifier == "nearest_neighbor":
        return baselines.nearest_neighbor(support, labels, queries)
    return baselines.logistic_regression(support, labels, queries).argmax(-1)


def as_numbers(features: Tensor) -> Tensor:
    """Pixels are scaled to [0, 1]; embeddings stay as they are."""
    return features / 255 if features.dtype == torch.uint8 else features


def _is(record: BaselineRecord, kind: str, scale_bug: bool, seed: int) -> bool:
    bug = record["options"].get("scale_bug", False)
    return bool((record["features"], bug, record["split_seed"]) == (kind, scale_bug, seed))
