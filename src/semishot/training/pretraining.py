"""Pre-training: a Conv-4 with a linear head classifies all training classes (Appendix C, "CNN pre").

Letters: R runs, E updates, B images of a batch, I labeled images, N classes, C channels, H x W pixels,
D embedding dimensions.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from semishot.data.pool import ImagePool, Indices
from semishot.data.splits import ClassImages, labeled_split, random_words, uniforms
from semishot.errors import InputError
from semishot.network.encoder import BLOCKS, ConvEncoder
from semishot.system.devices import device_name
from semishot.system.files import write_json
from semishot.system.locks import Lock
from semishot.system.open_files import read_json
from semishot.system.progress import Meter, meter
from semishot.system.tensor_files import is_whole, read_tensors, write_tensors
from semishot.training import loop
from semishot.training.checkpoints import LOCK_FILE
from semishot.training.chunks import Draw, Drawn, Pace, draw_chunks, images_on, updates_that_fit
from semishot.training.config import Recipe
from semishot.training.origin import TRAINING_FILE, Sessions, Training, training_of
from semishot.training.update import deterministic_cudnn, plain_chunk

BATCH = 100
RECIPE = Recipe(updates=4_000, halvings=(2_000, 2_500, 3_000, 3_500))
"""As in the authors' code; the paper does not specify it."""

