"""Signatures that only this user on this machine can make, to recognize the user's own files."""

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from platformdirs import user_data_dir

from semishot.errors import InputError
from semishot.system.files import read_regular

KEY_BYTES = 32


def can_sign() -> bool:
    """Whether this user has a key, or can store one now: what is signed now can be verified later."""
    return bool(_key())


def sign(text: str) -> str:
    """The signature of `text`; empty if this user's key cannot be stored."""
    key = _key()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest() if key else ""


def verify(text: str, signature: object) -> bool:
    if not isinstance(signature, str) or not signature:
        return False
    return hmac.compare_digest(sign(text).encode(), signature.encode(errors="replace"))


def _key() -> bytes:
    """This user's key, created on first use; empty if it cannot be stored."""
    with suppress(OSError, InputError, RuntimeError):  # RuntimeError: there is no home folder
        path = Path(user_data_dir("semishot")) / "seal.key"
        if not path.is_absolute():
            return b""  # another working folder would be another key
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _create(path)
        key = read_regular(path, KEY_BYTES)
        if len(key) == KEY_BYTES:
            return key
    return b""


def _create(path: Path) -> None:
    """Write the key atomically, readable only by this user; of two processes, the first one wins."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()
