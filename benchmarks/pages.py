"""What pages of docs/ take from result files: the part between two marks, and what it was measured with."""

from collections.abc import Sequence
from typing import Any


def between(document: str, begin: str, end: str, parts: Sequence[str]) -> str:
    """The document with these parts between its marks."""
    before, rest = document.split(begin)
    _, after = rest.split(end)
    return "\n\n".join([before + begin, *parts, end + after])


def versions_of(result: dict[str, Any]) -> str:
    """As in `semishot 0.2.0, torch 2.13.0`."""
    return ", ".join(f"{name} {version}" for name, version in result["versions"].items())
