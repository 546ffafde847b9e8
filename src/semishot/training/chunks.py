"""The inputs of a chunk of updates: image indices, their maps or labels, learning rates, pixels.

Letters: R runs, E updates, B images of an update and run, I images.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from semishot.data.episodes import EpisodeShape, draws
from semishot.data.pool import ImagePool, Indices, gather
from semishot.data.splits import labeled_split
from semishot.training.augment import compose, quarter_turns, sample_crops, sample_maps
from semishot.training.config import FleetConfig, Recipe, learning_rate
from semishot.training.episode_streams import EpisodeStreams
from semishot.training.update import Chunk

HELD_BY_A_CPU = 2**31
"""Bytes of the largest pool that is copied to a CPU's memory."""
CHUNK_BYTES = 2**28
"""Bytes of images in a chunk if the device does not hold the pool."""


@dataclass(frozen=True)
class Pace:
    """How many updates are done at a time."""

    every: int
    """Updates from one line of the log to the next; checkpoints are saved there."""
    most: int
    """Updates in a chunk."""


@dataclass(frozen=True)
class Drawn:
    """The examples of E updates."""

    images: Indices
    """(E, R, B), indices into the pool."""
    maps: Tensor | None = None
    """(E, R, B, 2, 3), an affine map for each image."""
    labels: Tensor | None = None
    """(E, R, B), the class of each image, for a classifier."""
    distractors: Tensor | None = None
    """(E, R), 1 where distractors take part; None: everywhere."""


Maps = NDArray[np.float32]
Draw = Callable[[int, int], Drawn]
"""The examples of updates start .. start + count."""


def draw_chunks(
    draw: Draw, recipe: Recipe, step: int, pace: Pace, brought: ImagePool | None
) -> Iterator[Chunk]:
    """The chunks from update `step` on; no chunk crosses a line of the log.

    A chunk includes its images if a pool to take them from is given.
    """
    while step < recipe.updates:
        count = min(pace.most, pace.every - step % pace.every, recipe.updates - step)
        drawn = draw(step, count)
        images, pixels = drawn.images, None
        if brought is not None:
            places, within = np.unique(images, return_inverse=True)
            images, pixels = within.reshape(images.shape), pixels_of(brought, places)
        rates = [learning_rate(recipe, step + e) for e in range(count)]
        yield Chunk(
            torch.from_numpy(images), drawn.maps, rates, pixels, drawn.labels, drawn.distractors
        )
        step += count


def training_episodes(config: FleetConfig, pool: ImagePool) -> Draw:
    """Every run's episodes from its own labeled split and its own stream, and their maps."""
    recipe, shape = config.recipe, config.shape
    seeds = [member.split_seed for member in config.members]
    train = pool.of_split("train")
    fraction = recipe.labeled_fraction
    splits = {seed: labeled_split(train, fraction, seed) for seed in dict.fromkeys(seeds)}
    streams = EpisodeStreams(splits, seeds, shape, "train")

    def draw(start: int, count: int) -> Drawn:
        images = np.ascontiguousarray(streams.draw(start, count).swapaxes(0, 1))  # (E, R, B)
        maps: dict[int, Maps] = {}
        if changes_images(recipe):
            maps = {seed: episode_maps(recipe, shape, seed, start, count) for seed in splits}
        present: dict[int, NDArray[np.float32]] = {}
        if recipe.with_distractors < 1 and shape.distractors:
            present = {
                seed: (
                    draws(seed, "train: with distractors", start, count, 1)[:, 0]
                    < recipe.with_distractors
                ).astype(np.float32)
                for seed in splits
            }
        of_maps, of_distractors = (
            torch.from_numpy(np.stack([held[seed] for seed in seeds], axis=1)) if held else None
            for held in (maps, present)
        )
        return Drawn(images, of_maps, distractors=of_distractors)

    return draw


def changes_images(recipe: Recipe) -> bool:
    return bool(recipe.augment or recipe.mirror or recipe.crop < 1 or recipe.turned)


def image_maps(recipe: Recipe, seed: int, start: int, size: tuple[int, int]) -> Maps:
    """(E, B, 2, 3): what a recipe does to each of `size` = (E, B) images, apart from quarter turns."""
    maps = sample_maps(recipe.augment, seed, start, size, recipe.mirror)
    if recipe.crop == 1:
        return maps
    return compose(sample_crops(recipe.crop, seed, start, size), maps)


def episode_maps(recipe: Recipe, shape: EpisodeShape, seed: int, start: int, count: int) -> Maps:
    """(E, B, 2, 3), with the quarter turns of whole classes."""
    maps = image_maps(recipe, seed, start, (count, shape.images))
    if not recipe.turned:
        return maps
    classes = shape.way + shape.distractors
    u = draws(seed, "train: turned", start, count, 2 * classes).reshape(count, classes, 2)
    quarters = (4 * u[..., 1] * (u[..., 0] < recipe.turned)).astype(np.int64)  # (E, N + H)
    each = np.arange(classes)
    of_image = np.concatenate(
        [
            each[: shape.way].repeat(shape.shot),
            each.repeat(shape.unlabeled),
            each[: shape.way].repeat(shape.query),
        ]
    )  # (B,)
    return compose(maps, quarter_turns(quarters[:, of_image]))


def images_on(pool: ImagePool, device: torch.device) -> Tensor | None:
    """(I, C, H, W) uint8, shared by fleets that train side by side; None if there is not enough memory."""
    room = HELD_BY_A_CPU
    if device.type == "cuda":
        room = torch.cuda.mem_get_info(device)[0] // 2
    if pool.images.nbytes > room:
        return None
    return torch.from_numpy(np.array(pool.images)).to(device)


def updates_that_fit(most: int, images: int, pool: ImagePool) -> int:
    """The most updates in a chunk that includes its images, given the images of an update."""
    return max(1, min(most, CHUNK_BYTES // (images * int(pool.images[0].nbytes))))


def pixels_of(pool: ImagePool, places: Indices) -> Tensor:
    """(I, C, H, W), pinned if there is a GPU, so that it can fetch them while it works."""
    shape = (len(places), *pool.images.shape[1:])
    pixels = torch.empty(shape, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    gather(pool.images, places, pixels.numpy())
    return pixels
