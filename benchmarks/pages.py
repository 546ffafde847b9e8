"""Result files, aligned tables, and the parts of docs/ that are filled from them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from semishot.system.files import write_whole


def between(document: str, begin: str, end: str, parts: Sequence[str]) -> str:
    """The document with these parts between its marks."""
    before, rest = document.split(begin)
    _, after = rest.split(end)
    return "\n\n".join([before + begin, *parts, end + after])


def versions_of(result: dict[str, Any]) -> str:
    """As in `semishot 0.2.0, torch 2.13.0`."""
    return ", ".join(f"{name} {version}" for name, version in result["versions"].items())


def write_lines(path: Path, value: dict[str, Any]) -> None:
    """JSON with a line for each key, and for each entry of a list or object of entries."""
    text = "{\n" + ",\n".join(f" {dumped(k)}: {entries(v)}" for k, v in value.items()) + "\n}\n"
    write_whole(path, text)


def entries(value: Any) -> str:
    if isinstance(value, list) and any(isinstance(v, dict) for v in value):
        return "[\n  " + ",\n  ".join(map(dumped, value)) + "\n ]"
    if isinstance(value, dict) and any(isinstance(v, dict) for v in value.values()):
        return (
            "{\n  " + ",\n  ".join(f"{dumped(k)}: {dumped(v)}" for k, v in value.items()) + "\n }"
        )
    return dumped(value)


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, numbers to the right."""
    wide = [max(len(row[c]) for row in [head, *rows]) for c in range(len(head))]
    lines = [
        "| "
        + " | ".join(cell.rjust(w) if c else cell.ljust(w) for c, (cell, w) in enumerate(pairs))
        for pairs in (list(zip(row, wide, strict=True)) for row in [head, *rows])
    ]
    rule = "|".join("-" * (w + 2) if not c else "-" * (w + 1) + ":" for c, w in enumerate(wide))
    return "\n".join([f"{lines[0]} |", f"|{rule}|", *(f"{line} |" for line in lines[1:])])
