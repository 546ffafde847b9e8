"""Names of encoders, files of a saved one, and the flags for `onnx:FILE`; imports nothing heavy."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

DEFAULT, OMNIGLOT, ONNX, HUB = "photos", "omniglot", "onnx:", "hf:"
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
View = Literal["whole", "middle", "both"]
DEFAULT_VIEW: View = "both"
"""Of `--view`: most of a pile is sorted right with it, at twice the time of encoding."""
FEATURES, TRAINED = "features", "trained by semishot"
"""In `encoder.json`: there is no encoder, as the classifier was given features; a run of semishot."""
DESCRIPTION, WEIGHTS, GRAPH = "encoder.json", "encoder.safetensors", "encoder.onnx"


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
