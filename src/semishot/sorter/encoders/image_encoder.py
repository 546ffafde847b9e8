"""Encoders by name, and an encoder as part of a saved model."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from semishot.errors import InputError, printable
from semishot.sorter.boxes import read_boxes
from semishot.sorter.encoders.encoder_options import (
    CHOICES,
    DEFAULT_VIEW,
    DESCRIPTION,
    FEATURES,
    GRAPH,
    HUB,
    OMNIGLOT,
    ONNX,
    SHORT,
    TRAINED,
    WEIGHTS,
    OnnxOptions,
    View,
)
from semishot.sorter.encoders.networks import ImageEncoder, viewed
from semishot.sorter.encoders.onnx_file import open_onnx
from semishot.sorter.encoders.pretrained import open_packaged, open_run
from semishot.system.files import write_json
from semishot.system.structs import read_struct

__all__ = ["ImageEncoder", "load_encoder", "open_encoder", "save_encoder"]

FORMAT = 1
AGAIN = "run `semishot classify` again"
MODEL_FILE = "model.safetensors"
"""In a run folder."""


@dataclass(frozen=True)
class EncoderDescription:
    """The fields of `encoder.json`."""

    format: int
    encoder: str
    identity: str = ""
    onnx: OnnxOptions | None = None
    view: View | None = None
    """Of photographs."""
    cropped: bool = False
    revision: str = ""
    sha256: str = ""
    """Of the hub: the revision of the repository, and the digest of the file of the graph."""
    notice: str = ""
    """The license of the weights."""


def open_encoder(
    name: str, onnx: OnnxOptions | None = None, view: View | None = None
) -> ImageEncoder:
    """Open an encoder by name.

    `photos`, `photos-lite0`, `omniglot`, `onnx:FILE`, `hf:OWNER/NAME` or a short name of one, or the path
    of a run folder or of a file by `semishot pick`; `#2` at the end of a path selects the third run.
    """
    options = onnx or OnnxOptions()
    if name.startswith(ONNX):
        path = Path(name.removeprefix(ONNX))
        encoder = open_onnx(f"{ONNX}{printable(path.name)}", path, options)
    elif name.startswith(HUB) or name in SHORT:
        from semishot.sorter.encoders.hub import open_hub

        encoder = open_hub(name, options)
    elif options != OnnxOptions():
        raise InputError("--encoder-size and its like are for onnx:FILE and hf:OWNER/NAME")
    else:
        packaged = open_packaged(name)
        if packaged is None or name == OMNIGLOT:
            if view is not None:
                raise InputError(
                    "--view is for photographs: photos, photos-lite0, onnx:FILE and hf:"
                )
            return packaged or _of_run(name)
        encoder = packaged
    return viewed(encoder, view or DEFAULT_VIEW)


def _of_run(name: str) -> ImageEncoder:
    """By the path of a run folder or a file in it, with the number of the run behind #."""
    source, _, number = name.partition("#")
    path = Path(source) / MODEL_FILE if Path(source).is_dir() else Path(source)
    if not path.is_file():
        raise InputError(f"no encoder {name!r}: choose {CHOICES}")
    return open_run(name, path, number)


def save_encoder(encoder: ImageEncoder | None, folder: Path) -> None:
    """Write `encoder.json`, and weights unless they come with a package: no other file is needed.

    None: there is no encoder, the classifier was given features.
    """
    fields: dict[str, Any] = {"format": FORMAT, "encoder": FEATURES}
    if encoder is not None:
        fields |= {"encoder": encoder.name, "identity": encoder.identity}
        fields |= {"notice": encoder.notice} if encoder.notice else {}
        fields |= {"cropped": True} if encoder.cropped else {}
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
    encoder = None
    if saved.onnx is not None:
        encoder = open_onnx(name, folder / GRAPH, saved.onnx)
    elif name == TRAINED and not (folder / WEIGHTS).is_file():
        raise InputError(f"no {folder / WEIGHTS}: {AGAIN}")
    elif name == TRAINED:
        encoder = open_run(name, folder / WEIGHTS)
    encoder = encoder or open_packaged(name)
    if encoder is None:
        raise InputError(
            f"{path}: encoder must be one of this version's, not {name!r:.80}; {AGAIN}"
        )
    if saved.view is not None:
        encoder = viewed(encoder, saved.view)
    if encoder.identity != saved.identity:
        raise InputError(
            f"the encoder {name!r} is not the one of {folder}: its weights or how it prepares images have "
            f"changed; {AGAIN}"
        )
    return replace(encoder, notice=saved.notice, cropped=saved.cropped)


def with_boxes(encoder: ImageEncoder, crop: Path | None) -> ImageEncoder:
    """An encoder that sees the boxes of a detector's file, if one is given."""
    if crop is None:
        return encoder
    return replace(encoder, boxes=read_boxes(crop), cropped=True)
