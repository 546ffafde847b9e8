"""Encoders by name, and an encoder as part of a saved model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semishot.errors import InputError, needing_extra, printable
from semishot.sorter.encoders.encoder_options import (
    DEFAULT,
    DESCRIPTION,
    FEATURES,
    GRAPH,
    ONNX,
    TIMM,
    TRAINED,
    WEIGHTS,
    OnnxOptions,
)
from semishot.sorter.encoders.networks import ImageEncoder
from semishot.sorter.encoders.onnx_file import OnnxPreparation, open_onnx
from semishot.sorter.encoders.pretrained import BEST_LITE, is_pretrained, open_pretrained
from semishot.system.files import write_json
from semishot.system.structs import read_struct

__all__ = ["ImageEncoder", "load_encoder", "open_encoder", "save_encoder"]

FORMAT = 1
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


def open_encoder(name: str, onnx: OnnxOptions | None = None) -> ImageEncoder:
    """Open an encoder by name.

    `photos`, `photos-lite0`, `omniglot`, `onnx:FILE`, `timm:NAME`, or the path of a run folder or of a file
    by `semishot pick`; `#2` at the end of a path selects the third run.
    """
    name = BEST_LITE if name == DEFAULT else name
    if name.startswith(ONNX):
        path = Path(name.removeprefix(ONNX))
        return open_onnx(f"{ONNX}{printable(path.name)}", path, onnx or OnnxOptions())
    if onnx not in (None, OnnxOptions()):
        raise InputError(
            "--encoder-size, -mean, -std, -crop, -output and -tokens are for onnx:FILE"
        )
    if is_pretrained(name):
        return open_pretrained(name)
    networks = _torch_networks(name)
    opened: ImageEncoder = (
        networks.open_timm(name) if name.startswith(TIMM) else networks.open_run(name)
    )
    return opened


def _torch_networks(name: str) -> Any:
    with needing_extra(f"the encoder {name!r}"):
        from semishot.sorter.encoders import torch_networks
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
    name, opened = saved.encoder, None
    if is_pretrained(name):
        opened = open_pretrained(name)
    elif name.startswith(ONNX) and saved.onnx is not None:
        opened = open_onnx(name, folder / GRAPH, saved.onnx)
    elif name == TRAINED:
        opened = _torch_networks(name).run_encoder(name, folder / WEIGHTS)
    elif name.startswith(TIMM):
        opened = _torch_networks(name).open_timm(name, folder / WEIGHTS)
    if opened is None:
        raise InputError(
            f"{folder / DESCRIPTION}: encoder must be one of this version's, not {name!r:.80}; {AGAIN}"
        )
    return opened
