"""Which code and data made a number: a digest of the source, the commit, versions, the pool's fingerprint."""

import platform
import sys
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from semishot import __version__, datasets
from semishot.data.pool import ImagePool
from semishot.system import provenance
from semishot.system.files import PACKAGE

PARTIAL = "partial"
"""The preparation of a pool that lacks classes of its data set: no published number refers to it."""
DATE = "%Y-%m-%dT%H:%M:%SZ"
FOLDERS = ("network", "paper", "refine", "training")
DATA_FILES = ("data/episodes.py", "data/settings.py", "data/splits.py", "prototypes.py")
DESCRIBE = {
    *(f"paper/{name}.py" for name in ("ablations", "presets", "requests")),
    *(f"paper/{name}.py" for name in ("published", "viewed_episode")),
    *(f"training/{name}.py" for name in ("code_state", "fleet_table", "records", "requests")),
    *(f"training/{name}.py" for name in ("run_folder", "tensorboard")),
}
"""Files of these folders that show, name or write numbers, or choose the settings that each record holds."""


def code_files() -> list[Path]:
    """The source files that can change a number.

    Not those that prepare images, whose result the fingerprint of the data identifies, nor those that
    only read records, sort a person's images, or run a command.
    """
    files = [path for folder in FOLDERS for path in (PACKAGE / folder).rglob("*.py")]
    files = [path for path in files if path.relative_to(PACKAGE).as_posix() not in DESCRIBE]
    return sorted([*files, *(PACKAGE / name for name in DATA_FILES)])


@cache
def code_state() -> dict[str, str]:
    """`code`, a digest of `code_files()`, and in a checkout `commit`."""
    commit = provenance.commit()
    return {
        "code": provenance.source_digest(code_files()),
        **({"commit": commit} if commit else {}),
    }


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


def data_state(pool: ImagePool) -> dict[str, str]:
    """`data`, the fingerprint's first 16 digits, and `preparation` if it is not the usual one."""
    preparation = PARTIAL if datasets.is_partial(pool) else pool.about.get("preparation")
    unusual = {"preparation": preparation} if isinstance(preparation, str) else {}
    return {"data": pool.fingerprint[:16], **unusual}
