"""Pre-training: an encoder with a head classifies all training classes (Appendix C, "CNN pre").

Table 5 needs the features of such encoders, and a fleet may start from them. Letters: R runs, E updates, B
images of a batch, I labeled images.
"""

import hashlib
import json
import shutil
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from semishot.data.pool import ImagePool
from semishot.data.splits import labeled_split
from semishot.errors import InputError
from semishot.network.classifier import CosineHead, LinearClassifier, LinearHead, TurnedClassifier
from semishot.network.encoder import ConvEncoder, embedding_features
from semishot.system.devices import device_name
from semishot.system.files import write_json
from semishot.system.locks import Lock
from semishot.system.open_files import read_json
from semishot.system.progress import Meter, meter
from semishot.system.tensor_files import is_whole, read_tensors, write_tensors
from semishot.training import loop
from semishot.training.augment import compose, quarter_turns
from semishot.training.batches import BATCH, batch_places, labeled_images
from semishot.training.checkpoints import LOCK_FILE
from semishot.training.chunks import (
    Draw,
    Drawn,
    Pace,
    changes_images,
    draw_chunks,
    image_maps,
    images_on,
    updates_that_fit,
)
from semishot.training.config import Classification, Recipe
from semishot.training.loop import Event
from semishot.training.origin import (
    TRAINING_FILE,
    Session,
    Sessions,
    Training,
    read_sessions,
    training_of,
)
from semishot.training.update import (
    Chunk,
    RunChunk,
    can_fuse,
    chunk_runner,
    deterministic_cudnn,
    plain_chunk,
)

RECIPE = Recipe(updates=4_000, halvings=(2_000, 2_500, 3_000, 3_500))
"""As in the authors' code; the paper does not specify it."""
CLASSIFIERS = "pretrained-classifiers"
"""The folder of the encoders, beside the run folders of a data set."""

__all__ = [
    "BATCH",
    "CLASSIFIERS",
    "RECIPE",
    "Pretraining",
    "batch_places",
    "check_labeled",
    "file_of",
    "labeled_images",
    "load_encoder",
    "pretrained_encoders",
    "train_classifiers",
    "train_together",
    "training_of_encoder",
    "untrained",
]


@dataclass(frozen=True)
class Pretraining:
    """The settings of a pre-training, apart from its seeds."""

    pool: ImagePool
    recipe: Recipe
    device: torch.device
    scale_bug: bool = False
    """Train on pixels from 0 to 255, as the authors' code does on Omniglot and tieredImageNet, although
    they are from 0 to 1 in every test."""
    first: Classification | None = None
    """A cosine classifier, whose images are turned; None: the linear one of the authors' code."""
    checkpoint_seconds: float | None = None
    """The least time from one checkpoint to the next; None is `loop.CHECKPOINT_SECONDS`."""

    @property
    def batch(self) -> int:
        """Labeled images of an update and run."""
        return BATCH if self.first is None else self.first.batch

    @property
    def images(self) -> int:
        """Images of an update and run, with turned copies."""
        return self.batch if self.first is None else self.batch * self.first.copies


def untrained(pool: ImagePool, recipe: Recipe, seeds: Sequence[int]) -> ConvEncoder:
    """The encoder before training ("CNN rnd"), the weights of each run drawn from its seed."""
    encoder = ConvEncoder(pool.images.shape[1], recipe.filters, len(seeds), recipe.init_std)
    for run, seed in enumerate(seeds):
        encoder.reset_run(run, torch.Generator().manual_seed(seed))
    return encoder.eval()


def pretrained_encoders(
    request: Pretraining, seeds: Sequence[int], runs: Path
) -> list[ConvEncoder]:
    """One encoder per split seed, read from the files below `runs`, or trained now and saved there."""
    folder = runs / request.pool.name / CLASSIFIERS
    files = {seed: file_of(request, seed, folder) for seed in seeds}
    together = max(1, len(seeds)) if request.device.type == "cuda" else 1
    groups = [seeds[first : first + together] for first in range(0, len(seeds), together)]
    groups = [group for group in groups if _unfinished([files[seed] for seed in group])]
    images = sum(map(len, groups)) * request.recipe.updates * request.images
    with meter("pre-training", images, "images") as progress:
        for group in groups:
            own = {seed: files[seed] for seed in group}
            observer = MeterObserver(progress, len(group) * request.images)
            for _ in train_together(request, own, observer):
                pass
    return [load_encoder(request, files[seed]) for seed in seeds]


