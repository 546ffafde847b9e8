"""What updates and tests see, drawn by address: episodes of a fleet's runs, their random maps and pixels.

Letters: R runs, E updates or episodes, B images of an update and run, I images.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from semishot.data.episodes import EpisodeShape, Stream, draws, sample_episodes
from semishot.data.pool import ImagePool, Indices, gather
from semishot.data.splits import ClassImages, labeled_split
from semishot.training.config import FleetConfig, Recipe
from semishot.training.update import Chunk

HELD_BY_A_CPU = 2**31
"""Bytes of the largest pool that is copied to a CPU's memory."""
CHUNK_BYTES = 2**28
"""Bytes of images in a chunk if the device does not hold the pool."""
ROTATION, STRETCH, SHEAR, SHIFT = np.pi / 12, 0.15, 0.2, 0.1
"""Largest rotation (radians), log-scale, shear and shift (of half the image) at strength 1."""
TURNS = np.array([[[1, 0], [0, 1]], [[0, -1], [1, 0]], [[-1, 0], [0, -1]], [[0, 1], [-1, 0]]], "f4")
"""By 0 to 3 quarters."""
Maps = NDArray[np.float32]
Draw = Callable[[int, int], Chunk]
"""The examples of updates start .. start + count, as indices into the pool, without learning rates."""


@dataclass(frozen=True)
class EpisodeStreams:
    """One stream of episodes per run, by its seed; runs of the same seed see the same episodes."""

    images: Mapping[int, ClassImages]
    """For each seed, the images that its episodes are drawn from."""
    seeds: Sequence[int]
    """The seed of each run."""
    shape: EpisodeShape
    purpose: str

    def draw(self, start: int, count: int) -> Indices:
        """(R, E, B): the images of episodes start .. start + count, in the order support, unlabeled,
        query."""
        drawn = {
            seed: sample_episodes(own, self.shape, Stream(seed, self.purpose), start, count).images
            for seed, own in self.images.items()
        }
        return np.stack([drawn[seed] for seed in self.seeds])

    def draw_rows(self, start: int, count: int) -> Indices:
        """The same as rows of an array with one row per image of `ClassImages.order`, where all runs draw
        from the same images."""
        order = self.images[self.seeds[0]].order
        row = np.empty(order.max() + 1, np.int64)
        row[order] = np.arange(len(order))
        return row[self.draw(start, count)]


def streams_of(
    images: ClassImages, seeds: Sequence[int], shape: EpisodeShape, purpose: str = "test"
) -> EpisodeStreams:
    """All runs draw from the same images, as at test."""
    return EpisodeStreams(dict.fromkeys(seeds, images), seeds, shape, purpose)


def training_episodes(config: FleetConfig, pool: ImagePool) -> Draw:
    """Every run's episodes from its own labeled split and its own stream, and their maps."""
    recipe, shape = config.recipe, config.shape
    seeds = [member.split_seed for member in config.members]
    train = pool.of_split("train")
    fraction = recipe.labeled_fraction
    splits = {seed: labeled_split(train, fraction, seed) for seed in dict.fromkeys(seeds)}
    streams = EpisodeStreams(splits, seeds, shape, "train")

    def of_runs(values: Mapping[int, Maps]) -> Tensor:
        return torch.from_numpy(np.stack([values[seed] for seed in seeds], axis=1))

    def draw(start: int, count: int) -> Chunk:
        images = np.ascontiguousarray(streams.draw(start, count).swapaxes(0, 1))  # (E, R, B)
        maps = distractors = None
        if changes_images(recipe):
            maps = of_runs({s: episode_maps(recipe, shape, s, start, count) for s in splits})
        if recipe.with_distractors < 1 and shape.distractors:
            drawn = {s: draws(s, "train: with distractors", start, count, 1) for s in splits}
            share = recipe.with_distractors
            distractors = of_runs({s: (u[:, 0] < share).astype("f4") for s, u in drawn.items()})
        return Chunk(torch.from_numpy(images), maps, distractors=distractors)

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


def sample_maps(
    strength: float, seed: int, start: int, size: tuple[int, int], mirror: bool = False
) -> Maps:
    """(E, B, 2, 3): one map for each of the `size` = (E, B) images of training episodes from `start`
    on, from output to input coordinates.

    `mirror` flips every second image, left to right.
    """
    count, images = size
    u = 2 * draws(seed, "train: affine", start, count, 6 * images) - 1
    angle, across, down, shear, dx, dy = np.moveaxis(u.reshape(count, images, 6), -1, 0) * strength
    cos, sin = np.cos(ROTATION * angle), np.sin(ROTATION * angle)
    sx, sy, k = np.exp(STRETCH * across), np.exp(STRETCH * down), SHEAR * shear
    rows = [  # rotation times shear times stretch, and the shift
        [cos * sx, (cos * k - sin) * sy, SHIFT * dx],
        [sin * sx, (sin * k + cos) * sy, SHIFT * dy],
    ]
    maps = np.stack([np.stack(row, -1) for row in rows], -2).astype(np.float32)
    if mirror:
        maps[draws(seed, "train: mirror", start, count, images) < 0.5, :, 0] *= -1
    return maps


def sample_crops(least: float, seed: int, start: int, size: tuple[int, int]) -> Maps:
    """(E, B, 2, 3): a square anywhere in each image, of a part of its area between `least` and all."""
    count, images = size
    u = draws(seed, "train: crop", start, count, 3 * images).reshape(count, images, 3)
    side = np.sqrt(1 - (1 - least) * u[..., 0])
    zero = np.zeros_like(side)
    across, down = ((1 - side) * (2 * u[..., i] - 1) for i in (1, 2))
    rows = [[side, zero, across], [zero, side, down]]
    return np.stack([np.stack(row, -1) for row in rows], -2).astype(np.float32)


def quarter_turns(turns: NDArray[np.int64]) -> Maps:
    """(...) quarters from 0 to 3 -> maps (..., 2, 3)."""
    return np.pad(TURNS, ((0, 0), (0, 0), (0, 1)))[turns]


def compose(outer: Maps, inner: Maps) -> Maps:
    """outer(inner(x)), for maps (..., 2, 3)."""
    linear, shift = outer[..., :2] @ inner[..., :2], outer[..., :2] @ inner[..., 2:]
    return np.concatenate([linear, shift + outer[..., 2:]], -1)


def images_on(pool: ImagePool, device: torch.device) -> Tensor | None:
    """(I, C, H, W) uint8, shared by fleets that train side by side; None if there is not enough memory."""
    room = HELD_BY_A_CPU
    if device.type == "cuda":
        room = torch.cuda.mem_get_info(device)[0] // 2
    if pool.images.nbytes > room:
        return None
    return torch.from_numpy(np.array(pool.images)).to(device)


def pixels_of(pool: ImagePool, indices: Indices) -> Tensor:
    """(I, C, H, W), pinned if there is a GPU, so that it can fetch them while it works."""
    shape = (len(indices), *pool.images.shape[1:])
    pixels = torch.empty(shape, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
    gather(pool.images, indices, pixels.numpy())
    return pixels
