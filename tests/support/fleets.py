"""Small fleets: their settings, saved untrained, trained, or interrupted on the way."""

from pathlib import Path
from typing import Any

import pytest
import torch

from semishot import datasets
from semishot.data.pool import ImagePool
from semishot.network.protonet import ProtoNet
from semishot.training.config import FleetConfig
from semishot.training.examples import images_on
from semishot.training.fleet_log import Row, row_of
from semishot.training.fleets import build_fleet, load_model, save_model
from semishot.training.loop import Event, TrainingRequest, training

CPU = torch.device("cpu")


def fleet_config(pool: ImagePool, preset: str = "tiny", **settings: Any) -> FleetConfig:
    """`settings` are the recipe, the shape, the members."""
    framing = datasets.framing(pool)
    return FleetConfig(pool.name, pool.fingerprint, preset, framing=framing, **settings)


def add_noise(module: torch.nn.Module, size: float = 0.3) -> None:
    """To parameters that would be equal or zero before training."""
    generator = torch.Generator().manual_seed(3)
    for parameter in module.parameters():
        parameter.data += size * torch.randn(parameter.shape, generator=generator).to(parameter)


def save_untrained(path: Path, config: FleetConfig, noise: float = 0.0) -> ProtoNet:
    """A fleet for gray images; `path` is a file or a folder."""
    model = build_fleet(config.members, config.recipe, 1).eval()
    add_noise(model, noise)
    save_model(path if path.suffix else path / "model.safetensors", config, model)
    return model


def train_fleet(
    config: FleetConfig, pool: ImagePool, folder: Path, row: Row | None = None
) -> ProtoNet:
    """Trained to the end, ready to evaluate."""
    watch(TrainingRequest(config, pool, folder, CPU), row)
    return load_model(folder, CPU)[1]


def watch(request: TrainingRequest, row: Row | None = None) -> list[Event]:
    """What a training yields."""
    row = row or row_of(request.config)
    return list(training(request, images_on(request.pool, CPU), row))


class StoppingRow(Row):
    """Stops the training like Ctrl-C, after the given update or the last."""

    def __init__(self, config: FleetConfig, stop: int) -> None:
        super().__init__(**vars(row_of(config)))
        self.stop = min(stop, self.updates)

    def advance(self, updates: int, loss: float) -> None:
        super().advance(updates, loss)
        if self.done >= self.stop:
            raise KeyboardInterrupt


def interrupt(request: TrainingRequest, stop: int) -> None:
    """Leave the folder as Ctrl-C would, just before the line of the log after `stop` updates."""
    with pytest.raises(KeyboardInterrupt):
        watch(request, StoppingRow(request.config, stop))
