"""Pre-training: a Conv-4 with a linear head classifies all training classes (Appendix C, "CNN pre").

Letters: R runs, B images of a batch, I labeled images, C classes, D embedding dimensions.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from semishot.checkpoints import is_whole, read_tensors, write_tensors
from semishot.config import Recipe, learning_rate
from semishot.encoder import BLOCKS, ConvEncoder
from semishot.errors import InputError
from semishot.image_pool import ImagePool, Indices
from semishot.progress import Meter, meter
from semishot.splits import ClassImages, labeled_split, random_words, uniforms
from semishot.train import images_on
from semishot.update import set_learning_rate

BATCH = 100
RECIPE = Recipe(updates=4_000, halvings=(2_000, 2_500, 3_000, 3_500))
"""What the authors' code does; the paper does not say."""

__all__ = [
    "BATCH",
    "RECIPE",
    "batch_places",
    "check_labeled",
    "labeled_images",
    "pretrained_encoders",
    "train_classifier",
    "untrained",
]


def untrained(pool: ImagePool, recipe: Recipe, seeds: Sequence[int]) -> ConvEncoder:
    """The encoder before training ("CNN rnd"), the weights of each run drawn from its seed."""
    encoder = ConvEncoder(pool.images.shape[1], recipe.filters, len(seeds), recipe.init_std)
    for run, seed in enumerate(seeds):
        encoder.reset_run(run, torch.Generator().manual_seed(seed))
    return encoder.eval()


def pretrained_encoders(
    pool: ImagePool,
    recipe: Recipe,
    seeds: Sequence[int],
    runs: Path,
    device: torch.device,
    scale_bug: bool = False,
) -> list[ConvEncoder]:
    """One encoder per split seed, from the files below `runs` or trained now and left there.

    `scale_bug` trains on pixels from 0 to 255, as the authors' code does on Omniglot and
    tieredImageNet, although every test has them from 0 to 1.
    """
    paths = [_file(pool, recipe, seed, runs, scale_bug) for seed in seeds]
    missing = [seed for seed, path in zip(seeds, paths, strict=True) if not is_whole(path)]
    side_by_side = len(missing) if device.type == "cuda" else 1
    with meter("pre-training", len(missing) * recipe.updates * BATCH, "images") as progress:
        for first in range(0, len(missing), max(side_by_side, 1)):
            together = missing[first : first + side_by_side]
            fleet = train_classifier(pool, recipe, together, device, progress, scale_bug)
            for run, seed in enumerate(together):
                own = {k: t[run : run + 1] for k, t in fleet.state_dict().items()}
                write_tensors(_file(pool, recipe, seed, runs, scale_bug), own, {})
    return [_load(path, pool, recipe, device) for path in paths]


def train_classifier(
    pool: ImagePool,
    recipe: Recipe,
    seeds: Sequence[int],
    device: torch.device,
    progress: Meter,
    scale_bug: bool = False,
) -> ConvEncoder:
    """Adam on the cross-entropy over all training classes, each run on its own labeled split."""
    classes = pool.of_split("train")
    labeled = [
        labeled_images(labeled_split(classes, recipe.labeled_fraction, seed)) for seed in seeds
    ]
    encoder = untrained(pool, recipe, seeds).to(device).train()
    head = LinearHead(encoder, len(classes), pool.images.shape[-2:], seeds).to(device)
    decayed, others = list(encoder.weights), [*encoder.scales, *encoder.shifts, *head.parameters()]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": recipe.weight_decay},
        {"params": others},
    ]
    optimizer = torch.optim.Adam(groups)
    images = images_on(pool, device)

    def pool_pixels(places: Indices) -> Tensor:
        return torch.from_numpy(pool.images[places])

    for step in range(recipe.updates):
        set_learning_rate(optimizer, learning_rate(recipe, step))
        places = [batch_places(labeled[run].shape[1], s, step) for run, s in enumerate(seeds)]
        taken = np.stack([own[:, place] for own, place in zip(labeled, places, strict=True)])
        chosen, truth = torch.from_numpy(taken).to(device).unbind(1)  # (R, B), (R, B)
        pixels = pool_pixels(taken[:, 0]) if images is None else images[chosen]  # (R, B, C, H, W)
        pixels = pixels.to(device).float() / (1 if scale_bug else 255)
        features = encoder.plain_forward(pixels).reshape(BATCH, len(seeds), -1).transpose(0, 1)
        scores = head(features)  # (R, B, C)
        loss = F.cross_entropy(scores.flatten(0, 1), truth.flatten(), reduction="sum") / BATCH
        optimizer.zero_grad()
        loss.backward()  # the runs share no parameter: the sum trains each on its own
        optimizer.step()
        note = f"loss {loss.item() / len(seeds):.3f}" if step % 100 == 0 else ""
        progress.advance(len(seeds) * BATCH, note)
    return encoder.eval()


class LinearHead(nn.Module):
    """(R, B, D) -> (R, B, C), one linear layer per run; thrown away after training."""

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
    """An error before the work: every class must have something to learn it from."""
    split = labeled_split(pool.of_split("train"), recipe.labeled_fraction, 0)
    poorest = int(split.labeled.argmin())
    if not split.labeled[poorest]:
        raise InputError(
            f"class {split.classes[poorest].name!r} has {split.size[poorest]} images, of which a labeled "
            f"fraction of {recipe.labeled_fraction:g} leaves none to pre-train on"
        )


def _file(pool: ImagePool, recipe: Recipe, seed: int, runs: Path, scale_bug: bool) -> Path:
    """Named after all that decides the training."""
    settings: dict[str, Any] = {
        "recipe": recipe.changes(),
        "data": pool.fingerprint,
        "batch": BATCH,
    }
    digest = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:8]
    bug = "-scale-bug" if scale_bug else ""
    name = f"seed{seed}-{recipe.updates}updates{bug}-{digest}.safetensors"
    return runs / pool.name / "pretrained-classifiers" / name


def _load(path: Path, pool: ImagePool, recipe: Recipe, device: torch.device) -> ConvEncoder:
    encoder = untrained(pool, recipe, [0])
    encoder.load_state_dict(read_tensors(path)[0])
    return encoder.to(device).eval()
