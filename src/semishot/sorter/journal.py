"""The journal of a sorting, OUT/undo.json: which file goes where, sealed by whoever wrote it."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from semishot.errors import InputError
from semishot.system.files import read_regular, write_whole
from semishot.system.signing import sign, verify

__all__ = ["JOURNAL", "SORTED", "How", "Sorting", "Step", "read_journal", "write_journal"]

How = Literal["move", "copy", "link"]
FORMAT = 1
SORTED, JOURNAL = "sorted", "undo.json"
MOST_BYTES = 2**29


@dataclass(frozen=True)
class Step:
    source: Path
    """Absolute."""
    folder: str
    name: str
    digest: str
    """SHA-256 of the content."""


@dataclass(frozen=True)
class Sorting:
    """What `undo.json` holds."""

    out: Path
    how: How
    done: bool
    steps: tuple[Step, ...]

    def target(self, step: Step) -> Path:
        return self.out / SORTED / step.folder / step.name


def write_journal(sorting: Sorting) -> None:
    steps = [[str(s.source), s.folder, s.name, s.digest] for s in sorting.steps]
    said: dict[str, Any] = {"format": FORMAT, "how": sorting.how, "done": sorting.done}
    said["steps"] = steps
    said["seal"] = sign(json.dumps(said))
    text = json.dumps(said, indent=1)  # ASCII, so that any file name can be written
    write_whole(sorting.out / JOURNAL, lambda path: path.write_text(text, encoding="ascii"))


def read_journal(out: Path, below: Path | None = None) -> Sorting | None:
    """What was to be sorted, if anything; a journal that names a place outside OUT/sorted is refused.

    It says which files are moved where, so whoever wrote it could take or leave files anywhere: it is
    believed if this user has sealed it, or as far as all the files it names lie below a folder.
    """
    path = out / JOURNAL
    try:
        said: dict[str, Any] = json.loads(read_regular(path, MOST_BYTES).decode("ascii"))
        seal = said.pop("seal", None)
        steps = tuple(Step(Path(s), folder, name, d) for s, folder, name, d in said["steps"])
        sorting = Sorting(out, said["how"], said["done"] is True, steps)
        if said["format"] != FORMAT or sorting.how not in get_args(How):
            raise ValueError
        for step in steps:
            parts = (step.folder, step.name)
            if not re.fullmatch("[0-9a-f]{64}", step.digest):
                raise ValueError
            if any(b"\0" in os.fsencode(part) for part in (step.source, *parts)):
                raise ValueError
            if not step.source.is_absolute() or any(
                p in ("", ".", "..") or "/" in p or os.sep in p for p in parts
            ):
                raise ValueError
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        raise
    except Exception as error:  # it may hold anything
        raise InputError(f"{path} is damaged, or of another version") from error
    if below is not None:
        _check_below(sorting, below.resolve())
    elif not verify(json.dumps(said), seal):
        raise InputError(
            f"{path} was not written by you on this machine, or has been changed, and it may name any "
            f"file: `semishot undo {out} --below FOLDER` believes it for files of FOLDER, your pile; or "
            "delete it"
        )
    return sorting


def _check_below(sorting: Sorting, folder: Path) -> None:
    for step in sorting.steps:
        place = step.source.parent.resolve()  # links in it followed
        if not place.is_relative_to(folder) or step.source.name in ("", ".", ".."):
            raise InputError(
                f"{sorting.out / JOURNAL} names {step.source}, which is not below {folder}; nothing was "
                "undone"
            )
