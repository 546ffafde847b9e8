"""Table 5: 1-nearest neighbor and logistic regression on each kind of features -> records (Appendix C).

Letters: E episodes, I images of the test classes, D features, S support, Q query images, N classes,
A coordinates of a basis.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional as F

from semishot import datasets
from semishot.data.episodes import EpisodeShape, check_enough
from semishot.data.splits import ClassImages, all_labeled
from semishot.errors import InputError
from semishot.network.adam import Adam
from semishot.network.protonet import ProtoNet, class_labels
from semishot.paper.authors_network import authors_network
from semishot.paper.presets import preset
from semishot.paper.published import CLASSIFIERS, FEATURES, ONE_SHOT, TABLE5_TEST
from semishot.paper.reproduce import FIXED
from semishot.paper.requests import Table5Request
from semishot.prototypes import squared_distances
from semishot.system.devices import device_name, pick_device
from semishot.system.files import write_json
from semishot.system.locks import Lock
from semishot.system.progress import meter
from semishot.training import classification
from semishot.training.classification import BATCH, ClassificationRequest
from semishot.training.evaluation import embed_classes
from semishot.training.examples import EpisodeStreams, streams_of
from semishot.training.records import BaselineRecord, Measurement, records_so_far
from semishot.training.requests import EPISODES, Where
from semishot.training.run_folder import data_state, training_of

NUMBERS_AT_A_TIME = 20_000_000
"""The most features of episodes that are processed at a time."""


def table5(request: Table5Request, where: Where) -> list[BaselineRecord]:
    """Measure what is requested and missing; return everything measured with these settings.

    Pre-trained classifiers and records are kept below the runs and found again there.
    """
    features, bug = request.features, request.with_scale_bug
    pool, device = datasets.load(request.dataset, where.data_root), pick_device(where.device)
    if not features and not bug:
        raise InputError(f"--features takes at least one of {', '.join(FEATURES)}")
    fraction = preset("ren2018", pool.name).recipe.labeled_fraction
    recipe = replace(classification.AUTHORS_RECIPE, labeled_fraction=fraction)
    recipe = recipe.with_updates(request.updates)
    tests = TABLE5_TEST.get(pool.name, (ONE_SHOT,))
    check_enough(all_labeled(pool.of_split("test")), *tests, advice=FIXED)
    if "pretrained" in features or bug:
        classification.check_labeled(pool, recipe)
    name = f"{pool.fingerprint[:8]}-{recipe.updates}updates.json"
    path = where.runs / pool.name / "table5" / name
    plain = ClassificationRequest(pool, recipe, device)
    kinds = [(kind, plain) for kind in FEATURES if kind in features]
    kinds += [("pretrained", replace(plain, scale_bug=True))] if bug else []
    with Lock(path.with_name(f".{path.name}.lock")):
        known = [r for r in records_so_far(path) if r["kind"] == "baseline"]
        for kind, training in kinds:
            of_kind = kind, training.scale_bug
            own = [r for r in known if (r["features"], bool(r["options"])) == of_kind]
            missing = sorted({*range(request.splits)} - {r["split_seed"] for r in own})
            for records in measured(kind, training, missing, tests, where.runs):
                known += records
                write_json(path, known)
    return known


def measured(
    kind: str,
    request: ClassificationRequest,
    seeds: Sequence[int],
    tests: Sequence[EpisodeShape],
    runs: Path,
) -> Iterator[list[BaselineRecord]]:
    """The records of each split. All encoders are pre-trained before the first test: on a GPU, together."""
    pool, device, pretrained = request.pool, request.device, kind == "pretrained"
    images = all_labeled(pool.of_split("test"))
    files = classification.pretrained(request, seeds, runs) if pretrained else {}
    about = {
        "kind": "baseline",
        "dataset": pool.name,
        "preset": "ren2018",
        "features": kind,
        "options": {"scale_bug": True} if request.scale_bug else {},
    }
    own = (request.recipe, {"batch": BATCH}) if pretrained else (None, {})
    features: Tensor | None = None
    episodes = len(seeds) * len(tests) * len(CLASSIFIERS) * EPISODES
    with meter(f"testing {FEATURES[kind]}", episodes, "episodes") as shown:
        for seed in seeds:
            if features is None or kind in ("random", "pretrained"):  # another for each split
                features = features_of(kind, request, images, seed, files.get(seed))
            trained = training_of(files[seed].with_suffix(".json")) if pretrained else {}
            records = []
            for test, classifier in product(tests, CLASSIFIERS):
                begun, stream = time.monotonic(), streams_of(images, [seed], test)
                right = baseline_accuracies(features, stream, classifier, EPISODES, shown.advance)
                how = time.monotonic() - begun, device_name(device), data_state(pool), trained
                named = {**about, "model": classifier}
                records.append(Measurement(test, "test", *how).record(named, seed, right, *own))
            yield cast(list[BaselineRecord], records)


def features_of(
    kind: str, request: ClassificationRequest, images: ClassImages, seed: int, file: Path | None
) -> Tensor:
    """The features (I, D) of every test image: uint8 pixels, or their embeddings."""
    pool, device = request.pool, request.device
    if kind == "pixels":
        return torch.from_numpy(pool.images[images.order]).flatten(1).to(device)
    if kind == "authors_random":
        encoder = authors_network(pool.images.shape[1], request.recipe.filters)
    elif file is None:
        encoder = classification.untrained(pool, request.recipe, [seed])
    else:
        encoder = classification.load_encoder(request, file)
    return embed_classes(ProtoNet(encoder.to(device)), pool, images)[0]


@torch.inference_mode()
def baseline_accuracies(
    features: Tensor,
    stream: EpisodeStreams,
    classifier: str,
    episodes: int,
    advance: Callable[[int], object] = lambda _: None,
) -> NDArray[np.float64]:
    """(E,): the share of queries right in each episode, on the same episodes as every other table.

    Pixels are scaled to [0, 1]; `advance` is told how many episodes more are done.
    """
    shape, device = stream.shape, features.device
    together = min(episodes, max(1, NUMBERS_AT_A_TIME // (shape.images * features.shape[1])))
    labels = torch.arange(shape.way, device=device).repeat_interleave(shape.shot)  # (S,)
    truth = class_labels(shape, device)  # (Q,)
    scale, adam_rate = (255, 1e-3) if features.dtype == torch.uint8 else (1, 1e-2)
    parts = []
    for start in range(0, episodes, together):
        rows = stream.draw_rows(start, min(together, episodes - start))[0]  # (E, B)
        of_support, _, of_query = torch.from_numpy(rows).to(device).split(list(shape.sizes), -1)
        support, queries = features[of_support] / scale, features[of_query] / scale
        predicted = classify(classifier, support, labels, queries, adam_rate)  # (E, Q)
        parts.append((predicted == truth).double().mean(-1).cpu())
        advance(len(rows))
    return torch.cat(parts).numpy()


def classify(
    classifier: str, support: Tensor, labels: Tensor, queries: Tensor, adam_rate: float
) -> Tensor:
    """(E, S, D), (S,), (E, Q, D) -> (E, Q), by a classifier's name."""
    if classifier == "adam_logistic_regression":
        return adam_logistic_regression(support, labels, queries, adam_rate).argmax(-1)
    support, queries = support.double(), queries.double()
    if classifier == "nearest_neighbor":
        return nearest_neighbor(support, labels, queries)
    return logistic_regression(support, labels, queries).argmax(-1)