def train_together(
    request: Pretraining,
    files: Mapping[int, Path],
    observer: loop.Observer,
    images: Tensor | None = None,
) -> Iterator[Event]:
    """Train these seeds as one network and save a file for each, unless another process has done so.

    If only some are missing, all are trained again: they share their checkpoints. It yields while the device
    works, and while another process trains these seeds. `images` are the pool's, if they are on the device.
    """
    seeds, folder = list(files), checkpoint_folder(list(files.values()))
    if not _unfinished(list(files.values())):  # they may be on a read-only disk
        observer.begin(request.recipe.updates)
        return
    lock = Lock(_lock(folder))
    while not lock.acquire():
        yield Event.WAITING
    with lock:
        if all(map(is_whole, files.values())):
            observer.begin(request.recipe.updates)
        else:
            encoders = yield from train_classifiers(request, seeds, folder, observer, images)
            sessions = read_json(folder / TRAINING_FILE)
            for run, seed in enumerate(seeds):
                own = {k: t[run : run + 1] for k, t in encoders.state_dict().items()}
                if not is_whole(files[seed]):
                    write_json(files[seed].with_suffix(".json"), sessions)
                    write_tensors(files[seed], own, {})
        shutil.rmtree(folder, ignore_errors=True)


def train_classifiers(
    request: Pretraining,
    seeds: Sequence[int],
    folder: Path,
    observer: loop.Observer,
    images: Tensor | None = None,
) -> Generator[Event, None, ConvEncoder]:
    """The cross-entropy over all training classes, each run on its own labeled split.

    It resumes from the checkpoint in `folder`, if there is one, and saves others there.
    """
    pool, recipe, device = request.pool, request.recipe, request.device
    model = classifier(request, seeds).to(device).train()
    captured = isinstance(model, TurnedClassifier) and device.type == "cuda"
    optimizer = loop.build_optimizer(recipe, model.encoder, model, captured)
    step = loop.resume(folder, model, optimizer, recipe.updates)
    every = loop.CHUNK if device.type == "cuda" else loop.CPU_CHUNK
    images = images_on(pool, device) if images is None else images
    together = len(seeds) * request.images
    pace = Pace(every, every if images is not None else updates_that_fit(every, together, pool))
    names = [f"split seed {seed}" for seed in seeds]
    seconds = request.checkpoint_seconds
    sessions = Sessions(folder, device_name(device), resumed=step > 0)
    learner = loop.Learner(model, optimizer, recipe, names, folder, pace, seconds, sessions)
    brought = pool if images is None else None
    chunks = draw_chunks(labeled_batches(request, seeds), recipe, step, pace, brought)

    def prepare(first: Chunk) -> RunChunk:
        if isinstance(model, LinearClassifier):
            return deterministic(plain_chunk(model, optimizer, images))
        model.encoder.fused = recipe.precision == "bf16" and can_fuse(
            device, pool.images.shape[-2:], recipe.filters
        )
        return chunk_runner(model, optimizer, images, None, first)

    yield from loop.learn(learner, step, chunks, prepare, observer)
    return model.encoder.eval()


def deterministic(run_chunk: RunChunk) -> RunChunk:
    def run(chunk: Chunk) -> Any:
        with deterministic_cudnn():
            return run_chunk(chunk)

    return run


def classifier(request: Pretraining, seeds: Sequence[int]) -> LinearClassifier | TurnedClassifier:
    """Untrained, as the request wants it."""
    pool, first = request.pool, request.first
    encoder = untrained(pool, request.recipe, seeds)
    classes = len(pool.of_split("train"))
    features = embedding_features(encoder.filters, pool.images.shape[-2:])
    if first is None:
        head = LinearHead(features, classes, seeds)
        return LinearClassifier(encoder, head, 1 if request.scale_bug else 255)
    quarters = CosineHead(features, 4, seeds, first.scale) if first.rotation_loss else None
    return TurnedClassifier(
        encoder,
        CosineHead(features, classes, seeds, first.scale),
        quarters,
        first.turned_loss,
        first.rotation_loss,
    )


