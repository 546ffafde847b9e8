"""Encoders that learn to classify the training classes first (Appendix C, "CNN pre").

Table 5 needs their features, and a fleet may start from them. Each is trained once and kept in a file.
Letters: R runs, E updates, B images of a batch, I labeled images.
"""

import hashlib
import json
import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from semishot.data.pool import ImagePool, Indices
from semishot.data.splits import ClassImages, labeled_split, random_words, uniforms
from semishot.errors import InputError
from semishot.network.classifier import QUARTERS, CosineHead, LinearClassifier, TurnedClassifier
from semishot.network.encoder import ConvEncoder, embedding_features
from semishot.network.protonet import ProtoNet
from semishot.system.files import write_json
from semishot.system.locks import Lock
from semishot.system.structs import read_struct
from semishot.system.tensor_files import is_whole, read_tensors, write_tensors
from semishot.training import examples, loop, run_folder
from semishot.training.config import Classification, Recipe
from semishot.training.examples import Draw, images_on
from semishot.training.fleet_log import Row, fleet_table
from semishot.training.loop import CHECKPOINT_SECONDS, Event, Learner, TrainingRequest
from semishot.training.run_folder import Training, joined
from semishot.training.update import Chunk

BATCH = 100
"""Of the linear classifiers of Table 5, as in the authors' code; the paper does not specify it."""
AUTHORS_RECIPE = Recipe(updates=4_000, halvings=(2_000, 2_500, 3_000, 3_500))
"""Likewise."""
CLASSIFIERS = "pretrained-classifiers"
"""The folder of the encoders, beside the run folders of a data set."""


@dataclass(frozen=True)
class ClassificationRequest:
    """Train encoders to classify the training classes of this pool, by this recipe, on this device."""

    pool: ImagePool
    recipe: Recipe
    device: torch.device
    scale_bug: bool = False
    """Train on pixels from 0 to 255, as the authors' code does on Omniglot and tieredImageNet, although
    they are from 0 to 1 in every test."""
    first: Classification | None = None
    """A cosine classifier, whose images are turned; None: the linear one of the authors' code."""
    checkpoint_seconds: float = CHECKPOINT_SECONDS

    @property
    def batch(self) -> int:
        """Labeled images of an update and run."""
        return BATCH if self.first is None else self.first.batch

    @property
    def copies(self) -> int:
        """How many times each of them is seen in an update."""
        return 1 if self.first is None else self.first.copies


def pretrained(request: ClassificationRequest, seeds: Sequence[int], runs: Path) -> dict[int, Path]:
    """The file of the encoder of each split seed below `runs`, trained now if it is missing."""
    folder = runs / request.pool.name / CLASSIFIERS
    files = {seed: file_of(request, seed, folder) for seed in seeds}
    groups = [seeds] if seeds and request.device.type == "cuda" else [[seed] for seed in seeds]
    groups = [group for group in groups if _unfinished([files[seed] for seed in group])]
    each = request.batch * request.copies
    rows = [
        Row(f"pre-training, from split seed {group[0]}", request.recipe.updates, len(group) * each)
        for group in groups
    ]
    images = images_on(request.pool, request.device) if groups else None
    with fleet_table(rows) as shown:
        for group, row in zip(groups, rows, strict=True):
            for _ in train_together(request, {seed: files[seed] for seed in group}, row, images):
                shown.tell()
    return files


def train_together(
    request: ClassificationRequest, files: Mapping[int, Path], row: Row, images: Tensor | None
) -> Iterator[Event]:
    """Train these seeds as one network and save a file for each, unless another process has done so.

    If only some are missing, all are trained again: they share their checkpoints. It yields while the device
    works, and while another process trains these seeds. `images` are the pool's, on the device; if None,
    each chunk brings its own.
    """
    folder = checkpoint_folder(list(files.values()))
    if not _unfinished(list(files.values())):  # they may be on a read-only disk
        row.begin(request.recipe.updates)
        return
    lock = Lock(folder / run_folder.LOCK_FILE)
    while not lock.acquire():
        yield Event.WAITING
    with lock:
        if all(map(is_whole, files.values())):
            row.begin(request.recipe.updates)
        else:
            yield from _train_alone(request, files, folder, row, images)
        shutil.rmtree(folder, ignore_errors=True)


