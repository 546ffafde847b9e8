"""The log of a run folder, `log.jsonl`: a line of numbers at regular intervals."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from semishot.system.files import append_line, read_regular, reading, write_whole

LARGEST = 2**63
MOST_BYTES = 2**30
Line = dict[str, Any]
"""`step`, `learning_rate`, `loss` of each run, and in some lines `accuracy` of each run."""


def append_log(
    folder: Path,
    step: int,
    rate: float,
    losses: Sequence[float],
    accuracy: Sequence[float] | None = None,
) -> Line:
    line: Line = {"step": step, "learning_rate": rate, "loss": [round(loss, 5) for loss in losses]}
    if accuracy is not None:
        line["accuracy"] = [round(share, 5) for share in accuracy]
    append_line(folder / "log.jsonl", json.dumps(line))
    return line


def read_log(folder: Path) -> list[Line]:
    """Its lines, without a last one that a killed process left incomplete."""
    path, lines = folder / "log.jsonl", []
    with reading(path):
        whole = read_regular(path, MOST_BYTES).decode() if path.exists() else ""
        for text in whole.split("\n"):
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                break
            if type(line["step"]) is not int or not all(map(is_number, line["loss"])):
                raise ValueError(f"a line {text[:60]}")
            lines.append(line)
    return lines


def is_number(value: object) -> bool:
    return isinstance(value, float) or (type(value) is int and -LARGEST < value < LARGEST)


def cut_log(folder: Path, step: int) -> None:
    """Drop the lines after `step`, whose updates are done again, and an incomplete last line."""
    kept = "".join(json.dumps(line) + "\n" for line in read_log(folder) if line["step"] <= step)
    write_whole(folder / "log.jsonl", kept)
