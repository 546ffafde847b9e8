"""A trained fleet on disk: its configuration and its weights in one file, and how both are read back."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from semishot.checkpoints import MODEL, read_tensors, write_tensors
from semishot.config import FleetConfig
from semishot.encoder import BLOCKS
from semishot.errors import InputError
from semishot.files import MOST_JSON, read_regular
from semishot.model import ProtoNet, build_fleet


def save_model(
    path: Path, config: FleetConfig, model: ProtoNet, about: Mapping[str, str] | None = None
) -> None:
    write_tensors(path, model.state_dict(), {"config": config.to_json(), **(about or {})})


def load_model(source: Path, device: torch.device) -> tuple[FleetConfig, ProtoNet]:
    """A trained fleet from its run folder or its file, ready to evaluate."""
    path = source if source.suffix == ".safetensors" else source / MODEL
    if not path.exists():
        raise InputError(f"no trained model in {source}: `semishot train` leaves {MODEL} there")
    tensors, metadata = read_tensors(path)
    try:
        config = FleetConfig.from_json(metadata.get("config", "{}"))
        channels = encoder_channels(config, tensors)
        model = build_fleet(config.members, config.recipe, channels)
        model.load_state_dict(tensors)
    except (KeyError, RuntimeError, ValueError, IndexError) as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"{path} is damaged or no model of ours: {reason}") from error
    return config, model.to(device).eval()


def encoder_channels(config: FleetConfig, tensors: Mapping[str, Tensor]) -> int:
    """Of the images; an error if the weights are not as many as the configuration says.

    Before anything is built by it: whoever says a million filters must have brought them.
    """
    shapes = [tuple(tensors[f"encoder.weights.{block}"].shape) for block in range(BLOCKS)]
    channels, filters = shapes[0][2], config.recipe.filters
    lead = len(config.members), filters
    if shapes != [(*lead, into, 3, 3) for into in (channels, *[filters] * (BLOCKS - 1))]:
        raise ValueError(
            f"its weights {shapes[0]} are not of {lead[0]} runs with {filters} filters"
        )
    if bad := [name for name, held in tensors.items() if not held.isfinite().all()]:
        raise ValueError(f"{bad[0]} is not finite")
    return channels


def read_config(path: Path) -> FleetConfig:
    try:
        return FleetConfig.from_json(read_regular(path, MOST_JSON).decode())
    except (InputError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from error
