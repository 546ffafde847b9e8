"""Encoders that torch runs: runs of `semishot train`, and timm's models.

Letters: B images, H x W pixels, C channels, D features.
"""

import hashlib
import importlib
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from semishot.data.framing import Framing, Middle, to_json
from semishot.errors import InputError, reason_of
from semishot.network.protonet import ProtoNet, take_run
from semishot.sorter.encoders.networks import BATCH_ON_GPU, Features, Pixels
from semishot.system.devices import pick_device
from semishot.system.files import reading
from semishot.system.tensor_files import read_tensors, write_tensors
from semishot.training.config import FleetConfig
from semishot.training.fleets import find_model, load_model, save_model

BATCH = 4
"""On a CPU small batches stay in the cache: batches of 4 take half the time of batches of 32."""


class TorchNetwork:
    """uint8 (B, H, W, C) -> float32 (B, D), by a module."""

    def __init__(self, module: nn.Module, device: str) -> None:
        self.device = pick_device(device)
        self.module = module.to(self.device)
        self.batch = BATCH if self.device.type == "cpu" else BATCH_ON_GPU

    @torch.inference_mode()
    def __call__(self, images: Pixels) -> Features:
        features: Features = self.module(torch.from_numpy(images).to(self.device)).cpu().numpy()
        return features


@dataclass(frozen=True, eq=False)
class TorchEncoder:
    """A module with how images are prepared for it; for a run, also what is saved with a model."""

    module: nn.Module
    framing: Framing
    run: tuple[FleetConfig, ProtoNet] | None = None

    @property
    def features(self) -> int:
        shape = (1, self.framing.height, self.framing.width, self.framing.channels)
        return int(TorchNetwork(self.module, "cpu")(np.zeros(shape, np.uint8)).shape[1])

    @property
    def identity(self) -> str:
        whole = hashlib.sha256(to_json(self.framing).encode())
        for key, tensor in sorted(self.module.state_dict().items()):
            whole.update(f"{key} {tuple(tensor.shape)} {tensor.dtype}".encode())
            whole.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
        return whole.hexdigest()

    @cache  # noqa: B019 the encoder lives as long as its command
    def network(self, device: str) -> TorchNetwork:
        return TorchNetwork(self.module, device)

    def save(self, path: Path) -> None:
        """Write the weights."""
        if self.run is not None:
            save_model(path, *self.run)
        else:
            write_tensors(path, self.module.state_dict(), {})


class FleetOfOne(nn.Module):
    """uint8 (B, H, W, C) -> (B, D), by the encoder of a run."""

    def __init__(self, model: ProtoNet) -> None:
        super().__init__()
        self.encoder = model.encoder

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.encoder(images.permute(0, 3, 1, 2).unsqueeze(0))  # (1, B, D)
        return features.squeeze(0)


class ScaledPixels(nn.Module):
    """uint8 (B, H, W, C) -> float32 (B, D): pixels scaled as the network was trained."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, mean: list[float], std: list[float]) -> None:
        """Mean and standard deviation of each channel, on the scale of 0 to 255."""
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        pixels = (images.permute(0, 3, 1, 2).float() - self.mean) / self.std  # (B, C, H, W)
        features: Tensor = self.network(pixels)
        return features.float()


def open_run(name: str) -> TorchEncoder:
    """A run folder or a model file; `#2` at the end selects the third run."""
    source, _, number = name.partition("#")
    path = find_model(source)
    if not path.exists():
        raise InputError(
            f"no encoder {name!r}: choose photos, photos-lite0, omniglot, onnx:FILE, timm:NAME, or a folder "
            "written by `semishot train`"
        )
    config, fleet = load_model(path, torch.device("cpu"), refiners=False)
    runs = len(config.members)
    if number or runs > 1:
        if not (number.isascii() and number.isdigit() and int(number) < runs):
            raise InputError(
                f"{source} holds {runs} runs: choose one, as in {source}#{runs - 1}, counted from 0, or "
                "save the best by `semishot pick`"
            )
        config = replace(config, members=(config.members[int(number)],))
        fleet = take_run(fleet, int(number))
    return of_run(config, fleet, path)


def of_run(config: FleetConfig, model: ProtoNet, path: Path) -> TorchEncoder:
    """Images are prepared like those of the data set that the run was trained on."""
    if config.framing is None:
        raise InputError(f"{path} does not say how images are prepared; train it again")
    module = FleetOfOne(model).eval().requires_grad_(False)
    return TorchEncoder(module, config.framing, (config, model))


def load_run(path: Path) -> TorchEncoder:
    """What `TorchEncoder.save` wrote of a run."""
    return of_run(*load_model(path, torch.device("cpu"), refiners=False), path)


def open_timm(name: str, weights: Path | None = None) -> TorchEncoder:
    """A model of timm without its classification layer; timm downloads its weights once.

    With saved weights nothing is downloaded.
    """
    if not re.fullmatch(r"[\w.-]+", name):
        raise InputError(
            f"timm:{name} is not a name in timm's list of models; no others are fetched"
        )
    if weights is not None and not weights.exists():
        raise InputError(f"no {weights}: run `semishot classify` again")
    try:
        timm = importlib.import_module("timm")
        timm_data = importlib.import_module("timm.data")
    except Exception as error:  # torchvision's import fails in many ways
        raise InputError(
            f"timm cannot be imported ({reason_of(error)}): pip install 'semishot[timm]', with a "
            "torchvision that fits torch"
        ) from error
    try:
        network = timm.create_model(name, pretrained=weights is None, num_classes=0)
    except Exception as error:
        raise InputError(f"timm cannot load {name!r} ({reason_of(error)})") from error
    config = timm_data.resolve_model_data_config(network)
    channels, height, width = config["input_size"]
    mean, std = ([255.0 * value for value in config[key]] for key in ("mean", "std"))
    bicubic = config["interpolation"] != "bilinear"
    framing = Middle(height, width, float(config["crop_pct"]), channels, bicubic)
    module = ScaledPixels(network, mean, std).eval().requires_grad_(False)
    if weights is not None:
        with reading(weights):
            module.load_state_dict(read_tensors(weights)[0])
    return TorchEncoder(module, framing)
