"""A method outside the package is tried on a random episode: its errors come before the work, in one line.

Letters: R runs, B images of an episode, D embedding dimensions.
"""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from semishot.data.episodes import EpisodeShape
from semishot.errors import InputError, reason_of
from semishot.network.protonet import ProtoNet
from semishot.training.config import FleetConfig
from semishot.training.fleets import build_fleet


def try_training(config: FleetConfig, channels: int, features: int) -> None:
    """An episode scored as at test, then its loss and gradient."""
    fleet = build_fleet(config.members, config.recipe, channels, features)
    try_scoring(fleet, config.shape, features)
    embeddings = random_episode(fleet, config.shape, features).requires_grad_()
    with one_line_about(fleet.refiner):
        losses = fleet.train().losses(embeddings, config.shape, None)
        (gradient,) = torch.autograd.grad(losses.sum(), embeddings)
        for what, values in (("loss", losses), ("gradient", gradient)):
            if not values.isfinite().all():
                raise ArithmeticError(f"its {what} is NaN or infinite")


@torch.inference_mode()
def try_scoring(fleet: ProtoNet, shape: EpisodeShape, features: int) -> None:
    """An episode scored as at test, by whatever method the fleet has."""
    with one_line_about(fleet.refiner):
        fleet.eval().score(random_episode(fleet, shape, features), shape)


def random_episode(fleet: ProtoNet, shape: EpisodeShape, features: int) -> Tensor:
    """(R, B, D), at squared distances of about 2."""
    weight = fleet.encoder.weights[0]
    size = fleet.encoder.runs, shape.images, features
    drawn = torch.randn(size, generator=torch.Generator().manual_seed(0))
    found: Tensor = (drawn * max(1, features) ** -0.5).to(weight)
    return found


@contextmanager
def one_line_about(refiner: nn.Module | None) -> Iterator[None]:
    """Name the method, and the line of its file that fails."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        module = type(refiner).__module__
        file = getattr(sys.modules.get(module), "__file__", None)
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        where = f" at {Path(str(file)).name}, line {lines[-1]}" if lines else ""
        raise InputError(
            f"the refiner {module}:{type(refiner).__qualname__} fails on a random episode{where} "
            f"({type(error).__name__}: {reason_of(error)})"
        ) from error
