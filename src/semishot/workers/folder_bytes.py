"""A folder as bytes, sent to a worker and back without a shared disk."""

from pathlib import Path

from semishot.errors import InputError
from semishot.system.files import read_regular, real_path, write_whole
from semishot.system.tensor_files import MOST_BYTES
from semishot.training.checkpoints import LOCK_FILE, MODEL_FILE, PREVIOUS_STATE_FILE, STATE_FILE
from semishot.training.origin import TRAINING_FILE

ORDER = ("config.json", "log.jsonl", TRAINING_FILE, STATE_FILE, MODEL_FILE, "result.json")
"""The order in which files are written: if interrupted at any point, the folder can be resumed."""

Files = dict[str, bytes]


def pack(folder: Path) -> Files:
    """The files of a run folder, without locks and the previous checkpoint."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".tmp")
    own = (LOCK_FILE, PREVIOUS_STATE_FILE)
    return {
        p.relative_to(folder).as_posix(): read_regular(p, MOST_BYTES)
        for p in found
        if not p.name.endswith(own)
    }


def unpack(files: Files, folder: Path) -> None:
    """Write the files in the order of `ORDER`; older checkpoints and event files are deleted."""
    for name in sorted(files, key=lambda name: ORDER.index(name) if name in ORDER else -1):
        path = folder / name
        if not real_path(path).is_relative_to(real_path(folder)):
            raise InputError(f"a worker sent a file named {name!r}, which is outside its folder")
        write_whole(path, files[name])
    states = (*folder.rglob(STATE_FILE), *folder.rglob(PREVIOUS_STATE_FILE))  # of classifiers too
    for old in (*states, *folder.glob("tensorboard/*")):
        if old.relative_to(folder).as_posix() not in files:
            old.unlink(missing_ok=True)
