"""Encoders by name, and the flags for `onnx:FILE`; imports nothing heavy until an encoder is opened."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from semishot.errors import InputError, printable

if TYPE_CHECKING:
    from semishot.sorter.encoders.image_encoder import ImageEncoder

DEFAULT, OMNIGLOT, ONNX, HUB = "photos", "omniglot", "onnx:", "hf:"
LITE = {"photos": 2, "photos-lite0": 0, "photos-lite2": 2}
"""Which EfficientNet-Lite it is."""
SHORT = {
    "dinov2-small": ("Xenova/dinov2-small", "Apache-2.0"),
    "clip-b32": ("Xenova/clip-vit-base-patch32", "MIT"),
    "siglip-base": ("Xenova/siglip-base-patch16-224", "Apache-2.0"),
}
"""Short names: the repository of the Hugging Face hub, and the license of its weights."""
CHOICES = (
    f"photos, photos-lite0, omniglot, {', '.join(SHORT)}, hf:OWNER/NAME, onnx:FILE, or a folder written by "
    "`semishot train`"
)
DESCRIPTION, GRAPH = "encoder.json", "encoder.onnx"
"""The files of a saved encoder."""
View = Literal["whole", "middle", "both"]
DEFAULT_VIEW: View = "both"
"""Of `--view`: most of a pile is sorted right with it, at twice the time of encoding."""


@dataclass(frozen=True)
class OnnxOptions:
    """Settings of `--encoder onnx:FILE` and `hf:OWNER/NAME`, whose own settings they override."""

    encoder_size: Annotated[int, Meta(ge=1, le=4096)] | None = None
    """onnx:FILE: the pixels of a side of its images, if the file takes any size."""
    encoder_mean: tuple[float, ...] | None = None
    """onnx:FILE: the mean subtracted from pixels of 0 to 1, one number or one per channel; by default
    ImageNet's 0.485 0.456 0.406."""
    encoder_std: tuple[Annotated[float, Meta(gt=0)], ...] | None = None
    """onnx:FILE: the std they are then divided by, likewise; by default ImageNet's 0.229 0.224 0.225."""
    encoder_crop: Annotated[float, Meta(gt=0, le=1)] | None = None
    """onnx:FILE: the share of an image's shorter side that its middle view has; by default 0.875."""
    encoder_output: str | None = None
    """onnx:FILE: the output with the features, if there are several."""
    encoder_tokens: Literal["first", "mean"] | None = None
    """onnx:FILE: of an output (images, tokens, features), the first token (the default, the class token
    of a transformer) or the mean over all."""
    encoder_bilinear: bool | None = None
    """onnx:FILE: resize by the bilinear filter; by default the bicubic one."""


def open_encoder(
    name: str, onnx: OnnxOptions | None = None, view: View | None = None
) -> "ImageEncoder":
    """Open an encoder by name.

    `photos`, `photos-lite0`, `omniglot`, `onnx:FILE`, `hf:OWNER/NAME` or a short name of one, or the path
    of a run folder or of a file by `semishot pick`; `#2` at the end of a path selects the third run.
    """
    from semishot.sorter.encoders import hub, onnx_file, pretrained

    options = onnx or OnnxOptions()
    if name.startswith(ONNX):
        path = Path(name.removeprefix(ONNX))
        encoder = onnx_file.open_onnx(f"{ONNX}{printable(path.name)}", path, options)
    elif name.startswith(HUB) or name in SHORT:
        encoder = hub.open_hub(name, options)
    elif options != OnnxOptions():
        raise InputError("--encoder-size and its like are for onnx:FILE and hf:OWNER/NAME")
    elif name in LITE:
        encoder = pretrained.open_lite(LITE[name])
    elif view is not None:
        raise InputError("--view is for photographs: photos, photos-lite0, onnx:FILE and hf:")
    else:
        return pretrained.open_run(name)
    return encoder.viewed(view or DEFAULT_VIEW)
