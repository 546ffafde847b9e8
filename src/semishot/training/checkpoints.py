"""Checkpoints of a training on disk: each carries a checksum, and a damaged one is never used."""

import hashlib
import io
import sys
import zipfile
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO

import torch

from semishot.system.files import check_replaceable, read_regular, reading, write_whole_with
from semishot.system.tensor_files import MOST_BYTES, DamagedError, is_whole

MODEL_FILE = "model.safetensors"
"""In a run folder: the trained fleet."""
STATE_FILE, PREVIOUS_STATE_FILE, LOCK_FILE = "state.pt", "state.before.pt", ".lock"
"""In a run folder while it trains: the last checkpoint, the one before, and the lock."""
DIGEST_BYTES = 32
"""The size of the digest at the end of a checkpoint, which `torch.load` ignores."""


def save_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Save a checkpoint; the one before is kept, in case this one is damaged later."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    content += hashlib.sha256(content).digest()
    check_replaceable(folder / PREVIOUS_STATE_FILE)

    def write(file: BinaryIO) -> None:
        file.write(content)
        if (folder / STATE_FILE).exists():
            (folder / STATE_FILE).replace(folder / PREVIOUS_STATE_FILE)

    write_whole_with(folder / STATE_FILE, write)


def load_state(path: Path, device: torch.device) -> dict[str, Any]:
    """Read what `save_state` wrote; DamagedError if a byte of it has changed."""
    content = read_regular(path, MOST_BYTES)
    content, digest = content[:-DIGEST_BYTES], content[-DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        raise DamagedError(f"{path} is damaged: its checksum differs")
    with reading(path, "it is not a checkpoint of this version", DamagedError):
        _check_stored(content)
        state: dict[str, Any] = torch.load(io.BytesIO(content), device, weights_only=True)
    return state


def _check_stored(content: bytes) -> None:
    """Refuse compressed content: `torch.save` compresses nothing, and it could unpack to any size."""
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        members = opened.infolist()
    total = sum(member.file_size for member in members)
    if any(member.compress_type for member in members) or total > len(content):
        raise ValueError(f"{total:,} bytes in {len(content):,}")


def last_good_state(folder: Path, device: torch.device) -> dict[str, Any] | None:
    """The newest undamaged checkpoint, with a warning for a damaged one."""
    held = [folder / name for name in (STATE_FILE, PREVIOUS_STATE_FILE) if (folder / name).exists()]
    for path, next_best in zip_longest(held, held[1:]):
        try:
            return load_state(path, device)
        except DamagedError as error:
            then = f"continuing from {next_best.name}" if next_best else "training from the start"
            print(f"{error}; {then}", file=sys.stderr)
    return None


def unfinished(folder: Path) -> bool:
    """Whether there is something to train, or to clean up after a killed process."""
    leftovers = any(
        (folder / name).exists() for name in (STATE_FILE, PREVIOUS_STATE_FILE, LOCK_FILE)
    )
    return leftovers or not is_whole(folder / MODEL_FILE)


def delete_checkpoints(folder: Path) -> None:
    for name in (STATE_FILE, PREVIOUS_STATE_FILE):
        (folder / name).unlink(missing_ok=True)
