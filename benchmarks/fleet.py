"""Our fleet on random images, ready to be timed: the pieces that `semishot.training` is made of."""

from collections.abc import Callable

import torch
from torch import Tensor

from semishot.data.episodes import EpisodeShape
from semishot.network.protonet import ProtoNet
from semishot.paper.presets import PRESETS
from semishot.training.config import Member
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