def _train_alone(
    request: ClassificationRequest,
    files: Mapping[int, Path],
    folder: Path,
    row: Row,
    images: Tensor | None,
) -> Iterator[Event]:
    """The cross-entropy over all training classes, each run on its own labeled split.

    It resumes from the checkpoint in `folder`, if there is one, and saves others there.
    """
    seeds, recipe = list(files), request.recipe
    model = classifier(request, seeds).to(request.device)
    optimizer = loop.build_optimizer(recipe, model)
    draw, names = labeled_batches(request, seeds), [f"split seed {seed}" for seed in seeds]
    fleet = model, optimizer, recipe, names, folder, request.pool, images
    step = loop.resume(folder, model, optimizer, recipe.updates)
    yield from loop.learn(Learner(*fleet, draw, row, request.checkpoint_seconds), step)
    training = read_struct(Training, folder / run_folder.TRAINING_FILE)
    for run, (seed, file) in enumerate(files.items()):
        own = {k: t[run : run + 1] for k, t in model.encoder.state_dict().items()}
        if not is_whole(files[seed]):
            write_json(file.with_suffix(".json"), training)
            write_tensors(file, own, {})


def start_from_classifiers(
    request: TrainingRequest, fleet: ProtoNet, images: Tensor | None, row: Row
) -> Generator[Event, None, Training]:
    """Give each run the encoder that has learned to classify the labeled images of its split.

    Returns how these encoders were trained.
    """
    config, first = request.config, request.config.recipe.first
    assert first is not None
    classifiers = ClassificationRequest(
        request.pool,
        config.recipe.of_classification(first),
        request.device,
        first=first,
        checkpoint_seconds=request.checkpoint_seconds,
    )
    folder = request.classifiers or request.folder / CLASSIFIERS
    seeds = dict.fromkeys(member.split_seed for member in config.members)
    files = {seed: file_of(classifiers, seed, folder) for seed in seeds}
    yield from train_together(classifiers, files, row, images)
    encoders = {s: load_encoder(classifiers, file) for s, file in files.items()}
    states = {seed: encoder.state_dict() for seed, encoder in encoders.items()}
    for name, tensor in fleet.encoder.state_dict().items():
        tensor.copy_(torch.cat([states[member.split_seed][name] for member in config.members]))
    trained = [read_struct(Training, file.with_suffix(".json")) for file in files.values()]
    return joined([part for i, part in enumerate(trained) if part not in trained[:i]])


def untrained(pool: ImagePool, recipe: Recipe, seeds: Sequence[int]) -> ConvEncoder:
    """The encoder before training ("CNN rnd"), the weights of each run drawn from its seed."""
    encoder = ConvEncoder(pool.images.shape[1], recipe.filters, len(seeds), recipe.init_std)
    for run, seed in enumerate(seeds):
        encoder.reset_run(run, torch.Generator().manual_seed(seed))
    return encoder.eval()


def classifier(
    request: ClassificationRequest, seeds: Sequence[int]
) -> LinearClassifier | TurnedClassifier:
    """Untrained, as the request wants it."""
    pool, first = request.pool, request.first
    encoder = untrained(pool, request.recipe, seeds)
    classes = len(pool.of_split("train"))
    features = embedding_features(encoder.filters, pool.images.shape[-2:])
    if first is None:
        white = 1 if request.scale_bug else 255
        return LinearClassifier(encoder, (features, classes), seeds, white)
    quarters = CosineHead(features, QUARTERS, seeds, first.scale) if first.rotation_loss else None
    return TurnedClassifier(
        encoder,
        CosineHead(features, classes, seeds, first.scale),
        quarters,
        first.turned_loss,
        first.rotation_loss,
    )


