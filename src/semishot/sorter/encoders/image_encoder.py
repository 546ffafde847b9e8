"""Images -> features: encoders by name, and an encoder as part of a saved model.

Encoders that come with packages are opened without torch: their network is loaded when an image is to be
encoded. Letters: B images, H x W pixels, C channels, D features.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from semishot.errors import InputError
from semishot.sorter.encoders.onnx_options import OnnxOptions
from semishot.sorter.encoders.packaged import BEST_PHOTOS, PHOTOS, PHOTOS_IN_0_1, Packaged, packaged
from semishot.sorter.encoders.saved_files import (
    AGAIN,
    DEFAULT,
    DESCRIPTION,
    FEATURES,
    FORMAT,
    OMNIGLOT,
    ONNX,
    TRAINED,
    Description,
)
from semishot.system.files import read_json, write_json
from semishot.system.json_fields import from_json

if TYPE_CHECKING:
    from torch import nn

    from semishot.network.protonet import ProtoNet
    from semishot.training.config import FleetConfig


@dataclass(frozen=True)
class ImageEncoder:
    """An encoder: it turns an opened image into features."""

    name: str
    """The name, as given to `--encoder`."""
    height: int
    width: int
    channels: int
    features: int
    load: "Callable[[], nn.Module]"
    """Returns the module; the first call may load it."""
    prepare: Callable[[Image.Image], NDArray[np.uint8]]
    """An opened image -> (H, W, C)."""
    identity: str
    """A digest of the weights and of how images are prepared: it changes if the features do."""
    trained: "tuple[FleetConfig, ProtoNet] | None" = None
    """What is saved with a model, for an encoder trained by semishot."""
    notes: tuple[str, ...] = ()
    """What was assumed about it, for the user."""

    @property
    def module(self) -> "nn.Module":
        """uint8 (B, H, W, C) -> float32 (B, D), scaling included."""
        return self.load()


def open_encoder(name: str, onnx: OnnxOptions | None = None) -> ImageEncoder:
    """Open an encoder by name.

    `photos`, `photos-lite0`, `omniglot`, `onnx:FILE`, `timm:NAME`, or the path of a run folder or of a file
    by `semishot pick`; `#2` at the end of a path selects the third run.
    """
    if not name.startswith(ONNX) and onnx not in (None, OnnxOptions()):
        raise InputError(
            "--encoder-size, -mean, -std, -crop, -output and -tokens are for onnx:FILE"
        )
    name = BEST_PHOTOS if name == DEFAULT else name
    if (known := packaged(name)) is not None:
        return _of_package(known)
    from semishot.sorter.encoders.opened_by_torch import open_by_torch

    return open_by_torch(name, onnx or OnnxOptions())


def _of_package(known: Packaged) -> ImageEncoder:
    def load() -> "nn.Module":
        from semishot.sorter.encoders.opened_by_torch import packaged_module

        return packaged_module(known.name, known.identity)

    framing = known.framing
    shape = (framing.height, framing.width, framing.channels)
    return ImageEncoder(known.name, *shape, known.features, load, framing, known.identity)


def save_encoder(encoder: ImageEncoder | None, folder: Path) -> None:
    """Write `encoder.json`, and weights unless they come with a package: no other file is needed.

    None: there is no encoder, the classifier was given features.
    """
    if encoder is None:
        write_json(folder / DESCRIPTION, {"format": FORMAT, "encoder": FEATURES})
        return
    saved: dict[str, Any] = {"format": FORMAT, "encoder": encoder.name}
    saved["identity"] = encoder.identity
    if encoder.name not in (*PHOTOS, OMNIGLOT):
        from semishot.sorter.encoders.opened_by_torch import save_weights

        saved |= save_weights(encoder, folder)
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
    if name in (DEFAULT, *PHOTOS, OMNIGLOT):
        encoder = open_encoder(PHOTOS_IN_0_1 if name == DEFAULT else name)
    elif name == TRAINED or name.startswith(("timm:", ONNX)):
        from semishot.sorter.encoders.opened_by_torch import load_by_torch

        encoder = load_by_torch(saved, folder)
    else:
        raise InputError(
            f"{path}: encoder must be one of this version's, not {name!r:.80}; {AGAIN}"
        )
    if encoder.identity != saved.identity:
        raise InputError(
            f"the encoder {name!r} is not the one of {folder}: its weights or how it prepares images "
            f"have changed; {AGAIN}"
        )
    return encoder
