"""Pretrained encoders for photographs: EfficientNet-Lite (extra `photos`), and timm's (extra `timm`).

Letters: B images, H x W pixels, C channels, D features.
"""

import importlib
import io
import re
from typing import Any

import torch
from torch import Tensor, nn

from semishot.data.framing import Framing, Middle
from semishot.errors import InputError, reason_of
from semishot.sorter.encoders.packaged import framing_of_lite, weights_of_lite
from semishot.system.files import read_regular
from semishot.system.tensor_files import MOST_BYTES

LITE_FEATURES = 1280


class PixelEncoder(nn.Module):
    """uint8 (B, H, W, C) -> float32 (B, D): scaled as the network was trained."""

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
        return features


class LastMapsMean(nn.Module):
    """(B, 3, H, W) -> (B, D), the mean over EfficientNet's last feature maps."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        maps: Tensor = self.network.extract_features(pixels)  # (B, D, H / 32, W / 32)
        return maps.mean((-2, -1))


def efficientnet_lite(number: int, side: int | None = None) -> tuple[nn.Module, Framing]:
    """EfficientNet-Lite0, 1 or 2, trained on ImageNet; the weights come in packages.

    It sees the middle of an image, seven eighths of its shorter side, as in its original tests, at
    the size it was trained for, or at `side` pixels.
    """
    path = weights_of_lite(number)
    package = importlib.import_module("efficientnet_lite_pytorch")
    with torch.device("meta"):  # no weights yet: they would be drawn at random
        network = package.EfficientNet.from_name(f"efficientnet-lite{number}")
    weights = io.BytesIO(read_regular(path, MOST_BYTES))
    loaded = torch.load(weights, map_location="cpu", weights_only=True)
    network.load_state_dict(loaded, assign=True)
    network._fc = nn.Identity()  # ImageNet's classes are not used
    network.to(memory_format=torch.channels_last)  # a quarter less time on a CPU
    encoder = PixelEncoder(LastMapsMean(network), [127.0] * 3, [128.0] * 3)
    return encoder, framing_of_lite(number, side)


def timm_network(name: str, pretrained: bool = True) -> tuple[nn.Module, Framing]:
    """Any model of timm, without its classification layer; timm downloads its weights once."""
    if not re.fullmatch(r"[\w.-]+", name):
        raise InputError(
            f"timm:{name} is not a name in timm's list of models; no others are fetched"
        )
    try:
        timm = importlib.import_module("timm")
        timm_data = importlib.import_module("timm.data")
    except Exception as error:  # torchvision's import fails in many ways
        raise InputError(
            f"timm cannot be imported ({reason_of(error)}): pip install 'semishot[timm]', with a "
            "torchvision that fits torch"
        ) from error
    try:
        network = timm.create_model(name, pretrained=pretrained, num_classes=0)
    except Exception as error:
        raise InputError(f"timm cannot load {name!r} ({reason_of(error)})") from error
    config = timm_data.resolve_model_data_config(network)
    channels, height, width = config["input_size"]
    mean, std = ([255.0 * value for value in config[key]] for key in ("mean", "std"))
    bicubic = config["interpolation"] != "bilinear"
    framing = Middle(height, width, float(config["crop_pct"]), channels, bicubic)
    return PixelEncoder(network, mean, std), framing
