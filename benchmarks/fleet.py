"""Our fleet on random images, ready to be timed: the pieces that `semishot.training` is made of."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from semishot.data.episodes import EpisodeShape
from semishot.data.pool import ImagePool
from semishot.network.protonet import ProtoNet
from semishot.paper.presets import PRESETS
from semishot.training.config import Member
from semishot.training.examples import CHUNK_BYTES, pixels_of
from semishot.training.fleets import build_fleet
from semishot.training.loop import build_optimizer
from semishot.training.update import Chunk, can_fuse, chunk_runner


def random_images(count: int, channels: int, side: int, device: torch.device) -> Tensor:
    """uint8 (I, C, H, W)."""
    generator = torch.Generator().manual_seed(0)
    shape = (count, channels, side, side)
    return torch.randint(256, shape, generator=generator, dtype=torch.uint8).to(device)


def fleet_updates(
    model: str, runs: int, shape: EpisodeShape, images: Tensor, updates: int
) -> Callable[[], Tensor]:
    """A function that does some updates of a fleet and returns their losses, (E, R)."""
    fleet = _fleet(model, runs, images.shape[1:], images.device)
    places = _places(len(images), updates, runs, shape)
    chunk = Chunk(places, None, [1e-3] * updates)
    run = chunk_runner(*fleet, images, shape, chunk)
    return lambda: run(chunk)()


def brought_updates(
    model: str, runs: int, shape: EpisodeShape, pool: ImagePool, updates: int, device: torch.device
) -> Callable[[], Tensor]:
    """The same from a pool that the device does not hold: each chunk brings its images along."""
    places = _places(len(pool.images), updates, runs, shape)
    most = max(1, CHUNK_BYTES // (runs * shape.images * pool.images[0].nbytes))

    def chunks() -> Iterator[Chunk]:
        for first in range(0, updates, most):
            images, within = np.unique(places[first : first + most], return_inverse=True)
            rates = [1e-3] * len(places[first : first + most])
            within = torch.from_numpy(within.reshape(len(rates), runs, -1))
            yield Chunk(within, None, rates, pixels_of(pool, images))

    fleet = _fleet(model, runs, pool.images.shape[1:], device)
    run = chunk_runner(*fleet, None, shape, next(chunks()))

    def work() -> Tensor:
        waiting = chunks()
        following = next(waiting, None)
        while (chunk := following) is not None:
            finished = run(chunk)
            following = next(waiting, None)  # gathered while the device is at work
            losses = finished()
        return losses

    return work


def _places(images: int, updates: int, runs: int, shape: EpisodeShape) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(images, (updates, runs, shape.images), generator=generator)


def _fleet(
    model: str, runs: int, image: tuple[int, ...], device: torch.device
) -> tuple[ProtoNet, torch.optim.Optimizer]:
    recipe = PRESETS["ren2018"].recipe
    members = tuple(Member(model, seed) for seed in range(runs))
    fleet = build_fleet(members, recipe, image[0]).to(device).train()
    fleet.encoder.fused = can_fuse(device, image[1:], recipe.filters)
    return fleet, build_optimizer(recipe, fleet)
