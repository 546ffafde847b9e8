"""The files of a run folder, and which code, data and devices made its numbers. Loads no torch."""

import json
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NotRequired, TypedDict

import numpy as np

from semishot import __version__, datasets
from semishot.data.pool import ImagePool
from semishot.system import provenance
from semishot.system.files import PACKAGE, append_line, read_regular, write_json, write_whole
from semishot.system.structs import decode, read_struct

CONFIG_FILE, LOG_FILE, MODEL_FILE = "config.json", "log.jsonl", "model.safetensors"
STATE_FILE, LOCK_FILE = "state.pt", ".lock"
"""While it trains: the last checkpoint, and the lock."""
TRAINING_FILE = "training.json"
"""Its `Training`, up to the last checkpoint."""
MOST_LOG = 2**34
PARTIAL = "partial"
"""The preparation of a pool that lacks classes of its data set: no published number refers to it."""
DATE = "%Y-%m-%dT%H:%M:%SZ"
FOLDERS = ("network", "paper", "refine", "training")
DATA_FILES = ("data/episodes.py", "data/settings.py", "data/splits.py", "prototypes.py")


class LogLine(TypedDict):
    """The state of a training after some updates."""

    step: int
    learning_rate: float
    loss: list[float]
    """Of each run, the mean since the last line."""
    accuracy: NotRequired[list[float]]
    """Of each run, on validation episodes."""


def append_log(
    folder: Path,
    step: int,
    rate: float,
    losses: Sequence[float],
    accuracy: Sequence[float] | None = None,
) -> LogLine:
    loss = [round(value, 5) for value in losses]
    line: LogLine = {"step": step, "learning_rate": rate, "loss": loss}
    if accuracy is not None:
        line["accuracy"] = [round(share, 5) for share in accuracy]
    append_line(folder / LOG_FILE, json.dumps(line))
    return line


def read_log(folder: Path) -> list[LogLine]:
    """Its lines, without a last one that a killed process left incomplete."""
    path = folder / LOG_FILE
    texts = read_regular(path, MOST_LOG).split(b"\n")[:-1] if path.exists() else []
    return [decode(LogLine, text, f"{path}, line {i}") for i, text in enumerate(texts, 1)]


def cut_log(folder: Path, step: int) -> None:
    """Drop the lines after `step`, whose updates are done again, and an incomplete last line."""
    kept = "".join(json.dumps(line) + "\n" for line in read_log(folder) if line["step"] <= step)
    write_whole(folder / LOG_FILE, kept)


class Training(TypedDict):
    """How a fleet was trained, by one process or by several; different values are joined by ` + `."""

    code: str
    commit: str
    device: str
    date: str
    """When it began."""
    seconds: float
    """From the first to the last update, while other fleets may have trained on the same device."""


@dataclass
class SessionLog:
    """What this process trains of a run folder. If killed it loses the time since its last `save`, as it
    loses its updates."""

    folder: Path
    device: str
    earlier: Training | None = None
    """What it continues."""
    date: str = field(init=False, default_factory=lambda: now())
    begun: float = field(init=False, default_factory=lambda: time.monotonic())

    def save(self) -> None:
        code, commit = code_state()["code"], code_state().get("commit", "")
        seconds = round(time.monotonic() - self.begun, 3)
        own = Training(
            code=code, commit=commit, device=self.device, date=self.date, seconds=seconds
        )
        parts = [own] if self.earlier is None else [self.earlier, own]
        write_json(self.folder / TRAINING_FILE, joined(parts))


def joined(parts: Sequence[Training]) -> Training:
    """One training in several parts, one after the other."""

    def each(name: Literal["code", "commit", "device"]) -> str:
        return " + ".join(dict.fromkeys(x for part in parts for x in part[name].split(" + ")))

    return Training(
        code=each("code"),
        commit=each("commit"),
        device=each("device"),
        date=parts[0]["date"],
        seconds=round(sum(part["seconds"] for part in parts), 3),
    )


def training_of(path: Path) -> dict[str, Training]:
    """`training` of a record, from a `training.json`; nothing if there is none."""
    return {"training": read_struct(Training, path)} if path.exists() else {}


@cache
def code_state() -> dict[str, str]:
    """`code`, a digest of the source files that can change a number, and in a checkout `commit`.

    Not of those that prepare images, whose result the fingerprint of the data identifies, nor of those
    that only read records, sort a person's images, or run a command.
    """
    files = [path for folder in FOLDERS for path in (PACKAGE / folder).rglob("*.py")]
    code = provenance.source_digest(sorted([*files, *(PACKAGE / name for name in DATA_FILES)]))
    commit = provenance.commit()
    return {"code": code, **({"commit": commit} if commit else {})}


def data_state(pool: ImagePool) -> dict[str, str]:
    """`data`, the fingerprint's first 16 digits, and `preparation` if it is not the usual one."""
    preparation = PARTIAL if datasets.is_partial(pool) else pool.about.get("preparation")
    unusual = {"preparation": preparation} if isinstance(preparation, str) else {}
    return {"data": pool.fingerprint[:16], **unusual}


def versions() -> dict[str, str]:
    """Of what computes; torch is imported here, and left out where it is not installed."""
    installed = find_spec("torch") is not None
    return {
        "semishot": __version__,
        **({"torch": str(import_module("torch").__version__)} if installed else {}),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def now() -> str:
    return datetime.now(UTC).strftime(DATE)


def saved_after(method: str, date: str) -> Path | None:
    """The file of an imported method MODULE:CLASS, if it was saved after this second, as in `now()`."""
    file = getattr(sys.modules.get(method.partition(":")[0]), "__file__", None)
    if file is None or not Path(file).is_file():
        return None
    saved = datetime.fromtimestamp(Path(file).stat().st_mtime, UTC).strftime(DATE)
    return Path(file) if saved > date else None
