"""A trained fleet -> per-episode accuracies -> records, and the choice of its best run.

Every test image is embedded once per run. Letters: R runs, E episodes, B images of an episode, I images,
D embedding dimensions, Q queries.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from semishot import datasets, refine
from semishot.data.episodes import EpisodeShape, check_enough
from semishot.data.pool import ImagePool, Split
from semishot.data.splits import ClassImages, all_labeled
from semishot.errors import InputError, check_number
from semishot.network.protonet import ProtoNet, class_labels, take_run
from semishot.system.devices import device_name, pick_device
from semishot.system.progress import meter
from semishot.training.config import NOT_REFINED, SEMI_SUPERVISED_INFERENCE, SUPERVISED, FleetConfig
from semishot.training.examples import EpisodeStreams, streams_of
from semishot.training.fleets import find_model, load_model, save_model, try_method
from semishot.training.records import (
    AccuracyRecord,
    Measurement,
    Record,
    accuracy_records,
    half_width,
    without_episodes,
)
from semishot.training.requests import EPISODES, EvaluationRequest, PickRequest, Where
from semishot.training.run_folder import TRAINING_FILE, Training, data_state, training_of

Advance = Callable[[int], object]
"""Told how many images or episodes more are done."""
MOST_EPISODES = 10**6
EMBED_BATCH, SCORE_BATCH = 256, 100
EMBEDDING_BYTES = 2**33
"""Bytes of embeddings that may be in memory at once."""


@torch.inference_mode()
def embed_classes(
    model: ProtoNet,
    pool: ImagePool,
    images: ClassImages,
    advance: Advance = lambda _: None,
    batch: int = EMBED_BATCH,
) -> Tensor:
    """(R, I, D): each image of these classes once per run; row i is image `images.order[i]`.

    Batch norm uses its moving averages, so an embedding does not depend on its episode.
    """
    model.eval()
    device, runs = model.encoder.weights[0].device, model.encoder.runs
    parts = []
    for first in range(0, len(images.order), batch):
        pixels = torch.from_numpy(pool.images[images.order[first : first + batch]]).to(device)
        parts.append(model.embed(pixels.expand(runs, *pixels.shape)))
        advance(runs * len(pixels))
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
) -> list[NDArray[np.float64]]:
    """Per-episode accuracies (R, E) of each test: one fleet, refined in some way, on episodes of some shape.

    The images are embedded once for all tests. One run is tested at a time if the embeddings of all would
    need too much memory.
    """
    images = all_labeled(pool.of_split(split))
    check_enough(images, *(shape for _, shape in tests))
    fleet = tests[0][0]
    runs, size = fleet.encoder.runs, pool.images.shape[-2:]
    numbers = runs * len(images.order) * fleet.encoder.features(size)
    if len(seeds) > 1 and 4 * numbers > EMBEDDING_BYTES:
        alone = []
        for run, seed in enumerate(seeds):
            own = [(take_run(model, run), shape) for model, shape in tests]
            alone.append(evaluate(own, pool, split, [seed], episodes=episodes))
        return [np.concatenate(parts) for parts in zip(*alone, strict=True)]
    with meter(f"embedding the {split} classes", runs * len(images.order), "images") as shown:
        embeddings = embed_classes(fleet, pool, images, shown.advance)
    streams = [streams_of(images, seeds, shape, split) for _, shape in tests]
    with meter("testing", len(tests) * runs * episodes, "episodes") as shown:
        return [
            episode_accuracies(model, embeddings, stream, episodes, shown.advance)
            for (model, _), stream in zip(tests, streams, strict=True)
        ]


@dataclass(frozen=True)
class FleetTest:
    """A trained fleet, refined in some way, on episodes of some shape."""

    model: ProtoNet
    shape: EpisodeShape
    name: str | None = None
    """What the records call the method, if not as it was trained."""
    at_test: Mapping[str, Any] = field(default_factory=dict)
    """Steps and options of the refinement, if not as in training."""


def measured(
    tests: Sequence[FleetTest],
    config: FleetConfig,
    pool: ImagePool,
    path: Path,
    split: Split = "test",
    episodes: int = EPISODES,
) -> list[AccuracyRecord]:
    """The records of each test, one for each run of the fleet in `path`; all share the embeddings."""
    begun = time.monotonic()
    seeds, pairs = [m.split_seed for m in config.members], [(t.model, t.shape) for t in tests]
    accuracies = evaluate(pairs, pool, split, seeds, episodes=episodes)
    seconds, name = time.monotonic() - begun, device_name(tests[0].model.encoder.weights[0].device)
    records: list[AccuracyRecord] = []
    for test, each in zip(tests, accuracies, strict=True):
        own = *data_and_training(path, pool), test.at_test
        records += accuracy_records(
            config, test.name, Measurement(test.shape, split, seconds, name, *own), each
        )
    return records


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
            try_method(model, shape, model.encoder.features(size))
    if request.transductive and model.refiner is None:
        raise InputError("--transductive: nothing is refined; drop it, or name a --refiner")
    model.transductive = request.transductive
    changed = {"transductive": True} if request.transductive else {}
    test = FleetTest(model, shape, name, changed)
    return measured([test], config, pool, path, split, request.episodes)


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


@dataclass(frozen=True)
class Candidate:
    """A run of the fleet on the validation episodes."""

    model: str
    split_seed: int
    run: int
    """Its index in the fleet."""
    accuracy: float
    accuracy_ci95: float
    """Half the width of the 95 % interval over episodes."""


@dataclass(frozen=True)
class Lead:
    """How far the best is ahead of the next, on the validation episodes."""

    difference: float
    ci95: float
    """Half the width of its 95 % interval over episodes."""


@dataclass(frozen=True)
class Picked:
    """The best run of a fleet, and those it was chosen from."""

    candidates: Sequence[Candidate]
    """From the best to the worst."""
    lead: Lead | None
    """None if there is one candidate."""
    record: Record
    """Of the best, on the test classes."""

    def as_json(self) -> dict[str, Any]:
        """The record, with the accuracy on validation classes by which the run was chosen, and the others."""
        best = self.candidates[0]
        return {
            **self.record,
            "val_accuracy": best.accuracy,
            "val_accuracy_ci95": best.accuracy_ci95,
            "lead": None if self.lead is None else asdict(self.lead),
            "candidates": [asdict(each) for each in self.candidates],
        }


def pick_best(folder: Path, out: Path, request: PickRequest, where: Where) -> Picked:
    """Save the run that is best on the validation classes, of one method or of all, with its test record."""
    shape, device = request.shape, pick_device(where.device)
    if out.suffix != ".safetensors":
        raise InputError(f"the file to write must end in .safetensors, not {out.name!r}")
    for method in (*request.allow, request.model or ""):
        refine.add(method)
    config, fleet, pool = open_fleet(folder, where.data_root, device)
    members = config.members
    runs = [run for run, m in enumerate(members) if request.model in (None, m.model)]
    if not runs:
        choices = ", ".join(dict.fromkeys(member.model for member in members))
        raise InputError(f"{folder} has no run of {request.model!r}: choose from {choices}")
    (accuracies,) = evaluate([(fleet, shape)], pool, "val", [m.split_seed for m in members])
    runs.sort(key=lambda run: -accuracies[run].mean())
    best, *others = runs
    lead = None
    if others:
        same = members[best].split_seed == members[others[0]].split_seed
        lead = lead_of(accuracies[best], accuracies[others[0]], same)
    alone, single = replace(config, members=(members[best],)), take_run(fleet, best)
    (record,) = measured([FleetTest(single, shape)], alone, pool, folder)
    candidates = []
    for run in runs:
        mean, error = float(accuracies[run].mean()), half_width(accuracies[run])
        member = members[run]
        candidates.append(Candidate(member.model, member.split_seed, run, mean, error))
    picked = Picked(candidates, lead, without_episodes(record))
    save_model(out, alone, single, {"result": json.dumps(picked.as_json())})
    return picked


def lead_of(best: NDArray[np.float64], next_best: NDArray[np.float64], same_episodes: bool) -> Lead:
    """From accuracies (E,) each. Runs of one split seed see the same episodes: their difference is surer."""
    difference = float(best.mean() - next_best.mean())
    if same_episodes:
        return Lead(difference, half_width(best - next_best))
    return Lead(difference, math.hypot(half_width(best), half_width(next_best)))
