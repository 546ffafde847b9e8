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
from semishot.sorter.encoders.onnx_file import open_onnx
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
    onnx: OnnxOptions | None = None
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
    return _by_torch(name, "open_timm" if name.startswith(TIMM) else "open_run", name)


def _by_torch(name: str, function: str, *arguments: Any) -> ImageEncoder:
    """An encoder that a function of `torch_networks` opens."""
    with needing_extra(f"the encoder {name!r}"):
        from semishot.sorter.encoders import torch_networks
    encoder: ImageEncoder = getattr(torch_networks, function)(*arguments)
    return encoder


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
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(
            f"no model in {folder}: `semishot classify` leaves one in OUT/model"
        ) from error
    if saved.format != FORMAT:
        raise InputError(f"{path}: format must be {FORMAT}, not {saved.format}; {AGAIN}")
    name = saved.encoder
    if name == FEATURES:
        return None
    if is_pretrained(name):
        encoder = open_pretrained(name)
    elif name.startswith(ONNX) and saved.onnx is not None:
        encoder = open_onnx(name, folder / GRAPH, saved.onnx)
    elif name == TRAINED:
        encoder = _by_torch(name, "run_encoder", name, folder / WEIGHTS)
    elif name.startswith(TIMM):
        encoder = _by_torch(name, "open_timm", name, folder / WEIGHTS)
    else:
        raise InputError(
            f"{path}: encoder must be one of this version's, not {name!r:.80}; {AGAIN}"
        )
    if encoder.identity != saved.identity:
        raise InputError(
            f"the encoder {name!r} is not the one of {folder}: its weights or how it prepares images have "
            f"changed; {AGAIN}"
        )
    return encoder
