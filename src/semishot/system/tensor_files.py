"""Tensors in safetensors files with a checksum: a damaged file is never used."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import numpy as numpy_files

from semishot.errors import InputError
from semishot.system.files import read_regular, reading, write_whole

if TYPE_CHECKING:
    from torch import Tensor

CHECKSUM = "sha256"
"""The key in the metadata of the digest of everything else."""
MOST_BYTES = 2**34


class DamagedError(InputError):
    """A file whose content has changed since it was written."""


def write_tensors(path: Path, tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str]) -> None:
    """Write a safetensors file with a checksum, the same bytes for the same content."""
    write_arrays(path, {name: tensor.cpu().numpy() for name, tensor in tensors.items()}, metadata)


def write_arrays(
    path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
) -> None:
    """The same for NumPy's arrays."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    header, data = _parts(numpy_files.save(contiguous))
    about = dict(sorted(metadata.items()))
    header = {"__metadata__": about, **header}
    about[CHECKSUM] = _digest(header, data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    write_whole(path, len(text).to_bytes(8, "little") + text + data)


def read_tensors(path: Path) -> "tuple[dict[str, Tensor], dict[str, str]]":
    """The tensors and the metadata of a file; DamagedError if a byte of it has changed."""
    import torch

    arrays, metadata = read_arrays(path)
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}, metadata


def read_arrays(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The same as NumPy's arrays."""
    content = read_regular(path, MOST_BYTES)
    with reading(path, error_type=DamagedError):
        arrays = numpy_files.load(content)
        header, data = _parts(content)
        metadata = header.setdefault("__metadata__", {})
        if not all(isinstance(text, str) for text in metadata.values()):
            raise ValueError("its metadata are not strings")
    checksum = metadata.pop(CHECKSUM, None)
    if checksum is not None and checksum != _digest(header, data):
        raise DamagedError(f"{path} is damaged: its checksum differs")
    return arrays, metadata


def _parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file and the bytes of its tensors."""
    end = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8:end])
    return header, content[end:]


def _digest(header: Mapping[str, Any], data: bytes) -> str:
    return hashlib.sha256(json.dumps(header).encode() + data).hexdigest()


def is_whole(path: Path) -> bool:
    """Whether a file exists and is undamaged."""
    try:
        return path.exists() and bool(read_arrays(path))
    except DamagedError:
        return False
