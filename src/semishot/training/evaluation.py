"""A trained fleet -> per-episode accuracies -> records. Every test image is embedded once per run."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from semishot import datasets, refine
from semishot.data.episodes import EpisodeShape, check_enough
from semishot.data.pool import ImagePool, Split
from semishot.data.splits import ClassImages, all_labeled
from semishot.errors import InputError, check_number
from semishot.network.encoder import embedding_features
from semishot.network.protonet import ProtoNet, class_labels, take_run
from semishot.system.devices import device_name, pick_device
from semishot.system.progress import meter
from semishot.training.code_state import data_state
from semishot.training.config import (
    NOT_REFINED,
    SEMI_SUPERVISED_INFERENCE,
    SUPERVISED,
    FleetConfig,
)
from semishot.training.examples import EpisodeStreams, streams_of
from semishot.training.fleets import find_model, load_model, try_scoring
from semishot.training.records import AccuracyRecord, Measurement, accuracy_records
from semishot.training.requests import EPISODES, EvaluationRequest, Where
from semishot.training.run_folder import TRAINING_FILE, Training, training_of

Advance = Callable[[int], object]
"""Told how many images or episodes more are done."""
MOST_EPISODES = 10**6
EMBED_BATCH = 256
SCORE_BATCH = 100
EMBEDDING_BYTES = 2**33
"""Bytes of embeddings that may be in memory at once."""


@torch.inference_mode()
def embed_classes(
    model: ProtoNet, pool: ImagePool, images: ClassImages, advance: Advance = lambda _: None
) -> Tensor:
    """(R, I, D): each image of these classes once per run; row i is image `images.order[i]`.

    Batch norm uses its moving averages, so an embedding does not depend on its episode.
    """
    model.eval()
    device = model.encoder.weights[0].device
    parts = []
    for first in range(0, len(images.order), EMBED_BATCH):
        batch = torch.from_numpy(pool.images[images.order[first : first + EMBED_BATCH]]).to(device)
        parts.append(model.embed(batch.expand(model.encoder.runs, *batch.shape)))
        advance(model.encoder.runs * len(batch))
    return torch.cat(parts, 1)


@torch.inference_mode()
def episode_accuracies(
    model: ProtoNet,
    embeddings: Tensor,
    streams: EpisodeStreams,
    episodes: int,
    advance: Advance = lambda _: None,
) -> NDArray[np.float64]:
    """(R, E): the share of an episode's queries that run r gets right, from the embeddings (R, I, D)
    of the images that all streams draw from."""
    device, shape = embeddings.device, streams.shape
    labels = class_labels(shape, device)
    runs = torch.arange(len(streams.seeds), device=device)[:, None, None]
    parts = []
    for start in range(0, episodes, SCORE_BATCH):
        rows = streams.draw_rows(start, min(SCORE_BATCH, episodes - start))  # (R, E, B)
        episode = embeddings[runs, torch.from_numpy(rows).to(device)]  # (R, E, B, D)
        predicted = model.score(episode, shape).argmax(-1)  # (R, E, Q)
        parts.append((predicted == labels).double().mean(-1).cpu())
        advance(rows.shape[0] * rows.shape[1])
    return torch.cat(parts, 1).numpy()


def evaluate(
    tests: Sequence[tuple[ProtoNet, EpisodeShape]],
    pool: ImagePool,
    split: Split,
    seeds: Sequence[int],
    *,
    episodes: int = EPISODES,
    show: bool = True,
) -> list[NDArray[np.float64]]:
    """Per-episode accuracies (R, E) of each test: one fleet, refined in some way, on episodes of some shape.

    The images are embedded once for all tests. One run is tested at a time if the embeddings of all would
    need too much memory. `show` the progress on stderr.
    """
    images = all_labeled(pool.of_split(split))
    check_enough(images, *(shape for _, shape in tests))
    fleet = tests[0][0]
    if len(seeds) > 1 and embedding_bytes(fleet, pool, images) > EMBEDDING_BYTES:
        alone = []
        for run, seed in enumerate(seeds):
            own = [(take_run(model, run), shape) for model, shape in tests]
            alone.append(evaluate(own, pool, split, [seed], episodes=episodes, show=show))
        return [np.concatenate(parts) for parts in zip(*alone, strict=True)]
    runs = fleet.encoder.runs
    with _meter(f"embedding the {split} classes", runs * len(images.order), "images", show) as tell:
        embeddings = embed_classes(fleet, pool, images, tell)
    with _meter("testing", len(tests) * runs * episodes, "episodes", show) as tell:
        return [
            episode_accuracies(
                model, embeddings, streams_of(images, seeds, shape, split), episodes, tell
            )
            for model, shape in tests
        ]


@contextmanager
def _meter(label: str, total: int, unit: str, show: bool) -> Iterator[Advance]:
    if not show:
        yield lambda _: None
        return
    with meter(label, total, unit) as shown:
        yield shown.advance


def embedding_bytes(model: ProtoNet, pool: ImagePool, images: ClassImages) -> int:
    """In float32, of all runs."""
    features = embedding_features(model.encoder.filters, pool.images.shape[-2:])
    return model.encoder.runs * len(images.order) * features * 4


def evaluate_folder(request: EvaluationRequest, where: Where) -> list[AccuracyRecord]:
    """Records of a trained run folder, refined at test as trained, or by another method, or `none`."""
    split, shape, refiner = request.split, request.shape, request.refiner
    check_number("--episodes", request.episodes, 1, MOST_EPISODES)
    for method in (*request.allow, refiner or ""):
        refine.add(method)
    device = pick_device(where.device)
    path = find_model(request.model)
    config, model, pool = open_fleet(path, where.data_root, device)
    name = None
    trained = {member.model for member in config.members}
    if refiner is not None and trained != {refine.ALIASES.get(refiner) or refiner}:
        name, other = at_test(config, refiner)
        model = model.refined_by(other)
        if ":" in name:
            _, _, *size = pool.images.shape
            try_scoring(model, shape, embedding_features(config.recipe.filters, size))
    begun = time.monotonic()
    seeds = [member.split_seed for member in config.members]
    (accuracies,) = evaluate([(model, shape)], pool, split, seeds, episodes=request.episodes)
    measurement = Measurement(
        shape, split, time.monotonic() - begun, device_name(device), *data_and_training(path, pool)
    )
    return accuracy_records(config, name, measurement, accuracies)


def open_fleet(
    path: Path, root: Path | None, device: torch.device
) -> tuple[FleetConfig, ProtoNet, ImagePool]:
    """A trained fleet and the data it was trained on; other data with that name are refused."""
    config, model = load_model(path, device)
    pool = datasets.load(config.dataset, root)
    if pool.fingerprint != config.data_fingerprint:
        raise InputError(
            f"{path} was trained on another version of {config.dataset} than the one prepared here "
            f"(fingerprint {config.data_fingerprint[:16]}, not {pool.fingerprint[:16]})"
        )
    return config, model, pool


def data_and_training(path: Path, pool: ImagePool) -> tuple[dict[str, str], dict[str, Training]]:
    """The data of a record, and the training of its fleet, which a model file alone does not say."""
    training = training_of(path / TRAINING_FILE) if path.is_dir() else {}
    return data_state(pool), training


def at_test(config: FleetConfig, refiner: str) -> tuple[str, nn.Module | None]:
    """The row's name, and an untrained refiner in place of the trained one."""
    supervised = all(member.model == SUPERVISED for member in config.members)
    if refiner in ("none", "basic", SUPERVISED):
        return SUPERVISED if supervised else NOT_REFINED, None
    name = refine.resolve(refiner)
    module = refine.build(name, runs=len(config.members))
    if any(True for _ in module.parameters()):
        raise InputError(
            f"{name!r} has learned parameters, so it cannot stand in for the trained methods at test; "
            f"train it with `semishot train --model {name}`"
        )
    inference = supervised and name == "soft_kmeans"  # the paper's second row
    return SEMI_SUPERVISED_INFERENCE if inference else name, module