# The classifiers, on many episodes at once


def nearest_neighbor(support: Tensor, labels: Tensor, queries: Tensor) -> Tensor:
    """(E, S, D), (S,), (E, Q, D) -> (E, Q): the label of the nearest support image."""
    return labels[squared_distances(queries, support).argmin(-1)]


def logistic_regression(support: Tensor, labels: Tensor, queries: Tensor) -> Tensor:
    """scikit-learn's `LogisticRegression()` for each episode, to convergence.

    (E, S, D), (S,), (E, Q, D) -> (E, Q, N), the scores of the classes. Its minimum has weights in the span of
    the support: a component outside it changes no score of the support and costs |W|^2. So the fit happens
    in an orthonormal basis of that span, S coordinates instead of D.
    """
    basis = torch.linalg.qr(support.mT).Q  # (E, D, A)
    model, scores = LogisticRegression(tol=1e-8, max_iter=10_000), []
    for x, q in zip((support @ basis).cpu(), (queries @ basis).cpu(), strict=True):
        scores.append(model.fit(x, labels.cpu()).decision_function(q))
    return torch.from_numpy(np.stack(scores)).to(support.device)


def adam_logistic_regression(
    support: Tensor, labels: Tensor, queries: Tensor, rate: float, steps: int = 200
) -> Tensor:
    """Logistic regression as in the authors' code: no penalty, `steps` full-batch Adam steps.

    (E, S, D), (S,), (E, Q, D) -> (E, Q, N), the scores of the classes. It starts from zero; the code
    starts from weights of standard deviation 0.01.
    """
    x = F.pad(support, (0, 1), value=1.0)  # (E, S, D + 1): the last weight is the bias
    one_hot = F.one_hot(labels).to(x.dtype).T  # (N, S)
    w = x.new_zeros(len(x), len(one_hot), x.shape[-1])  # (E, N, D + 1)
    optimizer = Adam([w], lr=rate)
    for _ in range(steps):
        wrong = (w @ x.mT).softmax(-2) - one_hot  # (E, N, S)
        w.grad = wrong @ x / len(labels)  # (E, N, D + 1)
        optimizer.step()
    return F.pad(queries, (0, 1), value=1.0) @ w.mT
