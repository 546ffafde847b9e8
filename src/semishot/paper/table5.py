"""Table 5: each classifier on each kind of features, over test episodes -> records (Appendix C).

Letters: E episodes, I images of the test classes, D features, S support, Q query images.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from semishot import datasets
from semishot.data.episodes import EpisodeShape, check_enough
from semishot.data.splits import ClassImages, all_labeled
from semishot.errors import InputError
from semishot.network.encoder import ConvEncoder
from semishot.network.protonet import ProtoNet, class_labels
from semishot.paper import baselines
from semishot.paper.authors_network import authors_network
from semishot.paper.published import (
    CLASSIFIERS,
    FEATURES,
    LABELED_FRACTION,
    ONE_SHOT,
    TABLE5_TEST,
)
from semishot.paper.reproduce import FIXED
from semishot.paper.requests import Table5Request
from semishot.system.devices import device_name, pick_device
from semishot.system.files import write_json
from semishot.system.locks import Lock
from semishot.system.progress import meter
from semishot.training import classification
from semishot.training.classification import BATCH, ClassificationRequest
from semishot.training.code_state import data_state
from semishot.training.evaluation import embed_classes
from semishot.training.examples import EpisodeStreams, streams_of
from semishot.training.records import (
    Baseline,
    BaselineRecord,
    Measurement,
    baseline_record,
    records_so_far,
)
from semishot.training.requests import EPISODES, Where

ADAM_RATE = {"pixels": 1e-3, "random": 1e-2, "authors_random": 1e-2, "pretrained": 1e-2}
Advance = Callable[[int], object]
"""Told how many episodes more are done."""
NUMBERS_AT_A_TIME = 20_000_000
"""The most features of episodes that are processed at a time."""


def table5(request: Table5Request, where: Where) -> list[BaselineRecord]:
    """Measure what is requested and missing; return everything measured with these settings.

    Pre-trained classifiers and records are kept below the runs and found again there.
    """
    splits, features = request.splits, request.features
    pool, device = datasets.load(request.dataset, where.data_root), pick_device(where.device)
    if not features and not request.with_scale_bug:
        raise InputError(f"--features takes at least one of {', '.join(FEATURES)}")
    recipe = replace(
        classification.AUTHORS_RECIPE, labeled_fraction=LABELED_FRACTION.get(pool.name, 0.1)
    )
    recipe = recipe if request.updates is None else recipe.with_updates(request.updates)
    images = all_labeled(pool.of_split("test"))
    tests = TABLE5_TEST.get(pool.name, (ONE_SHOT,))
    check_enough(images, *tests, advice=FIXED)
    if "pretrained" in features or request.with_scale_bug:
        classification.check_labeled(pool, recipe)
    name = f"{pool.fingerprint[:8]}-{recipe.updates}updates.json"
    path = where.runs / pool.name / "table5" / name
    plain = ClassificationRequest(pool, recipe, device)
    variants = [FeatureKind(kind, plain) for kind in FEATURES if kind in features]
    if request.with_scale_bug:
        variants.append(FeatureKind("pretrained", replace(plain, scale_bug=True)))
    with Lock(path.with_name(f".{path.name}.lock")):
        known = [r for r in records_so_far(path) if r["kind"] == "baseline"]
        for kind in variants:
            missing = [s for s in range(splits) if not any(kind.holds(r, s) for r in known)]
            for records in measured(kind, missing, images, tests, where.runs):
                known += records
                write_json(path, known)
    return known


def measured(
    kind: "FeatureKind",
    seeds: Sequence[int],
    images: ClassImages,
    tests: Sequence[EpisodeShape],
    runs: Path,
) -> Iterator[list[BaselineRecord]]:
    """The records of each split. All encoders are pre-trained before the first test: on a GPU, together."""
    if kind.name == "pretrained":
        classification.pretrained_encoders(kind.training, seeds, runs)
    seen: Tensor | None = None
    episodes = len(seeds) * len(tests) * len(CLASSIFIERS) * EPISODES
    with meter(f"testing {FEATURES[kind.name]}", episodes, "episodes") as progress:
        for seed in seeds:
            if seen is None or kind.differs_by_split:
                seen = features_of(kind, images, seed, runs)
            streams = [streams_of(images, [seed], test) for test in tests]
            of_stream = (baseline_records(kind, seen, s, runs, progress.advance) for s in streams)
            yield [record for records in of_stream for record in records]


@dataclass(frozen=True)
class FeatureKind:
    """What the classifiers see: pixels, or features of encoders before or after pre-training."""

    name: str
    training: ClassificationRequest

    def holds(self, record: BaselineRecord, seed: int) -> bool:
        bug = bool(record["options"].get("scale_bug"))
        own = record["features"], bug, record["split_seed"]
        return own == (self.name, self.training.scale_bug, seed)

    @property
    def differs_by_split(self) -> bool:
        return self.name in ("random", "pretrained")


def features_of(kind: FeatureKind, images: ClassImages, seed: int, runs: Path) -> Tensor:
    """The features (I, D) of every test image: uint8 pixels, or their embeddings."""
    pool, device = kind.training.pool, kind.training.device
    if kind.name == "pixels":
        return torch.from_numpy(pool.images[images.order]).flatten(1).to(device)
    encoder: ConvEncoder
    if kind.name == "authors_random":
        encoder = authors_network(pool.images.shape[1], kind.training.recipe.filters).to(device)
    elif kind.name == "random":
        encoder = classification.untrained(pool, kind.training.recipe, [seed]).to(device)
    else:
        (encoder,) = classification.pretrained_encoders(kind.training, [seed], runs)
    return embed_classes(ProtoNet(encoder), pool, images)[0]


def baseline_records(
    kind: FeatureKind, seen: Tensor, stream: EpisodeStreams, runs: Path, advance: Advance
) -> list[BaselineRecord]:
    """One record per classifier."""
    records, training, (seed,) = [], kind.training, stream.seeds
    trained = {}
    if kind.name == "pretrained":
        trained = classification.training_of_encoder(training, seed, runs)
    for classifier in CLASSIFIERS:
        begun = time.monotonic()
        rate = ADAM_RATE[kind.name]
        right = baseline_accuracies(seen, stream, classifier, rate, EPISODES, advance=advance)
        seconds, device = time.monotonic() - begun, device_name(training.device)
        baseline = Baseline(training.pool.name, classifier, kind.name, seed, training.scale_bug)
        if kind.name == "pretrained":
            baseline = replace(baseline, recipe=training.recipe, batch=BATCH)
        data = data_state(training.pool)
        measurement = Measurement(stream.shape, "test", seconds, device, data, trained)
        records.append(baseline_record(baseline, measurement, right))
    return records


@torch.inference_mode()
def baseline_accuracies(
    features: Tensor,
    stream: EpisodeStreams,
    classifier: str,
    adam_rate: float,
    episodes: int,
    *,
    advance: Advance = lambda _: None,
) -> NDArray[np.float64]:
    """(E,): the share of queries right in each episode, on the same episodes as every other table."""
    shape, device = stream.shape, features.device
    together = min(episodes, max(1, NUMBERS_AT_A_TIME // (shape.images * features.shape[1])))
    labels = torch.arange(shape.way, device=device).repeat_interleave(shape.shot)  # (S,)
    truth = class_labels(shape, device)  # (Q,)
    parts = []
    for start in range(0, episodes, together):
        rows = stream.draw_rows(start, min(together, episodes - start))[0]  # (E, B)
        of_support, _, of_query = torch.from_numpy(rows).to(device).split(list(shape.sizes), -1)
        support, queries = as_numbers(features[of_support]), as_numbers(features[of_query])
        predicted = classify(classifier, support, labels, queries, adam_rate)  # (E, Q)
        parts.append((predicted == truth).double().mean(-1).cpu())
        advance(len(rows))
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
