"""Our fleet on random images, ready to be timed: the pieces that `semishot.train` is made of."""

from collections.abc import Callable

import torch
from torch import Tensor

from semishot.config import FleetConfig, Member
from semishot.episodes import EpisodeShape
from semishot.model import build_fleet
from semishot.paper import PRESETS
from semishot.train import build_optimizer, chunk_runner
from semishot.update import Chunk


def random_images(count: int, channels: int, side: int, device: torch.device) -> Tensor:
    """uint8 (I, C, H, W)."""
    generator = torch.Generator().manual_seed(0)
    shape = (count, channels, side, side)
    return torch.randint(256, shape, generator=generator, dtype=torch.uint8).to(device)


def fleet_updates(
    model: str, runs: int, shape: EpisodeShape, images: Tensor, updates: int
) -> Callable[[], Tensor]:
    """A function that does some updates of a fleet and returns their losses, (E, R)."""
    recipe = PRESETS["ren2018"].recipe
    members = tuple(Member(model, seed) for seed in range(runs))
    config = FleetConfig("random", "", "ren2018", recipe, shape, members)
    fleet = build_fleet(members, recipe, images.shape[1]).to(images.device).train()
    fleet.encoder.fused = images.device.type == "cuda" and recipe.precision == "bf16"
    generator = torch.Generator().manual_seed(0)
    places = torch.randint(len(images), (updates, runs, shape.images), generator=generator)
    chunk = Chunk(places, None, [recipe.learning_rate] * updates)
    run = chunk_runner(fleet, build_optimizer(config, fleet), images, shape, chunk)
    return lambda: run(chunk)()
