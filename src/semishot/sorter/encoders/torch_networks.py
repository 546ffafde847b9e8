"""Encoders that torch runs: runs of `semishot train`, and timm's models.

Letters: B images, H x W pixels, C channels, D features.
"""

import hashlib
import importlib
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from semishot.data.framing import Framing, Middle, to_json
from semishot.errors import InputError, reason_of
from semishot.network.protonet import ProtoNet, take_run
from semishot.sorter.encoders.encoder_options import TIMM, TRAINED, WEIGHTS
from semishot.sorter.encoders.networks import BATCH_ON_GPU, Features, ImageEncoder, Pixels
from semishot.system.devices import pick_device
from semishot.system.files import reading
from semishot.system.tensor_files import read_tensors, write_tensors
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


def torch_encoder(
    name: str, module: nn.Module, framing: Framing, save: Callable[[Path], dict[str, Any]]
) -> ImageEncoder:
    """An encoder that torch runs."""
    module.eval().requires_grad_(False)
    whole = hashlib.sha256(to_json(framing).encode())
    for key, tensor in sorted(module.state_dict().items()):
        whole.update(f"{key} {tuple(tensor.shape)} {tensor.dtype}".encode())
        whole.update(np.ascontiguousarray(tensor.numpy()).data)
    shape = (1, framing.height, framing.width, framing.channels)
    features = TorchNetwork(module, "cpu")(np.zeros(shape, np.uint8)).shape[1]
    load = cache(partial(TorchNetwork, module))
    return ImageEncoder(name, framing, features, whole.hexdigest(), load, save)


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


def open_run(name: str) -> ImageEncoder:
    """A run folder or a model file; `#2` at the end selects the third run."""
    source, _, number = name.partition("#")
    path = find_model(source)
    if not path.exists():
        raise InputError(
            f"no encoder {name!r}: choose photos, photos-lite0, omniglot, onnx:FILE, timm:NAME, or a folder "
            "written by `semishot train`"
        )
    return run_encoder(name, path, number)


def run_encoder(name: str, path: Path, number: str = "") -> ImageEncoder:
    """The encoder of a saved fleet; of several runs, the one of this number."""
    config, fleet = load_model(path, torch.device("cpu"), refiners=False)
    runs = len(config.members)
    if number or runs > 1:
        if not (number.isascii() and number.isdigit() and int(number) < runs):
            raise InputError(
                f"{path} holds {runs} runs: choose one, as in {path}#{runs - 1}, counted from 0, or save "
                "the best by `semishot pick`"
            )
        config = replace(config, members=(config.members[int(number)],))
        fleet = take_run(fleet, int(number))
    if config.framing is None:
        raise InputError(f"{path} does not say how images are prepared; train it again")

    def save(folder: Path) -> dict[str, Any]:
        save_model(folder / WEIGHTS, config, fleet)
        return {"encoder": TRAINED}

    return torch_encoder(name, FleetOfOne(fleet), config.framing, save)


def open_timm(full_name: str, weights: Path | None = None) -> ImageEncoder:
    """A model of timm without its classification layer; timm downloads its weights once.

    With saved weights nothing is downloaded.
    """
    name = full_name.removeprefix(TIMM)
    if not re.fullmatch(r"[\w.-]+", name):
        raise InputError(
            f"{full_name} is not a name in timm's list of models; no others are fetched"
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
    module = ScaledPixels(network, mean, std)
    if weights is not None:
        with reading(weights):
            module.load_state_dict(read_tensors(weights)[0])

    def save(folder: Path) -> dict[str, Any]:
        write_tensors(folder / WEIGHTS, module.state_dict(), {})
        return {}

    return torch_encoder(full_name, module, framing, save)
