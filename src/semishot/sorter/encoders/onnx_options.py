"""The settings of an ONNX encoder, each a flag of the command. Nothing here imports torch."""

from dataclasses import dataclass
from typing import Literal

from semishot.errors import InputError, check_number
from semishot.system.json_fields import fits

MOST_PIXELS = 10_000


@dataclass(frozen=True)
class OnnxOptions:
    """Settings of `--encoder onnx:FILE`; the file may hold the same names as metadata."""

    encoder_size: int | None = None
    """onnx:FILE: the pixels of a side of its images, if the file takes any size."""
    encoder_mean: tuple[float, ...] | None = None
    """onnx:FILE: the mean subtracted from pixels of 0 to 1, one number or one per channel; by default
    ImageNet's 0.485 0.456 0.406."""
    encoder_std: tuple[float, ...] | None = None
    """onnx:FILE: the std they are then divided by, likewise; by default ImageNet's 0.229 0.224 0.225."""
    encoder_crop: float | None = None
    """onnx:FILE: the share of an image's shorter side that is seen, in the middle; by default 0.875."""
    encoder_output: str | None = None
    """onnx:FILE: the output with the features, if there are several."""
    encoder_tokens: Literal["first", "mean"] | None = None
    """onnx:FILE: of an output (images, tokens, features), the first token (the default, the class token
    of a transformer) or the mean over all."""

    def __post_init__(self) -> None:
        size, crop = self.encoder_size, self.encoder_crop
        if size is not None and (type(size) is not int or size < 1):
            raise InputError(f"encoder_size must be a number of pixels, not {size!r:.40}")
        check_number("encoder_size", size or 1, 1, MOST_PIXELS)
        for name in ("encoder_mean", "encoder_std"):
            values = getattr(self, name)
            if values is not None and (
                len(values) not in (1, 3) or not all(fits(value, float) for value in values)
            ):
                raise InputError(f"{name} must be one number or three, not {values!r:.80}")
        if self.encoder_std is not None and min(self.encoder_std) <= 0:
            raise InputError(f"encoder_std must be positive, not {self.encoder_std}")
        if crop is not None and not (fits(crop, float) and 0 < crop <= 1):
            raise InputError(f"encoder_crop must be above 0 and at most 1, not {crop!r:.40}")
        if not isinstance(self.encoder_output, str | None):
            raise InputError(f"encoder_output must be a name, not {self.encoder_output!r:.40}")
        if self.encoder_tokens not in (None, "first", "mean"):
            raise InputError(
                f"encoder_tokens must be first or mean, not {self.encoder_tokens!r:.40}"
            )
