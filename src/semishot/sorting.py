"""Sort the files themselves: move, copy or link them to OUT/sorted/CLASS, so that it can be undone.

The whole plan is on the disk before the first file is touched, each step can be done twice, and no
step overwrites anything. So a sorting that was killed is completed, or undone, by its journal alone.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from semishot.errors import InputError
from semishot.files import write_whole
from semishot.locks import Lock
from semishot.progress import track
from semishot.safe_names import folded, folder_names
from semishot.seals import is_sealed, sealed

__all__ = ["How", "Sorting", "complete", "plan", "read_journal", "undo"]

How = Literal["move", "copy", "link"]
FORMAT = 1
SORTED, JOURNAL, IRRELEVANT = "sorted", "undo.json", "_irrelevant"
LOCK = ".lock"
"""In OUT, while a command works there."""
BLOCK = 2**20
MOST_JOURNAL_BYTES = 2**29
LONGEST = 255
"""Bytes of a file's name."""
OF_ONE_FILE = {
    *(None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
    *(errno.EINVAL, errno.EILSEQ, errno.ENAMETOOLONG, errno.ELOOP),
}
"""Errors, ours among them, that are named and passed over; any other, as a full disk, ends the work."""


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


def plan(out: Path, how: How, wanted: Sequence[tuple[Path, str | None, str]]) -> Sorting:
    """A place for each (file, class or None for irrelevant, digest); on disk before anything moves."""
    names = folder_names({label for _, label, _ in wanted if label is not None}, IRRELEVANT)
    taken: dict[tuple[str, str], int] = {}
    steps = []
    for source, label, digest in wanted:
        folder = IRRELEVANT if label is None else names[label]
        name = _free_name(out / SORTED / folder, source.name, taken)
        steps.append(Step(source.parent.resolve() / source.name, folder, name, digest))
    sorting = Sorting(out, how, False, tuple(steps))
    _write(sorting)
    return sorting


def _free_name(folder: Path, name: str, taken: dict[tuple[str, str], int]) -> str:
    """The name, or name~2 and so on; `taken` counts how often a name was asked for."""
    path, found = Path(name), name
    while (folder.name, folded(found)) in taken or os.path.lexists(folder / found):
        number = taken[folder.name, folded(name)] = taken.get((folder.name, folded(name)), 1) + 1
        tail = f"~{number}{path.suffix}"
        room = max(1, LONGEST - len(os.fsencode(tail)))
        stem = os.fsencode(path.stem)
        found = (path.stem if len(stem) <= room else stem[:room].decode(errors="ignore")) + tail
    taken.setdefault((folder.name, folded(found)), 1)
    return found


def complete(sorting: Sorting) -> list[str]:
    """Do what is not done yet; say which files could not be sorted, and why.

    What is no fault of a file, as a full disk, is raised; then the journal stays unfinished.
    """
    problems = []
    for step in track(sorting.steps, f"{sorting.how} files", len(sorting.steps)):
        try:
            _do(sorting.how, step.source, _ready(sorting, step), step.digest)
        except OSError as error:
            if error.errno not in OF_ONE_FILE:
                raise
            problems.append(f"{step.source}: {error.strerror or error}")
    _write(Sorting(sorting.out, sorting.how, True, sorting.steps))
    return problems


def _ready(sorting: Sorting, step: Step) -> Path:
    """The target, in a folder that is there and is no link to elsewhere."""
    target = sorting.target(step)
    for folder in (target.parent.parent, target.parent):
        if folder.is_symlink():
            raise InputError(f"{folder} is a link to elsewhere; nothing is sorted into it")
        folder.mkdir(parents=True, exist_ok=True)
    return target


def _do(how: How, source: Path, target: Path, digest: str) -> None:
    """One step. What an earlier attempt has done is recognized; nothing is overwritten."""
    if how == "link":
        if not (target.is_symlink() and target.readlink() == source):
            target.symlink_to(source)
        return
    if not os.path.lexists(target):
        if _digest(source) != digest:
            raise OSError("it has changed since it was looked at")
        _place(source, target, digest, share=how == "move")
    elif not _is(target, digest):
        raise FileExistsError(17, f"{target} exists and is another file")
    else:
        _part(target, digest).unlink(missing_ok=True)  # a kill may have come between its two names
    if how == "move" and os.path.lexists(source):
        if not _is(source, digest):
            raise OSError("it has changed since it was looked at")
        source.unlink()


def _part(target: Path, digest: str) -> Path:
    """Where a copy grows: a name that is short and nobody else's."""
    said = os.fsencode(target.name) + b"\0" + os.fsencode(digest)
    return target.with_name(f".semishot-{hashlib.sha256(said).hexdigest()[:32]}.part")


def _place(source: Path, target: Path, digest: str, share: bool) -> None:
    """Give a file a second name, or where that cannot be a copy, whole or not at all."""
    if share:
        with suppress(OSError):
            os.link(source, target, follow_symlinks=False)  # never onto another file
            return
        if os.path.lexists(target):
            raise FileExistsError(17, f"{target} exists")
    part = _part(target, digest)
    part.unlink(missing_ok=True)  # of a kill
    try:
        _copy(source, part, target)
        try:
            os.link(part, target)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            if os.path.lexists(target):
                raise FileExistsError(17, f"{target} exists") from None
            part.rename(target)
    finally:
        part.unlink(missing_ok=True)


def _copy(source: Path, part: Path, target: Path) -> None:
    with source.open("rb") as read, part.open("xb") as written:
        try:
            shutil.copyfileobj(read, written, BLOCK)
            written.flush()
            os.fsync(written.fileno())
        except OSError as error:
            error.filename = str(target)  # a full disk has no name
            raise
    shutil.copystat(source, part)


def undo(out: Path, below: Path | None = None) -> tuple[int, list[str]]:
    """Put everything back; how many files were, and what could not be, and why.

    below: where the files may go back to. A journal that somebody else wrote needs it.
    """
    if read_journal(out, below) is None:
        raise InputError(f"nothing to undo in {out}: it has no {JOURNAL}")
    with Lock(out / LOCK):
        sorting = read_journal(out, below)
        return (0, []) if sorting is None else _put_back(sorting)  # another process was at it


def _put_back(sorting: Sorting) -> tuple[int, list[str]]:
    problems, count = [], 0
    for step in track(sorting.steps, "putting back", len(sorting.steps)):
        target = sorting.target(step)
        try:
            if target.parent.is_symlink() or target.parent.parent.is_symlink():
                raise OSError(f"{target.parent} is a link to elsewhere")
            _part(target, step.digest).unlink(missing_ok=True)
            count += _undo(sorting.how, step.source, target, step.digest)
        except OSError as error:
            if error.errno not in OF_ONE_FILE:
                raise
            problems.append(f"{target}: {error.strerror or error}")
    if not problems:
        _remove_empty(sorting)
        (sorting.out / JOURNAL).unlink()
    return count, problems


def _undo(how: How, source: Path, target: Path, digest: str) -> bool:
    if not os.path.lexists(target):
        if how == "move" and not os.path.lexists(source):
            raise OSError(f"it is gone, and {source} is not there either")
        return False
    if how == "link":
        if not (target.is_symlink() and target.readlink() == source):
            raise OSError("it is no longer the link that was made")
        target.unlink()
        return True
    if not _is(target, digest):
        raise OSError("it has changed since it was sorted")
    if how == "move":
        if not os.path.lexists(source):
            source.parent.mkdir(parents=True, exist_ok=True)
            _place(target, source, digest, share=True)
        elif not _is(source, digest):
            raise OSError(f"{source} is there again, with another content")
        _part(source, digest).unlink(missing_ok=True)  # a kill may have come between its two names
    elif not _is(source, digest):
        raise OSError(f"it is kept: {source} is gone or has changed")
    target.unlink()
    return True


def _remove_empty(sorting: Sorting) -> None:
    folders = {sorting.target(step).parent for step in sorting.steps}
    for folder in (*sorted(folders), sorting.out / SORTED):
        with suppress(OSError):  # somebody has put something in, or it never was
            folder.rmdir()


def _digest(path: Path) -> str:
    whole = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            whole.update(block)
    return whole.hexdigest()


def _is(path: Path, digest: str) -> bool:
    return path.is_file() and _digest(path) == digest


def _write(sorting: Sorting) -> None:
    steps = [[str(s.source), s.folder, s.name, s.digest] for s in sorting.steps]
    said: dict[str, Any] = {"format": FORMAT, "how": sorting.how, "done": sorting.done}
    said["steps"] = steps
    said["seal"] = sealed(json.dumps(said))
    text = json.dumps(said, indent=1)  # ASCII, so that any file name can be written
    write_whole(sorting.out / JOURNAL, lambda path: path.write_text(text, encoding="ascii"))


def read_journal(out: Path, below: Path | None = None) -> Sorting | None:
    """What was to be sorted, if anything; a journal that names a place outside OUT/sorted is refused.

    It says which files are moved where, so whoever wrote it could take or leave files anywhere: it is
    believed if this user has sealed it, or as far as all the files it names lie below a folder.
    """
    path = out / JOURNAL
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_JOURNAL_BYTES:
            raise ValueError
        said: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
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
    elif not is_sealed(json.dumps(said), seal):
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
