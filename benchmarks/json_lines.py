"""Result files that are small and still compare well line by line."""

import json
from pathlib import Path
from typing import Any

from semishot.system.files import write_whole


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
