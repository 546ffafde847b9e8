"""An encoder with a head learns to classify all training classes (Appendix C, "CNN pre").

Letters: R runs, E updates, B images of a batch, I labeled images.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from semishot.data.pool import ImagePool
from semishot.data.splits import labeled_split
from semishot.errors import InputError
from semishot.network.classifier import (
    QUARTERS,
    CosineHead,
    LinearClassifier,
    LinearHead,
    TurnedClassifier,
)
from semishot.network.encoder import ConvEncoder, embedding_features
from semishot.system.devices import device_name
from semishot.training import loop
from semishot.training.augment import compose, quarter_turns
from semishot.training.batches import BATCH, batch_places, labeled_images
from semishot.training.chunks import (
    Draw,
    Drawn,
    Pace,
    changes_images,
    draw_chunks,
    image_maps,
    updates_that_fit,
)
from semishot.training.config import Classification, Recipe
from semishot.training.loop import Event
from semishot.training.origin import Sessions
from semishot.training.update import (
    Chunk,
    RunChunk,
    can_fuse,
    chunk_runner,
    deterministic_cudnn,
    plain_chunk,
)

AUTHORS_RECIPE = Recipe(updates=4_000, halvings=(2_000, 2_500, 3_000, 3_500))
"""Of the linear classifiers of Table 5, as in the authors' code; the paper does not specify it."""


@dataclass(frozen=True)
class ClassificationRequest:
    """Train encoders to classify the training classes of this pool, by this recipe, on this device.

    Which split seeds, and where to keep them, is said apart: their files are named after these settings.
    """

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


def train_classifiers(
    request: ClassificationRequest,
    seeds: Sequence[int],
    folder: Path,
    observer: loop.Observer,
    images: Tensor | None,
) -> Generator[Event, None, ConvEncoder]:
    """The cross-entropy over all training classes, each run on its own labeled split.

    It resumes from the checkpoint in `folder`, if there is one, and saves others there. `images` are the
    pool's, on the device; if None, each chunk brings its own.
    """
    pool, recipe, device = request.pool, request.recipe, request.device
    model = classifier(request, seeds).to(device).train()
    captured = isinstance(model, TurnedClassifier) and device.type == "cuda"
    optimizer = loop.build_optimizer(recipe, model.encoder, model, captured)
    step = loop.resume(folder, model, optimizer, recipe.updates)
    every = loop.CHUNK if device.type == "cuda" else loop.CPU_CHUNK
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
    def run(chunk: Chunk) -> Callable[[], Tensor]:
        with deterministic_cudnn():
            return run_chunk(chunk)

    return run


def classifier(
    request: ClassificationRequest, seeds: Sequence[int]
) -> LinearClassifier | TurnedClassifier:
    """Untrained, as the request wants it."""
    pool, first = request.pool, request.first
    encoder = untrained(pool, request.recipe, seeds)
    classes = len(pool.of_split("train"))
    features = embedding_features(encoder.filters, pool.images.shape[-2:])
    if first is None:
        head = LinearHead(features, classes, seeds)
        return LinearClassifier(encoder, head, 1 if request.scale_bug else 255)
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
