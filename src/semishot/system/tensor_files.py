"""Tensors in a file that carries its checksum: a damaged one is never believed."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor

from semishot.errors import InputError
from semishot.system.files import check_regular, write_whole

SEAL = "sha256"
"""In a model file's metadata: the digest of all the rest. Files of older versions have none."""


class DamagedError(InputError):
    """A file whose content is not what was written."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """A safetensors file, the same bytes for the same content, with the digest of all of it."""
    held = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    header, data = _parts(safetensors.save(held))
    about = dict(sorted(metadata.items()))
    header = {"__metadata__": about, **header}
    about[SEAL] = _digest(header, data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    content = len(text).to_bytes(8, "little") + text + data
    write_whole(path, lambda temporary: temporary.write_bytes(content))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a file; DamagedError if a byte of it has changed."""
    check_regular(path)
    content = path.read_bytes()
    try:
        tensors = safetensors.load(content)
        header, data = _parts(content)
        metadata = header.setdefault("__metadata__", {})
        if not all(isinstance(text, str) for text in metadata.values()):
            raise ValueError("its metadata are no texts")
    except (SafetensorError, ValueError, AttributeError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged or no model of ours: {error}") from error
    seal = metadata.pop(SEAL, None)
    if seal is not None and seal != _digest(header, data):
        raise DamagedError(f"{path} is damaged: its checksum differs")
    return tensors, metadata


def _parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file and the bytes of its tensors."""
    end = 8 + int.from_bytes(content[:8], "little")
    header: dict[str, Any] = json.loads(content[8:end])
    return header, content[end:]


def _digest(header: Mapping[str, Any], data: bytes) -> str:
    return hashlib.sha256(json.dumps(header).encode() + data).hexdigest()


def is_whole(path: Path) -> bool:
    """Whether a model file is there and undamaged."""
    try:
        return path.exists() and bool(read_tensors(path))
    except DamagedError:
        return False
