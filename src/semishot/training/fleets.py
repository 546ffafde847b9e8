"""A fleet: built from its configuration, tried, centered, saved with it in one file, and read back.

Letters: R runs, B images of an episode, I images, D embedding dimensions.
"""

import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from semishot import refine
from semishot.data.episodes import EpisodeShape
from semishot.data.framing import framing_from_json, to_json
from semishot.data.pool import ImagePool, Indices
from semishot.data.splits import labeled_split
from semishot.errors import InputError, reason_of
from semishot.network.encoder import ConvEncoder
from semishot.network.own_encoder import OwnEncoder
from semishot.network.protonet import ProtoNet
from semishot.network.sphere import Sphere
from semishot.system.files import reading
from semishot.system.tensor_files import read_tensors, write_tensors
from semishot.training.config import SUPERVISED, FleetConfig, Member, Recipe
from semishot.training.examples import sample_maps
from semishot.training.run_folder import MODEL_FILE

CENTERED_PER_CLASS, CENTERED = 30, 2_000
"""The most images of a training class behind a center; of twice as many in all, every second is taken."""
CENTERED_AT_ONCE = 64
"""Images of a run embedded at a time."""


def build_fleet(
    members: Sequence[Member], recipe: Recipe, channels: int, features: int = 0
) -> ProtoNet:
    """The untrained fleet. Each run is drawn from its own seed, independent of the other runs.

    `features` is the size of an embedding, for a recipe that puts them on a sphere.
    """
    encoder: ConvEncoder | OwnEncoder
    if recipe.encoder:
        encoder = OwnEncoder(recipe.encoder, channels, len(members))
    else:
        encoder = ConvEncoder(channels, recipe.filters, len(members), recipe.init_std)
        encoder.momentum = recipe.norm_momentum
    refiners: list[nn.Module | None] = []
    counts, first = [], 0
    for (model, options), group in groupby(members, key=lambda m: (m.model, dict(m.options))):
        seeds = [member.split_seed for member in group]
        refiner = None if model == SUPERVISED else refine.build(model, runs=len(seeds), **options)
        for run, seed in enumerate(seeds):
            generator = torch.Generator().manual_seed(seed)
            encoder.reset_run(first + run, generator)
            if (reset_run := getattr(refiner, "reset_run", None)) is not None:
                reset_run(run, generator)
        refiners.append(refiner)
        counts.append(len(seeds))
        first += len(seeds)
    beside = [refiner for refiner in refiners if refiner is not None]
    refiner = refine.SideBySide(beside, counts) if len(beside) > 1 else refiners[0]
    sphere = Sphere(len(members), features, recipe.sphere) if recipe.sphere else None
    fleet = ProtoNet(encoder, refiner, recipe.steps, sphere)
    fleet.initial_loss, fleet.both_sides = recipe.initial_loss, recipe.both_sides
    fleet.moved = torch.from_numpy(sample_maps(recipe.augment, 0, 0, (1, recipe.views - 1))[0])
    return fleet


def save_model(
    path: Path, config: FleetConfig, model: ProtoNet, about: Mapping[str, str] | None = None
) -> None:
    metadata = {"config": config.to_json(), **(about or {})}
    if config.recipe.encoder:
        metadata["channels"] = str(model.encoder.channels)
    if config.framing is not None:
        metadata["framing"] = to_json(config.framing)
    write_tensors(path, model.state_dict(), metadata)


def find_model(name: str) -> Path:
    """A run folder or model file by its path, or a model that comes with the package."""
    kind, _, rest = name.partition(":")
    if kind != "pretrained":
        return Path(name)
    paths = sorted((Path(__file__).parents[1] / "pretrained").glob("*.safetensors"))
    path = next((path for path in paths if path.stem == rest), None)
    if path is None:
        names = ", ".join(f"pretrained:{path.stem}" for path in paths)
        raise InputError(f"no pretrained model {rest!r}; this version has {names or 'none'}")
    return path