def labeled_batches(request: ClassificationRequest, seeds: Sequence[int]) -> Draw:
    """Batches of each run's labeled images, their classes, and for a cosine classifier their maps."""
    pool, recipe, batch, copies = request.pool, request.recipe, request.batch, request.copies
    classes, fraction = pool.of_split("train"), recipe.labeled_fraction
    labeled = [labeled_images(labeled_split(classes, fraction, seed)) for seed in seeds]

    def draw(start: int, count: int) -> Chunk:
        taken = np.stack(
            [
                [own[:, batch_indices(own.shape[1], seed, start + e, batch)] for e in range(count)]
                for own, seed in zip(labeled, seeds, strict=True)
            ]
        )  # (R, E, 2, B)
        images, labels = np.tile(taken.transpose(2, 1, 0, 3), copies)  # (E, R, copies B) each
        maps = None
        if request.first is not None and (copies > 1 or examples.changes_images(recipe)):
            of_runs = [examples.image_maps(recipe, seed, start, (count, batch)) for seed in seeds]
            upright = np.stack(of_runs, 1)  # (E, R, B, 2, 3)
            turns = [examples.quarter_turns(np.array(k)) for k in range(copies)]
            turned = [examples.compose(upright, turn) for turn in turns]
            maps = torch.from_numpy(np.concatenate(turned, 2))
        return Chunk(torch.from_numpy(images), maps, labels=torch.from_numpy(labels))

    return draw


def labeled_images(images: ClassImages) -> Indices:
    """(2, I): the labeled images of all classes, and the class of each."""
    label = np.repeat(np.arange(len(images.size)), images.size)
    rank = np.arange(len(images.order)) - images.start[label]  # within its class
    labeled = rank < images.labeled[label]
    return np.stack([images.order[labeled], label[labeled]])


def batch_indices(images: int, seed: int, step: int, batch: int) -> Indices:
    """(B,), which labeled images update `step` takes: epoch after epoch, each in its own order."""
    position = np.arange(step * batch, (step + 1) * batch)
    orders = {
        epoch: epoch_order(images, seed, epoch) for epoch in set((position // images).tolist())
    }
    return np.array([orders[p // images][p % images] for p in position.tolist()])


@lru_cache(maxsize=64)  # an epoch of photographs has a hundred updates
def epoch_order(images: int, seed: int, epoch: int) -> Indices:
    return np.argsort(uniforms(random_words(seed, f"pre-training: epoch {epoch}", 0, images)))


def check_labeled(pool: ImagePool, recipe: Recipe) -> None:
    """Raise an error early if a class has no labeled image."""
    split = labeled_split(pool.of_split("train"), recipe.labeled_fraction, 0)
    poorest = int(split.labeled.argmin())
    if not split.labeled[poorest]:
        raise InputError(
            f"class {split.classes[poorest].name!r} has {split.size[poorest]} images, of which a labeled "
            f"fraction of {recipe.labeled_fraction:g} leaves none to pre-train on"
        )


def file_of(request: ClassificationRequest, seed: int, folder: Path) -> Path:
    """The file of a seed, named after all settings of the training."""
    recipe, first = request.recipe, request.first
    data, batch = request.pool.fingerprint, request.batch
    settings: dict[str, Any] = {"recipe": recipe.changes(), "data": data, "batch": batch}
    settings |= {} if first is None else {"first": asdict(first)}
    digest = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:8]
    bug = "-scale-bug" if request.scale_bug else ""
    return folder / f"seed{seed}-{recipe.updates}updates{bug}-{digest}.safetensors"


def checkpoint_folder(files: Sequence[Path]) -> Path:
    """The folder for the checkpoints of runs that train together, beside their files."""
    digest = hashlib.sha256(" ".join(file.name for file in files).encode()).hexdigest()[:8]
    return files[0].with_name(f"{len(files)}seeds-{digest}")


def _unfinished(files: Sequence[Path]) -> bool:
    """Whether there is something to train, or to clean up after a killed process."""
    return checkpoint_folder(files).exists() or not all(map(is_whole, files))


def load_encoder(request: ClassificationRequest, path: Path) -> ConvEncoder:
    """A fleet of one run."""
    encoder = untrained(request.pool, request.recipe, [0])
    encoder.load_state_dict(read_tensors(path)[0])
    return encoder.to(request.device).eval()
