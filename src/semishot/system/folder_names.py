"""Class names as folder names: valid on any system and unique; and names that are easily confused."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable

LONGEST = 120
"""The longest folder name, in bytes."""
RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


def folder_names(classes: Iterable[str], *reserved: str) -> dict[str, str]:
    """A folder name for each class: its own name where it is valid everywhere and unique."""
    taken, found = {folded(name) for name in reserved}, {}
    for label in sorted(classes):
        name, number = safe_name(label), 1
        while folded(name) in taken:
            number += 1
            name = f"{safe_name(label)}~{number}"
        taken.add(folded(name))
        found[label] = name
    return found


def safe_name(name: str) -> str:
    """A valid part of a path on any system: other characters become %XX."""
    kept = [c if c.isprintable() and c not in '/\\:*?"<>|%' else quoted(c) for c in name]
    text = "".join(kept)
    if text[:1] in (".", " ", "~", "-"):
        text = quoted(text[0]) + text[1:]
    if text[-1:] in (".", " "):
        text = text[:-1] + quoted(text[-1])
    if not text or RESERVED.fullmatch(text):
        text = f"{text}%"
    if len(text.encode()) <= LONGEST:
        return text
    short = text.encode()[: LONGEST - 10].decode(errors="ignore")
    return f"{short}~{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def quoted(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


def alike(names: Iterable[str]) -> list[list[str]]:
    """Groups of names that differ only in case, spaces, _, - or the encoding of é: perhaps one class."""
    groups: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        groups.setdefault(re.sub(r"[\s_-]", "", folded(name)), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def folded(name: str) -> str:
    """Equal for names that some file systems do not distinguish: by case, or by the encoding of é."""
    return unicodedata.normalize("NFC", name).casefold()
