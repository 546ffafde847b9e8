"""Images -> features: encoders by name, and an encoder as part of a saved model.

Letters: B images, H x W pixels, C channels, D features.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from semishot.data.framing import Framing, Ink, Whole
from semishot.errors import InputError, printable
from semishot.network.protonet import ProtoNet, take_run
from semishot.sorter.onnx_encoders import OnnxModule, Preparation, chosen, framing_of, open_onnx
from semishot.sorter.onnx_files import read_onnx
from semishot.sorter.photo_encoders import efficientnet_lite, timm_network
from semishot.sorter.requests import OnnxOptions
from semishot.system.files import write_json, write_whole
from semishot.system.json_fields import from_json
from semishot.system.open_files import read_json, reading
from semishot.system.tensor_files import read_tensors, write_tensors
from semishot.training.config import FleetConfig
from semishot.training.fleets import find_model, load_model, save_model

__all__ = ["DEFAULT", "ImageEncoder", "load_encoder", "open_encoder", "save_encoder"]

FORMAT = 1
DEFAULT = "photos"
PHOTOS = {"photos-lite0": 0, "photos-lite2": 2}
"""EfficientNet-Lite by number; `photos` is `BEST_PHOTOS`, and in models of version 0.1 Lite0."""
BEST_PHOTOS, PHOTOS_IN_0_1 = "photos-lite2", "photos-lite0"
OMNIGLOT = "omniglot"
FEATURES = "features"
"""In `encoder.json`: there is no encoder, since the classifier was given features."""
TRAINED, ONNX = "trained by semishot", "onnx:"
DESCRIPTION, WEIGHTS, GRAPH = "encoder.json", "encoder.safetensors", "encoder.onnx"
AGAIN = "run `semishot classify` again"


@dataclass(frozen=True)
class ImageEncoder:
    """An encoder: it turns an opened image into features."""

    name: str
    """The name, as given to `--encoder`."""
    height: int
    width: int
    channels: int
    features: int
    module: nn.Module
    """uint8 (B, H, W, C) -> float32 (B, D), scaling included."""
    prepare: Callable[[Image.Image], NDArray[np.uint8]]
    """An opened image -> (H, W, C)."""
    identity: str
    """A digest of the weights and of how images are prepared: it changes if the features do."""
    trained: tuple[FleetConfig, ProtoNet] | None = None
    """What is saved with a model, for an encoder trained by semishot."""
    notes: tuple[str, ...] = ()
    """What was assumed about it, for the user."""


@dataclass(frozen=True)
class Description:
    """The fields of `encoder.json`."""

    format: int
    encoder: str
    identity: str | None = None
    onnx: Mapping[str, Any] | None = None
    """The fields of a `Preparation`, for an ONNX file."""

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise InputError(f"format must be {FORMAT}, not {self.format}; {AGAIN}")


class FleetOfOne(nn.Module):
    """uint8 (B, H, W, C) -> (B, D), by the encoder of a run."""

    def __init__(self, model: ProtoNet) -> None:
        super().__init__()
        self.encoder = model.encoder

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.encoder(images.permute(0, 3, 1, 2).unsqueeze(0))  # (1, B, D)
        return features.squeeze(0)


def open_encoder(name: str, onnx: OnnxOptions | None = None) -> ImageEncoder:
    """Open an encoder by name.

    `photos`, `photos-lite0`, `omniglot`, `onnx:FILE`, `timm:NAME`, or the path of a run folder or of a file
    by `semishot pick`; `#2` at the end of a path selects the third run.
    """
    kind, _, rest = name.partition(":")
    if kind == "onnx":
        return _of_onnx(Path(rest), onnx or OnnxOptions())
    if onnx not in (None, OnnxOptions()):
        raise InputError(
            "--encoder-size, -mean, -std, -crop, -output and -tokens are for onnx:FILE"
        )
    name = BEST_PHOTOS if name == DEFAULT else name
    if name in PHOTOS:
        return _assembled(name, *efficientnet_lite(PHOTOS[name]))
    if kind == "timm":
        return _assembled(name, *timm_network(rest))
    source, _, place = (f"pretrained:{OMNIGLOT}" if name == OMNIGLOT else name).partition("#")
    path = find_model(source)
    if not path.exists():
        raise InputError(
            f"no encoder {name!r}: choose photos, omniglot, onnx:FILE, timm:NAME, or a folder that "
            "`semishot train` has left"
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
            f"{folder} holds {runs} runs: name one, as in {folder}#{runs - 1}, counted from 0, or save "
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


def _assembled(name: str, module: nn.Module, framing: Framing) -> ImageEncoder:
    module = module.eval().requires_grad_(False)
    shape = (framing.height, framing.width, framing.channels)
    with torch.inference_mode():
        features = module(torch.zeros(1, *shape, dtype=torch.uint8)).shape[-1]
    whole = hashlib.sha256(f"{type(framing).__name__} {asdict(framing)} {shape}".encode())
    for key, tensor in sorted(module.state_dict().items()):
        whole.update(f"{key} {tuple(tensor.shape)} {tensor.dtype}".encode())
        whole.update(np.ascontiguousarray(tensor.numpy()).data)
    return ImageEncoder(name, *shape, features, module, framing, whole.hexdigest())


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
    identity = whole.hexdigest()
    return ImageEncoder(name, *shape, module.features, module, framing, identity, notes=notes)


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


def save_encoder(encoder: ImageEncoder | None, folder: Path) -> None:
    """Write `encoder.json`, and weights unless they come with a package: no other file is needed.

    None: there is no encoder, the classifier was given features.
    """
    if encoder is None:
        write_json(folder / DESCRIPTION, {"format": FORMAT, "encoder": FEATURES})
        return
    saved: dict[str, Any] = {"format": FORMAT, "encoder": encoder.name}
    saved["identity"] = encoder.identity
    if encoder.trained is not None and encoder.name != OMNIGLOT:
        saved["encoder"] = TRAINED
        save_model(folder / WEIGHTS, *encoder.trained)
    elif encoder.name.startswith("timm:"):
        write_tensors(folder / WEIGHTS, encoder.module.state_dict(), {})
    elif isinstance(module := encoder.module, OnnxModule):
        saved["onnx"] = asdict(module.preparation)
        write_whole(folder / GRAPH, module.data)
    write_json(folder / DESCRIPTION, saved)


def load_encoder(folder: Path) -> ImageEncoder | None:
    """Read what `save_encoder` wrote; None if the model was given features. Different weights are refused."""
    path = folder / DESCRIPTION
    try:
        saved = from_json(Description, read_json(path), path)
    except FileNotFoundError as error:
        raise InputError(
            f"no model in {folder}: `semishot classify` leaves one in OUT/model"
        ) from error
    name = saved.encoder
    if name == FEATURES:
        return None
    if name == TRAINED:
        config, model = load_model(folder / WEIGHTS, torch.device("cpu"), refiners=False)
        encoder = _of_run(TRAINED, config, model)
    elif name in (DEFAULT, *PHOTOS, OMNIGLOT):
        encoder = open_encoder(PHOTOS_IN_0_1 if name == DEFAULT else name)
    elif name.startswith("timm:"):
        encoder = _saved_timm(name, folder / WEIGHTS)
    elif name.startswith(ONNX):
        encoder = _saved_onnx(name, folder, saved.onnx)
    else:
        raise InputError(
            f"{path}: encoder must be one of this version's, not {name!r:.80}; {AGAIN}"
        )
    if encoder.identity != saved.identity:
        raise InputError(
            f"the encoder {name!r} is not the one of {folder}: its weights or its way to prepare images "
            f"have changed; {AGAIN}"
        )
    return encoder
