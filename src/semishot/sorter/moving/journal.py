"""The journal of a sorting, OUT/undo.json: which file goes where, signed by the user who wrote it."""

import json
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from semishot.errors import InputError
from semishot.sorter.requests import How
from semishot.system.files import read_regular, real_path, write_whole
from semishot.system.json_fields import from_json
from semishot.system.signing import can_sign, sign, verify

FORMAT = 1
SORTED, JOURNAL = "sorted", "undo.json"
MOST_BYTES = 2**29
"""The largest journal that is read, and written."""
MOST_PLANNED = MOST_BYTES // 4 * 3
"""The largest plan: files may be moved to longer names by hand."""


@dataclass(frozen=True)
class Step:
    source: Path
    """Absolute."""
    folder: str
    name: str
    digest: str
    """SHA-256 of the content."""
    was: tuple[str, str] | None = None
    """Of a file that is sorted again: its folder and name in OUT/sorted until then. If they are those of
    the target, the file was sorted before and is left alone, even if it is not there."""

    @property
    def left_alone(self) -> bool:
        return self.was == (self.folder, self.name)


@dataclass(frozen=True)
class Sorting:
    """Which files are moved, copied or linked where."""

    out: Path
    how: How
    done: bool
    steps: tuple[Step, ...]
    stale: tuple[tuple[Path, Path], ...] = ()
    """Links of an earlier sorting, and where they lead: the pile was there. Removed, and made anew."""

    def target(self, step: Step) -> Path:
        return self.out / SORTED / step.folder / step.name

    def targets(self) -> dict[Path, Path]:
        """The source of each file -> where it is when the sorting is complete."""
        return {step.source: self.target(step) for step in self.steps}

    def earlier(self, step: Step) -> Path | None:
        """Where a file that is sorted again has been until then."""
        return None if step.was is None else self.out / SORTED / step.was[0] / step.was[1]


@dataclass(frozen=True)
class Journal:
    """The fields of `undo.json`."""

    format: int
    how: How
    done: bool
    steps: tuple[tuple[str, ...], ...]
    seal: Any = None

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise InputError(f"format must be {FORMAT}, not {self.format}")


def write_journal(sorting: Sorting, most: int = MOST_BYTES) -> None:
    """Write OUT/undo.json, which can be read again: a larger one is refused."""
    steps = [[str(s.source), s.folder, s.name, s.digest, *(s.was or ())] for s in sorting.steps]
    saved: dict[str, Any] = {"format": FORMAT, "how": sorting.how, "done": sorting.done}
    saved["steps"] = steps
    saved["seal"] = sign(json.dumps(saved))
    text = json.dumps(saved, indent=1)  # ASCII, so that any file name can be written
    if len(text) > most:
        raise InputError(
            f"{sorting.out / JOURNAL} would have {len(text):,} bytes for {len(steps):,} files, more than "
            f"{most:,}: sort fewer files at a time, each part to its own --out"
        )
    write_whole(sorting.out / JOURNAL, text)


def trusted(pile: Path | None) -> Path | None:
    """`below` for `read_journal` in a command that names the pile: None where journals are signed.

    Where no key can be stored, the folder that the user names is what there is to trust.
    """
    return None if can_sign() else pile


def check_undoable(sorting: Sorting, pile: Path | None) -> None:
    """Refuse a sorting that `undo_command` would not undo, or that could not go on after a kill."""
    below = trusted(pile)
    if below is None and not can_sign():
        _no_key("without --unlabeled")
    if below is not None:
        root = real_path(below)
        for step in sorting.steps:
            if not step.source.is_relative_to(root):
                _no_key(f"of {step.source}, which is not in {below},")


def _no_key(what: str) -> NoReturn:
    raise InputError(
        f"a sorting {what} could not be undone: semishot keeps the key that signs {JOURNAL} in your data "
        "folder, which cannot be written here; set XDG_DATA_HOME to a writable folder"
    )


def undo_command(out: Path, pile: Path | None = None) -> str:
    """The command that undoes a sorting, as the user types it in this folder."""
    below = trusted(pile)
    limit = "" if below is None else f" --below {shlex.quote(str(below))}"
    return f"semishot undo {shlex.quote(str(out))}{limit}"


def read_journal(out: Path, below: Path | None = None) -> Sorting | None:
    """The sorting of OUT, if there is one.

    A journal says which files are moved where, so its author could move any file to any place. It is
    trusted if this user signed it on this machine, or if all the files it names are in `below`.
    """
    path = out / JOURNAL
    try:
        content = read_regular(path, MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        saved = json.loads(content.decode("ascii"))
        journal = from_json(Journal, saved, JOURNAL)
        steps = tuple(_step(n, step) for n, step in enumerate(journal.steps))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged, or of another version ({error})") from error
    sorting, seal = Sorting(out, journal.how, journal.done, steps), saved.pop("seal", None)
    if below is not None:
        _check_below(sorting, real_path(below))
    elif not verify(json.dumps(saved), seal):
        raise InputError(
            f"{path} was not written by you on this machine, or has been changed, and it may name any "
            f"file: `semishot undo {out} --below FOLDER` trusts it for files below FOLDER, your pile; or "
            "delete it"
        )
    return sorting


def _step(number: int, saved: tuple[str, ...]) -> Step:
    """A step whose target can only be OUT/sorted/FOLDER/NAME."""
    where = f"steps[{number}]"
    if len(saved) not in (4, 6):
        raise InputError(f"{where} must be four or six strings, not {list(saved)!r:.40}")
    source, folder, name, digest, *was = saved
    step = Step(Path(source), folder, name, digest, (was[0], was[1]) if was else None)
    if not step.source.is_absolute() or b"\0" in os.fsencode(step.source):
        raise InputError(f"{where}: source must be an absolute path, not {source!r:.40}")
    fields = zip(("folder", "name", "folder", "name"), (folder, name, *was), strict=False)
    for field, part in fields:
        if part in ("", ".", "..") or {"/", os.sep} & set(part) or b"\0" in os.fsencode(part):
            raise InputError(f"{where}: {field} must be the name of a file, not {part!r:.40}")
    if not re.fullmatch("[0-9a-f]{64}", step.digest):
        raise InputError(f"{where}: digest must be a SHA-256, not {step.digest!r:.40}")
    return step


def _check_below(sorting: Sorting, folder: Path) -> None:
    for step in sorting.steps:
        place = real_path(step.source.parent)  # follows links
        if not place.is_relative_to(folder) or step.source.name in ("", ".", ".."):
            raise InputError(
                f"{sorting.out / JOURNAL} names {step.source}, which is not below {folder}; nothing was "
                "done"
            )
