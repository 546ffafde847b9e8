"""Episodes for many updates at once: image indices by address, their maps, their learning rates."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from semishot.data.episodes import sample_episodes
from semishot.data.pool import ImagePool, Indices, gather
from semishot.data.splits import labeled_split
from semishot.training.augment import sample_maps
from semishot.training.config import FleetConfig, learning_rate
from semishot.training.update import Chunk

CHUNK_BYTES = 2**28
"""Images that a chunk may bring along, where the device does not hold the pool."""


def draw_chunks(
    config: FleetConfig,
    pool: ImagePool,
    step: int,
    between_lines: int,
    most: int,
    bring_images: bool,
) -> Iterator[Chunk]:
    """The episodes from update `step` on, up to `most` at a time, every run from its own stream.

    No chunk reaches across a line of the log.
    """
    recipe, shape = config.recipe, config.shape
    seeds = [member.split_seed for member in config.members]
    splits = {
        seed: labeled_split(pool.of_split("train"), recipe.labeled_fraction, seed)
        for seed in dict.fromkeys(seeds)
    }
    if bring_images:
        most = max(1, min(most, CHUNK_BYTES // (len(seeds) * shape.images * pool.images[0].nbytes)))
    while step < recipe.updates:
        count = min(most, between_lines - step % between_lines, recipe.updates - step)
        episodes = {
            seed: sample_episodes(split, shape, seed, "train", step, count).images
            for seed, split in splits.items()
        }
        images = np.stack([episodes[seed] for seed in seeds], axis=1)  # (E, R, B)
        maps = pixels = None
        if recipe.augment or recipe.mirror:
            drawn = {
                seed: sample_maps(
                    recipe.augment, seed, "train", step, count, shape.images, recipe.mirror
                )
                for seed in splits
            }
            maps = torch.from_numpy(np.stack([drawn[seed] for seed in seeds], axis=1))
        if bring_images:
            places, within = np.unique(images, return_inverse=True)
            images, pixels = within.reshape(images.shape), pixels_of(pool, places)
        rates = [learning_rate(recipe, step + e) for e in range(count)]
        yield Chunk(torch.from_numpy(images), maps, rates, pixels)
        step += count


def pixels_of(pool: ImagePool, places: Indices) -> Tensor:
    """(I, C, H, W), in memory from which a GPU can fetch them while others work."""
    shape = (len(places), *pool.images.shape[1:])
    pixels = torch.empty(shape, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    gather(pool.images, places, pixels.numpy())
    return pixels