__all__ = [
    "BATCH",
    "RECIPE",
    "Pretraining",
    "batch_places",
    "check_labeled",
    "labeled_images",
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
    files = {seed: _file(request, seed, runs) for seed in seeds}
    together = max(1, len(seeds)) if request.device.type == "cuda" else 1
    groups = [seeds[first : first + together] for first in range(0, len(seeds), together)]
    groups = [group for group in groups if _unfinished([files[seed] for seed in group])]
    images = sum(map(len, groups)) * request.recipe.updates * BATCH
    with meter("pre-training", images, "images") as progress:
        for group in groups:
            train_together(request, {seed: files[seed] for seed in group}, progress)
    return [_load(request, files[seed]) for seed in seeds]


def train_together(request: Pretraining, files: Mapping[int, Path], progress: Meter) -> None:
    """Train these seeds as one network and save a file for each, unless another process has done so.

    If only some are missing, all are trained again: they share their checkpoints.
    """
    seeds, folder = list(files), checkpoint_folder(list(files.values()))
    with Lock(_lock(folder)):
        missing = [seed for seed in seeds if not is_whole(files[seed])]
        if missing:
            encoders = train_classifiers(request, seeds, folder, progress)
            sessions = read_json(folder / TRAINING_FILE)
            for seed in missing:
                run = seeds.index(seed)
                own = {k: t[run : run + 1] for k, t in encoders.state_dict().items()}
                write_json(files[seed].with_suffix(".json"), sessions)
                write_tensors(files[seed], own, {})
        else:
            progress.skip(len(seeds) * request.recipe.updates * BATCH)
        shutil.rmtree(folder, ignore_errors=True)


def train_classifiers(
    request: Pretraining, seeds: Sequence[int], folder: Path, progress: Meter
) -> ConvEncoder:
    """Adam on the cross-entropy over all training classes, each run on its own labeled split.

    It resumes from the checkpoint in `folder`, if there is one, and saves others there.
    """
    pool, recipe, device = request.pool, request.recipe, request.device
    encoder = untrained(pool, recipe, seeds).train()
    head = LinearHead(encoder, len(pool.of_split("train")), pool.images.shape[-2:], seeds)
    model = Classifier(encoder, head, 1 if request.scale_bug else 255).to(device)
    optimizer = loop.build_optimizer(recipe, encoder, model, captured=False)
    step = loop.resume(folder, model, optimizer, recipe.updates)
    every = loop.CHUNK if device.type == "cuda" else loop.CPU_CHUNK
    images, batch = images_on(pool, device), len(seeds) * BATCH
    pace = Pace(every, every if images is not None else updates_that_fit(every, batch, pool))
    names = [f"split seed {seed}" for seed in seeds]
    learner = loop.Learner(model, optimizer, recipe, names, folder, pace)
    brought = pool if images is None else None
    chunks = draw_chunks(labeled_batches(pool, recipe, seeds), recipe, step, pace, brought)
    run_chunk = plain_chunk(model, optimizer, images)
    observer, sessions = MeterObserver(progress, batch), Sessions(folder, device_name(device))
    with deterministic_cudnn():
        for event in loop.learn(learner, step, chunks, lambda _: run_chunk, observer):
            if event is loop.Event.SAVED:
                sessions.save()
    sessions.save()
    return encoder.eval()


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


class Classifier(nn.Module):
    """R encoders, each with a linear head over the training classes."""

    def __init__(self, encoder: ConvEncoder, head: "LinearHead", white: int) -> None:
        """`white` is the pixel value that the encoders see as 1."""
        super().__init__()
        self.encoder, self.head, self.white = encoder, head, white

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """uint8 (R, B, C, H, W), (R, B) -> (R,), each run's mean cross-entropy."""
        runs, batch = labels.shape
        pixels = images.to(self.encoder.weights[0].dtype) / self.white
        features = self.encoder.plain_forward(pixels).reshape(batch, runs, -1).transpose(0, 1)
        scores = self.head(features)  # (R, B, N)
        loss = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none")
        return loss.view(runs, batch).mean(1)


class LinearHead(nn.Module):
    """(R, B, D) -> (R, B, N), one linear layer per run; discarded after training."""

    def __init__(
        self, encoder: ConvEncoder, classes: int, size: Sequence[int], seeds: Sequence[int]
    ) -> None:
        super().__init__()
        height, width = (side // 2**BLOCKS for side in size)
        self.weight = nn.Parameter(
            torch.empty(len(seeds), encoder.filters * height * width, classes)
        )
        self.bias = nn.Parameter(torch.zeros(len(seeds), 1, classes))
        for weight, seed in zip(self.weight, seeds, strict=True):
            generator = torch.Generator().manual_seed(seed)
            nn.init.trunc_normal_(weight, std=0.01, a=-0.02, b=0.02, generator=generator)

    def forward(self, features: Tensor) -> Tensor:
        return features @ self.weight + self.bias


def labeled_batches(pool: ImagePool, recipe: Recipe, seeds: Sequence[int]) -> Draw:
    """Batches of each run's labeled images, and their classes."""
    classes, fraction = pool.of_split("train"), recipe.labeled_fraction
    labeled = [labeled_images(labeled_split(classes, fraction, seed)) for seed in seeds]

    def draw(start: int, count: int) -> Drawn:
        taken = np.stack(
            [
                [own[:, batch_places(own.shape[1], seed, start + e)] for e in range(count)]
                for own, seed in zip(labeled, seeds, strict=True)
            ]
        )  # (R, E, 2, B)
        images, labels = np.ascontiguousarray(taken.transpose(2, 1, 0, 3))  # (E, R, B) each
        return Drawn(images, labels=torch.from_numpy(labels))

    return draw


def labeled_images(images: ClassImages) -> Indices:
    """(2, I): the labeled images of all classes, and the class of each."""
    label = np.repeat(np.arange(len(images.size)), images.size)
    rank = np.arange(len(images.order)) - images.start[label]  # within its class
    labeled = rank < images.labeled[label]
    return np.stack([images.order[labeled], label[labeled]])


def batch_places(images: int, seed: int, step: int) -> Indices:
    """(B,), which labeled images update `step` takes: epoch after epoch, each in its own order."""
    position = np.arange(step * BATCH, (step + 1) * BATCH)
    orders = {
        epoch: np.argsort(uniforms(random_words(seed, f"pre-training: epoch {epoch}", 0, images)))
        for epoch in np.unique(position // images)
    }
    return np.array([orders[p // images][p % images] for p in position])


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
    return training_of(_file(request, seed, runs).with_suffix(".json"))


def _file(request: Pretraining, seed: int, runs: Path) -> Path:
    """The file of a seed, named after all settings of the training."""
    pool, recipe = request.pool, request.recipe
    settings: dict[str, Any] = {
        "recipe": recipe.changes(),
        "data": pool.fingerprint,
        "batch": BATCH,
    }
    digest = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:8]
    bug = "-scale-bug" if request.scale_bug else ""
    name = f"seed{seed}-{recipe.updates}updates{bug}-{digest}.safetensors"
    return runs / pool.name / "pretrained-classifiers" / name


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


def _load(request: Pretraining, path: Path) -> ConvEncoder:
    encoder = untrained(request.pool, request.recipe, [0])
    encoder.load_state_dict(read_tensors(path)[0])
    return encoder.to(request.device).eval()
