"""The files of a saved encoder, and the names of encoders in them. Nothing here imports torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from semishot.errors import InputError

FORMAT = 1
DEFAULT, OMNIGLOT = "photos", "omniglot"
FEATURES = "features"
"""In `encoder.json`: there is no encoder, since the classifier was given features."""
TRAINED, ONNX = "trained by semishot", "onnx:"
DESCRIPTION, WEIGHTS, GRAPH = "encoder.json", "encoder.safetensors", "encoder.onnx"
AGAIN = "run `semishot classify` again"


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
