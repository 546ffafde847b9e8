"""Pre-training: a Conv-4 with a linear head classifies all training classes (Appendix C, "CNN pre").

Letters: R runs, B images of a batch, I labeled images, C classes, D embedding dimensions.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
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
from semishot.system.locks import Lock
from semishot.system.progress import Meter, meter
from semishot.system.tensor_files import is_whole, read_tensors, write_tensors
from semishot.training import loop
from semishot.training.checkpoints import LOCK
from semishot.training.config import Recipe, learning_rate
from semishot.training.update import same_algorithms, set_learning_rate

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
    "train_together",
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
    files = {seed: _file(pool, recipe, seed, runs, scale_bug) for seed in seeds}
    together = max(1, len(seeds)) if device.type == "cuda" else 1
    groups = [seeds[first : first + together] for first in range(0, len(seeds), together)]
    groups = [group for group in groups if _unfinished([files[seed] for seed in group])]
    images = sum(map(len, groups)) * recipe.updates * BATCH
    with meter("pre-training", images, "images") as progress:
        for group in groups:
            own = {seed: files[seed] for seed in group}
            train_together(pool, recipe, own, device, progress, scale_bug)
    return [_load(files[seed], pool, recipe, device) for seed in seeds]


def train_together(
    pool: ImagePool,
    recipe: Recipe,
    files: Mapping[int, Path],
    device: torch.device,
    progress: Meter,
    scale_bug: bool,
) -> None:
    """Train these seeds as one fleet and leave the file of each, unless another process has meanwhile.

    If only some are missing, all are trained again: their checkpoints are of all of them.
    """
    seeds, folder = list(files), checkpoint_folder(list(files.values()))
    with Lock(_lock(folder)):
        missing = [seed for seed in seeds if not is_whole(files[seed])]
        if missing:
            with same_algorithms():
                fleet = train_classifier(pool, recipe, seeds, folder, device, progress, scale_bug)
            for seed in missing:
                run = seeds.index(seed)
                own = {k: t[run : run + 1] for k, t in fleet.state_dict().items()}
                write_tensors(files[seed], own, {})
        else:
            progress.skip(len(seeds) * recipe.updates * BATCH)
        shutil.rmtree(folder, ignore_errors=True)


def train_classifier(
    pool: ImagePool,
    recipe: Recipe,
    seeds: Sequence[int],
    folder: Path,
    device: torch.device,
    progress: Meter,
    scale_bug: bool = False,
) -> ConvEncoder:
    """Adam on the cross-entropy over all training classes, each run on its own labeled split.

    It goes on from the checkpoint in `folder`, if there is one, and keeps others there.
    """
    classes = pool.of_split("train")
    labeled = [
        labeled_images(labeled_split(classes, recipe.labeled_fraction, seed)) for seed in seeds
    ]
    encoder = untrained(pool, recipe, seeds).to(device).train()
    head = LinearHead(encoder, len(classes), pool.images.shape[-2:], seeds).to(device)
    model = nn.ModuleDict({"encoder": encoder, "head": head})
    decayed, others = list(encoder.weights), [*encoder.scales, *encoder.shifts, *head.parameters()]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": recipe.weight_decay},
        {"params": others},
    ]
    optimizer = torch.optim.Adam(groups)
    images = loop.images_on(pool, device)
    step = loop.resume(folder, model, optimizer, recipe.updates)
    progress.skip(step * len(seeds) * BATCH)
    between_looks = loop.CHUNK if device.type == "cuda" else loop.CPU_CHUNK
    saved, note = time.monotonic(), ""
    while step < recipe.updates:
        set_learning_rate(optimizer, learning_rate(recipe, step))
        places = [batch_places(labeled[run].shape[1], s, step) for run, s in enumerate(seeds)]
        taken = np.stack([own[:, place] for own, place in zip(labeled, places, strict=True)])
        chosen, truth = torch.from_numpy(taken).to(device).unbind(1)  # (R, B), (R, B)
        held = torch.from_numpy(pool.images[taken[:, 0]]) if images is None else images[chosen]
        pixels = held.to(device).float() / (1 if scale_bug else 255)  # (R, B, C, H, W)
        features = encoder.plain_forward(pixels).reshape(BATCH, len(seeds), -1).transpose(0, 1)
        scores = head(features)  # (R, B, C)
        loss = F.cross_entropy(scores.flatten(0, 1), truth.flatten(), reduction="none")
        loss = loss.view(len(seeds), BATCH).mean(1)  # (R,)
        optimizer.zero_grad()
        loss.sum().backward()  # the runs share no parameter: the sum trains each on its own
        optimizer.step()
        step += 1
        progress.advance(len(seeds) * BATCH, note)
        if step % between_looks == 0 or step == recipe.updates:
            check_finite(model, loss, seeds, recipe, step, folder)
            note = f"loss {loss.mean().item():.3f}"
            if time.monotonic() - saved > loop.CHECKPOINT_SECONDS:
                loop.save_checkpoint(folder, model, optimizer, step)
                saved = time.monotonic()
    return encoder.eval()


def check_finite(
    model: nn.Module, loss: Tensor, seeds: Sequence[int], recipe: Recipe, step: int, folder: Path
) -> None:
    """Before anything is saved: the loss and the weights of each run are numbers."""
    sums = [tensor.reshape(len(seeds), -1).sum(1) for tensor in model.state_dict().values()]
    numbers = torch.stack([loss.detach(), *sums]).sum(0)  # (R,)
    if not numbers.isfinite().all():
        runs = [f"split seed {seed}" for seed in seeds]
        raise loop.diverged(runs, numbers, recipe, step, folder)


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


def checkpoint_folder(files: Sequence[Path]) -> Path:
    """For the checkpoints of the runs that train together, beside their files and named after them."""
    digest = hashlib.sha256(" ".join(file.name for file in files).encode()).hexdigest()[:8]
    return files[0].with_name(f"{len(files)}seeds-{digest}")


def _lock(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{LOCK}")


def _unfinished(files: Sequence[Path]) -> bool:
    """Whether there is something to train, or to tidy up after a killed process."""
    folder = checkpoint_folder(files)
    leftovers = folder.exists() or _lock(folder).exists()
    return leftovers or not all(map(is_whole, files))


def _load(path: Path, pool: ImagePool, recipe: Recipe, device: torch.device) -> ConvEncoder:
    encoder = untrained(pool, recipe, [0])
    encoder.load_state_dict(read_tensors(path)[0])
    return encoder.to(device).eval()
