"""Result files: lists of records, read and published. Reading loads no torch."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from semishot.errors import InputError
from semishot.system.files import read_json, write_whole
from semishot.system.locks import Lock
from semishot.training.records import Record, as_records, without_episodes

SETTINGS = (
    *("kind", "dataset", "preset", "model", "features", "options", "trained_as", "variant"),
    *("source", "preparation"),
    *("split", "split_seed", "episodes", "at_test"),
    *("way", "shot", "query", "unlabeled", "distractors", "within_group", "recipe", "train"),
)
"""The fields that identify a measurement: a second one with equal fields replaces the first."""


def read_records(path: Path) -> list[Record]:
    """The records of a result file."""
    return as_records(read_result_file(path), path)


def read_result_file(path: Path) -> Any:
    """The JSON content of a file: records, a choice, or a benchmark."""
    try:
        return read_json(path)
    except (OSError, InputError) as error:
        raise InputError(f"cannot read result file {path}: {error}") from error


def identity(record: Record) -> str:
    """Equal for two measurements of the same thing."""
    return json.dumps([record.get(name) for name in SETTINGS])


def publish(records: Sequence[Record], path: Path) -> None:
    """Add records to a result file, one per line, without the accuracies of single episodes."""
    with Lock(path.with_name(f".{path.name}.lock")):
        merged = {
            identity(record): record for record in (read_records(path) if path.exists() else [])
        }
        merged |= {identity(record): without_episodes(record) for record in records}
        lines = [json.dumps(record, ensure_ascii=False) for record in merged.values()]
        text = "[\n" + ",\n".join(lines) + "\n]\n"
        write_whole(path, text)
