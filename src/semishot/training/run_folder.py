"""The files of a run folder: its log, the sessions that trained it, all of it as bytes. Loads no torch."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NotRequired, TypedDict

from semishot.errors import InputError
from semishot.system import provenance
from semishot.system.files import append_line, read_regular, write_json, write_whole
from semishot.system.structs import decode, read_struct
from semishot.training.code_state import code_state, now

CONFIG_FILE, LOG_FILE, MODEL_FILE = "config.json", "log.jsonl", "model.safetensors"
STATE_FILE, LOCK_FILE = "state.pt", ".lock"
"""While it trains: the last checkpoint, and the lock."""
TRAINING_FILE = "training.json"
"""A `TrainingSession` for each process that trained it."""
ORDER = (CONFIG_FILE, LOG_FILE, TRAINING_FILE, STATE_FILE, MODEL_FILE, "result.json")
"""The order in which files are written: if interrupted at any point, the folder can be resumed."""
MOST_BYTES = 2**34
"""Of a file."""
Files = dict[str, bytes]
"""A folder as bytes, by relative path."""


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
    content = read_regular(path, MOST_BYTES) if path.exists() else b""
    lines = []
    for number, text in enumerate(content.split(b"\n")[:-1], 1):
        lines.append(decode(LogLine, text, f"{path}, line {number}"))
    return lines


def cut_log(folder: Path, step: int) -> None:
    """Drop the lines after `step`, whose updates are done again, and an incomplete last line."""
    kept = "".join(json.dumps(line) + "\n" for line in read_log(folder) if line["step"] <= step)
    write_whole(folder / LOG_FILE, kept)


class TrainingSession(TypedDict):
    """A process that trained a fleet, or a part of its updates."""

    code: str
    commit: str
    command: str
    device: str
    date: str
    seconds: float


class SessionFile(TypedDict):
    """The content of `training.json`."""

    sessions: list[TrainingSession]


class Training(TypedDict):
    """How a fleet was trained, over all its sessions; different values are joined by ` + `."""

    code: str
    commit: str
    device: str
    date: str
    """When it began."""
    seconds: float
    """From the first to the last update, while other fleets may have trained on the same device."""


@dataclass
class SessionLog:
    """The sessions of a run folder, this one last. A killed process loses the time since its last `save`,
    as it loses its updates."""

    folder: Path
    device: str
    earlier: Sequence[TrainingSession] = ()
    """Those whose updates this one continues."""
    clock: Callable[[], float] = time.monotonic
    date: str = field(init=False, default_factory=now)

    def __post_init__(self) -> None:
        self.begun = self.clock()

    def save(self) -> None:
        own = {
            "commit": "",
            **code_state(),
            "command": provenance.command(),
            "device": self.device,
            "date": self.date,
            "seconds": round(self.clock() - self.begun, 3),
        }
        write_json(self.folder / TRAINING_FILE, {"sessions": [*self.earlier, own]})


def read_sessions(path: Path) -> list[TrainingSession]:
    """Those of a `training.json`; none if there is no such file."""
    return read_struct(SessionFile, path)["sessions"] if path.exists() else []


def training_of(path: Path) -> dict[str, Training]:
    """`training` of a record, from a file of sessions; nothing if there is none."""
    sessions = read_sessions(path)
    if not sessions:
        return {}
    codes, commits, devices = (
        " + ".join(dict.fromkeys(texts))
        for texts in zip(*((s["code"], s["commit"], s["device"]) for s in sessions), strict=True)
    )
    seconds = round(sum(session["seconds"] for session in sessions), 3)
    date = sessions[0]["date"]
    return {
        "training": Training(code=codes, commit=commits, device=devices, date=date, seconds=seconds)
    }


def pack(folder: Path) -> Files:
    """The files of a run folder, without locks, to be sent to a worker or back without a shared disk."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".tmp")
    return {
        path.relative_to(folder).as_posix(): read_regular(path, MOST_BYTES)
        for path in paths
        if not path.name.endswith(LOCK_FILE)
    }


def unpack(files: Files, folder: Path) -> None:
    """Write the files in the order of `ORDER`; older checkpoints and event files are deleted."""
    for name in sorted(files, key=lambda name: ORDER.index(name) if name in ORDER else -1):
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"a worker sent a file named {name!r}, which is outside its folder")
        write_whole(path, files[name])
    for old in (*folder.rglob(STATE_FILE), *folder.glob("tensorboard/*")):
        if old.relative_to(folder).as_posix() not in files:
            old.unlink(missing_ok=True)
