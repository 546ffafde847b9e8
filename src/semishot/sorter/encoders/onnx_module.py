"""`--encoder onnx:FILE`: any image model as an encoder, run by onnxruntime on the CPU.

The layout and type of the input are read from the file; `onnx_choices` chooses size and scale. Letters:
B images, H x W pixels, C channels, D features.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from semishot.errors import InputError, reason_of
from semishot.sorter.encoders.onnx_files import cpu_session, imported
from semishot.sorter.encoders.onnx_preparation import Pooling, Preparation, Scaling

FLOATS = {
    "tensor(float)": torch.float32,
    "tensor(float16)": torch.float16,
    "tensor(double)": torch.float64,
}
UINT8 = "tensor(uint8)"
POOLED = ("image_embeds", "pooler_output", "image_features", "embedding", "embeddings", "features")
"""Outputs that are taken for the features, the first of these that a file has."""
MOST_AT_ONCE = 1024
PURPOSE = "an ONNX encoder"


class OnnxModule(nn.Module):
    """uint8 (B, H, W, C) -> float32 (B, D), by onnxruntime. `prepare` completes it."""

    preparation: Preparation
    features: int

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__()
        self.data, self.name = data, name
        self.runtime = f"onnxruntime {imported('onnxruntime', PURPOSE).__version__}"
        self.session = session_of(data, name)
        self.takes = single_input(self.session, name)
        first = self.takes.shape[0]
        self.batch: int | None = first if isinstance(first, int) else None
        if self.batch is not None and not 1 <= self.batch <= MOST_AT_ONCE:
            raise InputError(f"{name} takes {first:,} images at once, not 1 to {MOST_AT_ONCE}")
        self.channels_last = is_channels_last(self.takes.shape, name)

    def prepare(self, preparation: Preparation) -> None:
        """Set how images are prepared, and try it on noise."""
        self.preparation = preparation
        dtype = FLOATS.get(self.takes.type, torch.uint8)
        self.scaling = Scaling(preparation, dtype, self.channels_last)
        self.pooling = Pooling(preparation.tokens, self.channels_last)
        shape = (2, preparation.height, preparation.width, preparation.channels)
        noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        found = self(torch.from_numpy(noise))
        self.features = int(found.shape[1])
        if not found.isfinite().all():
            raise InputError(
                f"{self.name}: its output {preparation.output!r} is not finite for an image of noise; "
                "check --encoder-mean and --encoder-std"
            )

    def forward(self, images: Tensor) -> Tensor:
        scaled = self.scaling(images.cpu()).contiguous().numpy()
        size = self.batch or len(scaled)
        parts = []
        for start in range(0, len(scaled), size):
            part = scaled[start : start + size]
            filled = np.concatenate([part, *[part[-1:]] * (size - len(part))])  # a fixed batch
            parts.append(self.run(filled)[: len(part)])
        features: Tensor = self.pooling(torch.from_numpy(np.concatenate(parts)))
        return features.to(images.device)

    def run(self, given: NDArray[Any]) -> NDArray[Any]:
        """The output of one batch, before pooling."""
        name = self.preparation.output
        try:
            found = np.asarray(self.session.run([name], {self.takes.name: given})[0])
        except Exception as error:  # onnxruntime's own types
            raise InputError(
                f"{self.name} cannot be run on images {given.shape} ({reason_of(error)})"
            ) from error
        if found.ndim not in (2, 3, 4) or len(found) != len(given) or 0 in found.shape:
            raise InputError(
                f"{self.name}: its output {name!r} has the shape {found.shape} for {len(given)} images, "
                "not (images, features); name another with --encoder-output"
            )
        return found


def session_of(data: bytes, name: str) -> Any:
    """A session with as many threads as torch has."""
    try:
        session = cpu_session(data, torch.get_num_threads(), PURPOSE)
        read_names(session)
        return session
    except Exception as error:
        raise InputError(f"onnxruntime cannot open {name} ({reason_of(error)})") from error


def read_names(session: Any) -> list[Any]:
    """All that is read later: names that are not UTF-8 are an error now."""
    about = session.get_modelmeta().custom_metadata_map
    return [about, *((o.name, o.shape) for o in (*session.get_inputs(), *session.get_outputs()))]


def single_input(session: Any, name: str) -> Any:
    inputs = session.get_inputs()
    if len(inputs) != 1:
        found = ", ".join(one.name for one in inputs)[:120] or "none"
        raise InputError(
            f"{name} has {len(inputs)} inputs ({found}), not one: export the part that takes images"
        )
    (takes,) = inputs
    if len(takes.shape) != 4:
        raise InputError(
            f"{name}: its input {takes.name!r} has {len(takes.shape)} axes, not 4: (images, channels, "
            "height, width) or (images, height, width, channels)"
        )
    if takes.type != UINT8 and takes.type not in FLOATS:
        raise InputError(f"{name}: its input {takes.name!r} is {takes.type}, not float or uint8")
    return takes


def is_channels_last(shape: list[Any], name: str) -> bool:
    """Where the channels are: 1 or 3 fixed, first place before last; by name otherwise, or first."""
    if shape[1] in (1, 3):
        return False
    if shape[3] in (1, 3):
        return True
    if isinstance(shape[1], int):
        raise InputError(f"{name} takes images {shape}, without an axis of 1 or 3 channels")
    return "channel" in str(shape[3]).lower()


def output_of(module: OnnxModule, wanted: str | None) -> str:
    """The output with the features."""
    outputs = {one.name: one for one in module.session.get_outputs()}
    listed = ", ".join(outputs)[:200]
    flat = [name for name, one in outputs.items() if len(one.shape or ()) == 2]
    if wanted is not None and wanted not in outputs:
        raise InputError(f"{module.name} has no output {wanted!r:.80}, but {listed}")
    named = [name for name in POOLED if name in outputs]
    if wanted is not None:
        name = wanted
    elif len(outputs) == 1:
        (name,) = outputs
    elif named:
        name = named[0]
    elif len(flat) == 1:
        (name,) = flat
    else:
        raise InputError(
            f"{module.name} has {len(outputs)} outputs: name the one with the features, "
            f"--encoder-output {listed}"
        )
    if outputs[name].type not in FLOATS:
        raise InputError(f"{module.name}: its output {name!r} is {outputs[name].type}, not float")
    return str(name)


def open_onnx(path: Path, data: bytes, preparation: Preparation) -> OnnxModule:
    """The module of a saved encoder; its description may contradict the file."""
    module = OnnxModule(data, str(path))
    output_of(module, preparation.output)
    if bool(preparation.mean) == (module.takes.type == UINT8):
        raise InputError(f"{path} takes {module.takes.type}, which contradicts its mean and std")
    module.prepare(preparation)
    return module
