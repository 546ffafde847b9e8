"""Encoders that torch opens: EfficientNet-Lite, runs of our own, timm's models and ONNX files.

Letters: B images, H x W pixels, C channels, D features.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec import structs
from torch import Tensor, nn

from semishot.data.framing import Framing, Ink, Whole
from semishot.errors import InputError, printable
from semishot.network.protonet import ProtoNet, take_run
from semishot.sorter.encoders.image_encoder import ImageEncoder
from semishot.sorter.encoders.onnx_choices import chosen
from semishot.sorter.encoders.onnx_files import read_onnx
from semishot.sorter.encoders.onnx_module import OnnxModule, open_onnx
from semishot.sorter.encoders.onnx_options import OnnxOptions
from semishot.sorter.encoders.onnx_preparation import Preparation, framing_of
from semishot.sorter.encoders.packaged import PHOTOS
from semishot.sorter.encoders.photo_networks import LITE_FEATURES, efficientnet_lite, timm_network
from semishot.sorter.encoders.saved_files import (
    AGAIN,
    DESCRIPTION,
    GRAPH,
    OMNIGLOT,
    ONNX,
    TRAINED,
    WEIGHTS,
    Description,
)
from semishot.system.files import reading, write_whole
from semishot.system.json_fields import from_json
from semishot.system.tensor_files import read_tensors, write_tensors
from semishot.training.config import FleetConfig
from semishot.training.fleets import find_model, load_model, save_model


class FleetOfOne(nn.Module):
    """uint8 (B, H, W, C) -> (B, D), by the encoder of a run."""

    def __init__(self, model: ProtoNet) -> None:
        super().__init__()
        self.encoder = model.encoder

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.encoder(images.permute(0, 3, 1, 2).unsqueeze(0))  # (1, B, D)
        return features.squeeze(0)


def open_by_torch(name: str, onnx: OnnxOptions) -> ImageEncoder:
    """An encoder by name, its network loaded."""
    kind, _, rest = name.partition(":")
    if kind == "onnx":
        return _of_onnx(Path(rest), onnx)
    if name in PHOTOS:
        return _assembled(name, *efficientnet_lite(PHOTOS[name]), LITE_FEATURES)
    if kind == "timm":
        return _assembled(name, *timm_network(rest))
    source, _, place = (f"pretrained:{OMNIGLOT}" if name == OMNIGLOT else name).partition("#")
    path = find_model(source)
    if not path.exists():
        raise InputError(
            f"no encoder {name!r}: choose photos, photos-lite0, omniglot, onnx:FILE, timm:NAME, or a folder "
            "written by `semishot train`"
        )
    config, fleet = load_model(path, torch.device("cpu"), refiners=False)
    run = _chosen_run(name, place, len(config.members))
    alone = replace(config, members=(config.members[run],))
    return _of_run(name, alone, take_run(fleet, run))


def _chosen_run(name: str, place: str, runs: int) -> int:
    if not place and runs == 1:
        return 0
    if not (place.isascii() and place.isdigit() and int(place) < runs):
        folder = name.partition("#")[0]
        raise InputError(
            f"{folder} holds {runs} runs: choose one, as in {folder}#{runs - 1}, counted from 0, or save "
            "the best by `semishot pick`"
        )
    return int(place)


def _of_run(name: str, config: FleetConfig, model: ProtoNet) -> ImageEncoder:
    """Images are prepared like those of the data set that the run was trained on."""
    framing = config.framing or _framing_in_0_1(config.dataset, model.encoder.channels)
    encoder = _assembled(name, FleetOfOne(model), framing)
    return replace(encoder, trained=(replace(config, framing=framing), model))


def _framing_in_0_1(dataset: str, channels: int) -> Framing:
    """Models of version 0.1 do not store how images were prepared: it depended on their data set."""
    if channels == 1:
        return Ink() if dataset in ("omniglot", "glyphs") else Whole(28, 28, 1)
    return Whole(84, 84, 3, bicubic=dataset == "tiered-imagenet")


def _assembled(
    name: str, module: nn.Module, framing: Framing, features: int | None = None
) -> ImageEncoder:
    """features: how many there are; if that is not known, an image is encoded to find out."""
    module = module.eval().requires_grad_(False)
    shape = (framing.height, framing.width, framing.channels)
    if features is None:
        with torch.inference_mode():
            features = module(torch.zeros(1, *shape, dtype=torch.uint8)).shape[-1]
    whole = hashlib.sha256(f"{type(framing).__name__} {structs.asdict(framing)} {shape}".encode())
    for key, tensor in sorted(module.state_dict().items()):
        whole.update(f"{key} {tuple(tensor.shape)} {tensor.dtype}".encode())
        whole.update(np.ascontiguousarray(tensor.numpy()).data)
    return ImageEncoder(name, *shape, features, lambda: module, framing, whole.hexdigest())


def _of_onnx(path: Path, options: OnnxOptions) -> ImageEncoder:
    module = OnnxModule(read_onnx(path), str(path))
    preparation, notes = chosen(module, options)
    module.prepare(preparation)
    return _onnx_encoder(f"{ONNX}{printable(path.name)}", module, tuple(notes))


def _onnx_encoder(name: str, module: OnnxModule, notes: tuple[str, ...] = ()) -> ImageEncoder:
    framing = framing_of(module.preparation)
    whole = hashlib.sha256(module.data)
    whole.update(json.dumps(asdict(module.preparation), sort_keys=True).encode())
    shape = (framing.height, framing.width, framing.channels)
    features, identity = module.features, whole.hexdigest()
    return ImageEncoder(name, *shape, features, lambda: module, framing, identity, notes=notes)


def _saved_onnx(name: str, folder: Path, fields: Mapping[str, Any] | None) -> ImageEncoder:
    path = folder / GRAPH
    if fields is None:
        raise InputError(f"{folder / DESCRIPTION}: onnx is missing; {AGAIN}")
    preparation = from_json(Preparation, dict(fields), f"{folder / DESCRIPTION}: onnx")
    return _onnx_encoder(name, open_onnx(path, read_onnx(path, alone=True), preparation))


def _saved_timm(name: str, weights: Path) -> ImageEncoder:
    """Open an encoder by its saved weights: opening a model must not download anything."""
    module, framing = timm_network(name.removeprefix("timm:"), pretrained=False)
    try:
        tensors, _ = read_tensors(weights)
    except FileNotFoundError as error:
        raise InputError(f"no {weights}: {AGAIN}") from error
    with reading(weights):
        module.load_state_dict(tensors)
    return _assembled(name, module, framing)


def save_weights(encoder: ImageEncoder, folder: Path) -> dict[str, Any]:
    """Write the weights of an encoder that does not come with a package; returns fields of `encoder.json`."""
    if encoder.trained is not None:
        save_model(folder / WEIGHTS, *encoder.trained)
        return {"encoder": TRAINED}
    if isinstance(module := encoder.module, OnnxModule):
        write_whole(folder / GRAPH, module.data)
        return {"onnx": asdict(module.preparation)}
    write_tensors(folder / WEIGHTS, module.state_dict(), {})
    return {}


def load_by_torch(saved: Description, folder: Path) -> ImageEncoder:
    """The encoder whose weights lie in the folder of a saved model."""
    name = saved.encoder
    if name == TRAINED:
        config, model = load_model(folder / WEIGHTS, torch.device("cpu"), refiners=False)
        return _of_run(TRAINED, config, model)
    if name.startswith(ONNX):
        return _saved_onnx(name, folder, saved.onnx)
    return _saved_timm(name, folder / WEIGHTS)


@lru_cache(maxsize=4)
def packaged_module(name: str, identity: str) -> nn.Module:
    """The network of an encoder that was opened without it."""
    loaded = open_by_torch(name, OnnxOptions())
    if loaded.identity != identity:
        raise InputError(f"the weights of {name} have changed in the meantime; run it again")
    return loaded.module