def load_model(source: Path, device: torch.device) -> tuple[FleetConfig, ProtoNet]:
    """A trained fleet from its run folder or its file, ready to evaluate.

    A method outside the package must have been imported by `refine.add`.
    """
    path = source if source.suffix == ".safetensors" else source / MODEL_FILE
    if not path.exists():
        raise InputError(
            f"no trained model in {source}: `semishot train` leaves {MODEL_FILE} there"
        )
    tensors, metadata = read_tensors(path)
    config = FleetConfig.from_json(metadata.get("config", "{}"), path)
    with reading(path):
        if config.recipe.encoder:
            channels, features = int(metadata["channels"]), 0
        else:
            channels, features = sizes_of(config, tensors)
        if bad := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
            raise ValueError(f"{bad[0]} is not finite")
        framing = framing_from_json(metadata["framing"], path) if "framing" in metadata else None
        if framing is not None and framing.channels != channels:
            raise ValueError(f"its framing is not of {channels} channels")
        config = replace(config, framing=framing)
        try:
            model = build_fleet(config.members, config.recipe, channels, features)
        except InputError as error:  # a method or option that this version does not know
            raise InputError(f"{path}: {error}") from error
        model.load_state_dict(tensors)
    return config, model.to(device).eval()


def sizes_of(config: FleetConfig, tensors: Mapping[str, Tensor]) -> tuple[int, int]:
    """The channels of the images, and the size of an embedding if the file has the center of a sphere.

    Raises an error before anything is built if the weights do not match the configuration: a file that claims
    a million filters must contain them.
    """
    first, second = (tensors[f"encoder.weights.{block}"].shape for block in (0, 1))
    filters, runs = config.recipe.filters, len(config.members)
    if second[:3] != (runs, filters, filters):
        raise ValueError(f"its weights {(*second,)} are not of {runs} runs with {filters} filters")
    return first[2], tensors["sphere.center"].shape[1] if config.recipe.sphere else 0


@torch.no_grad()
def center(fleet: ProtoNet, config: FleetConfig, pool: ImagePool) -> None:
    """Move the centers of a fleet's spheres to the mean embedding of each run's labeled training images.

    As at test: the moving averages of batch norm are used, and nothing else is changed.
    """
    assert fleet.sphere is not None
    training, device = fleet.training, fleet.sphere.center.device
    fleet.eval()
    fraction = config.recipe.labeled_fraction
    chosen = {m.split_seed: _some_of_each(pool, fraction, m.split_seed) for m in config.members}
    rows = np.stack([chosen[member.split_seed] for member in config.members])  # (R, I)
    total = torch.zeros_like(fleet.sphere.center)
    for first in range(0, rows.shape[1], CENTERED_AT_ONCE):
        images = torch.from_numpy(pool.images[rows[:, first : first + CENTERED_AT_ONCE]])
        total += fleet.encode(images.to(device)).sum(1)  # (R, D)
    fleet.sphere.center.copy_(total / rows.shape[1])
    fleet.train(training)


def _some_of_each(pool: ImagePool, fraction: float, seed: int) -> Indices:
    """(I,): the first labeled images of each class, or some of them if there are very many classes."""
    split = labeled_split(pool.of_split("train"), fraction, seed)
    rank = np.arange(len(split.order)) - np.repeat(split.start, split.size)  # within its class
    most = np.repeat(np.minimum(split.labeled, CENTERED_PER_CLASS), split.size)
    images = split.order[rank < most]
    return images[:: max(1, len(images) // CENTERED)]


def try_method(fleet: ProtoNet, shape: EpisodeShape, features: int, training: bool = False) -> None:
    """Score a random episode with a method from outside the package, and in training take its loss and
    gradient, so that its errors come before the work, in one line with the line of its file that fails."""
    size = fleet.encoder.runs, shape.images, features
    drawn = torch.randn(size, generator=torch.Generator().manual_seed(0))
    episode = (drawn * max(1, features) ** -0.5).to(fleet.encoder.weights[0])  # (R, B, D)
    try:
        with torch.inference_mode():
            fleet.eval().score(episode, shape)
        if training:
            episode.requires_grad_()
            losses = fleet.train().losses(episode, shape, None)
            (gradient,) = torch.autograd.grad(losses.sum(), episode)
            for what, values in (("loss", losses), ("gradient", gradient)):
                if not values.isfinite().all():
                    raise ArithmeticError(f"its {what} is NaN or infinite")
    except InputError:
        raise
    except Exception as error:
        module = type(fleet.refiner).__module__
        file = getattr(sys.modules.get(module), "__file__", None)
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        where = f" at {Path(str(file)).name}, line {lines[-1]}" if lines else ""
        raise InputError(
            f"the refiner {module}:{type(fleet.refiner).__qualname__} fails on a random episode{where} "
            f"({type(error).__name__}: {reason_of(error)})"
        ) from error