@dataclass(frozen=True)
class MeterObserver:
    """Counts the images of a pre-training: see `loop.Observer`."""

    meter: Meter
    batch: int
    """Images of an update, over all runs."""

    def begin(self, step: int) -> None:
        self.meter.skip(step * self.batch)

    def advance(self, updates: int, loss: float) -> None:
        self.meter.advance(updates * self.batch, f"loss {loss:.3f}")

    def line(self, step: int, rate: float, losses: Sequence[float]) -> None:
        """There is no log."""


def labeled_batches(request: Pretraining, seeds: Sequence[int]) -> Draw:
    """Batches of each run's labeled images, their classes, and for a cosine classifier their maps."""
    pool, recipe, batch = request.pool, request.recipe, request.batch
    classes, fraction = pool.of_split("train"), recipe.labeled_fraction
    labeled = [labeled_images(labeled_split(classes, fraction, seed)) for seed in seeds]
    copies = 1 if request.first is None else request.first.copies

    def draw(start: int, count: int) -> Drawn:
        taken = np.stack(
            [
                [own[:, batch_places(own.shape[1], seed, start + e, batch)] for e in range(count)]
                for own, seed in zip(labeled, seeds, strict=True)
            ]
        )  # (R, E, 2, B)
        images, labels = np.tile(taken.transpose(2, 1, 0, 3), copies)  # (E, R, copies B) each
        maps = None
        if request.first is not None and (copies > 1 or changes_images(recipe)):
            of_runs = [image_maps(recipe, seed, start, (count, batch)) for seed in seeds]
            upright = np.stack(of_runs, 1)  # (E, R, B, 2, 3)
            turned = [compose(upright, quarter_turns(np.array(k))) for k in range(copies)]
            maps = torch.from_numpy(np.concatenate(turned, 2))
        return Drawn(images, maps, torch.from_numpy(labels))

    return draw


def check_labeled(pool: ImagePool, recipe: Recipe) -> None:
    """Raise an error early if a class has no labeled image."""
    split = labeled_split(pool.of_split("train"), recipe.labeled_fraction, 0)
    poorest = int(split.labeled.argmin())
    if not split.labeled[poorest]:
        raise InputError(
            f"class {split.classes[poorest].name!r} has {split.size[poorest]} images, of which a labeled "
            f"fraction of {recipe.labeled_fraction:g} leaves none to pre-train on"
        )


def training_of_encoder(request: Pretraining, seed: int, runs: Path) -> dict[str, Training]:
    """`training` of a record with the encoder of this seed."""
    folder = runs / request.pool.name / CLASSIFIERS
    return training_of(file_of(request, seed, folder).with_suffix(".json"))


def sessions_of(files: Iterable[Path]) -> list[Session]:
    """The sessions that trained these encoders, each once."""
    held = [session for file in files for session in read_sessions(file.with_suffix(".json"))]
    return [session for place, session in enumerate(held) if session not in held[:place]]


def file_of(request: Pretraining, seed: int, folder: Path) -> Path:
    """The file of a seed, named after all settings of the training."""
    recipe, first = request.recipe, request.first
    settings: dict[str, Any] = {
        "recipe": recipe.changes(),
        "data": request.pool.fingerprint,
        "batch": request.batch,
    }
    settings |= {} if first is None else {"first": asdict(first)}
    digest = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:8]
    bug = "-scale-bug" if request.scale_bug else ""
    return folder / f"seed{seed}-{recipe.updates}updates{bug}-{digest}.safetensors"


def checkpoint_folder(files: Sequence[Path]) -> Path:
    """The folder for the checkpoints of runs that train together, beside their files."""
    digest = hashlib.sha256(" ".join(file.name for file in files).encode()).hexdigest()[:8]
    return files[0].with_name(f"{len(files)}seeds-{digest}")


def _lock(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{LOCK_FILE}")


def _unfinished(files: Sequence[Path]) -> bool:
    """Whether there is something to train, or to clean up after a killed process."""
    folder = checkpoint_folder(files)
    leftovers = folder.exists() or _lock(folder).exists()
    return leftovers or not all(map(is_whole, files))


def load_encoder(request: Pretraining, path: Path) -> ConvEncoder:
    """A fleet of one run."""
    encoder = untrained(request.pool, request.recipe, [0])
    encoder.load_state_dict(read_tensors(path)[0])
    return encoder.to(request.device).eval()
