"""Where a number comes from: the state of the code, versions, the sessions that trained a fleet, the data."""

import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TypedDict

import numpy as np

from semishot import __version__, datasets
from semishot.data.pool import ImagePool
from semishot.system import provenance
from semishot.system.files import PACKAGE, read_json, write_json
from semishot.system.json_fields import from_json

PARTIAL = "partial"
"""The preparation of a pool that lacks classes of its data set: no published number refers to it."""
TRAINING_FILE = "training.json"
"""In a run folder: a `Session` for each process that trained it."""
DATE = "%Y-%m-%dT%H:%M:%SZ"
ROOMS = ("network", "paper", "refine", "training")
DATA_FILES = ("data/episodes.py", "data/settings.py", "data/splits.py", "prototypes.py")
DESCRIBE = {
    *(f"paper/{name}.py" for name in ("ablations", "presets", "requests", "scenes")),
    *(f"paper/{name}.py" for name in ("published", "published_baselines")),
    *(f"training/{name}.py" for name in ("fleet_table", "log", "observer", "origin", "records")),
    *(f"training/{name}.py" for name in ("recipe_choices", "requests", "result_files")),
    "training/tensorboard.py",
}
"""Files of these rooms that show, name or write numbers, or choose the settings that each record holds."""


def code_files() -> list[Path]:
    """The source files that can change a number.

    Not those that prepare images, whose result the fingerprint of the data identifies, nor those that
    only read records, sort a person's images, or run a command.
    """
    found = [path for room in ROOMS for path in (PACKAGE / room).rglob("*.py")]
    found = [path for path in found if path.relative_to(PACKAGE).as_posix() not in DESCRIBE]
    return sorted([*found, *(PACKAGE / name for name in DATA_FILES)])


@cache
def code_state() -> dict[str, str]:
    """`code`, a digest of `code_files()`, and in a checkout `commit`."""
    commit = provenance.commit()
    return {
        "code": provenance.source_digest(code_files()),
        **({"commit": commit} if commit else {}),
    }


def versions() -> dict[str, str]:
    import torch  # here: reading records does not need it

    return {
        "semishot": __version__,
        "torch": torch.__version__,
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


def data_state(pool: ImagePool) -> dict[str, str]:
    """`data`, the fingerprint's first 16 digits, and `preparation` if it is not the usual one."""
    preparation = PARTIAL if datasets.is_partial(pool) else pool.about.get("preparation")
    kept = {"preparation": preparation} if isinstance(preparation, str) else {}
    return {"data": pool.fingerprint[:16], **kept}


class Session(TypedDict):
    """A process that trained a fleet, or a part of its updates."""

    code: str
    commit: str
    command: str
    device: str
    date: str
    seconds: float


class SessionFile(TypedDict):
    """The content of `training.json`."""

    sessions: list[Session]


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
class Sessions:
    """The sessions of a run folder, this one last. A killed process loses the time since its last `save`,
    as it loses its updates."""

    folder: Path
    device: str
    resumed: bool = False
    """Whether this one goes on where the earlier ones were; otherwise their updates are lost, and so are
    they."""
    before: Sequence[Session] = ()
    """Of the training that this one starts from, if it is not resumed."""
    clock: Callable[[], float] = time.monotonic
    earlier: list[Session] = field(init=False)
    date: str = field(init=False, default_factory=now)

    def __post_init__(self) -> None:
        held = read_sessions(self.folder / TRAINING_FILE) if self.resumed else []
        self.earlier = held or list(self.before)
        self.begun = self.clock()

    def save(self) -> None:
        state, command = {"commit": "", **code_state()}, provenance.command()
        seconds = round(self.clock() - self.begun, 3)
        own = {**state, "command": command, "device": self.device, "date": self.date}
        write_json(
            self.folder / TRAINING_FILE, {"sessions": [*self.earlier, {**own, "seconds": seconds}]}
        )


def read_sessions(path: Path) -> list[Session]:
    """None of them if there is no such file."""
    try:
        held = read_json(path)
    except FileNotFoundError:
        return []
    return from_json(SessionFile, held, path)["sessions"]


def training_of(path: Path) -> dict[str, Training]:
    """`training` of a record, from a file of sessions; nothing for a fleet of before they were written."""
    held = read_sessions(path)
    if not held:
        return {}
    codes, commits, devices = (
        " + ".join(dict.fromkeys(texts))
        for texts in zip(*((s["code"], s["commit"], s["device"]) for s in held), strict=True)
    )
    seconds = round(sum(session["seconds"] for session in held), 3)
    date = held[0]["date"]
    return {
        "training": Training(code=codes, commit=commits, device=devices, date=date, seconds=seconds)
    }
