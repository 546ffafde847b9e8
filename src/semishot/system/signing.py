"""A seal that only this user on this machine can put on a text, so that it can be believed later."""

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from platformdirs import user_data_dir

KEY_BYTES = 32


def sealed(text: str) -> str:
    """The seal; empty where this user has no place for a key."""
    key = _key()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest() if key else ""


def is_sealed(text: str, seal: object) -> bool:
    if not isinstance(seal, str) or not seal:
        return False
    return hmac.compare_digest(sealed(text).encode(), seal.encode(errors="replace"))


def _key() -> bytes:
    """This user's own, made when it is first needed; nothing if it cannot be kept."""
    path = Path(user_data_dir("semishot")) / "seal.key"
    with suppress(OSError):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _make(path)
        key = path.read_bytes()
        if len(key) == KEY_BYTES:
            return key
    return b""


def _make(path: Path) -> None:
    """Whole or not at all, and readable by nobody else; of two at once the first one's stays."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    place = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(place, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()
