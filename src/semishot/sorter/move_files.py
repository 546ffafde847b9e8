"""Move, copy or link files to OUT/sorted/CLASS, in a way that can be undone.

The whole plan is on disk before the first file is touched, every step can be repeated, and no step
overwrites anything. So a sorting that was killed can be completed or undone from its journal alone.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from semishot.errors import InputError
from semishot.sorter.journal import JOURNAL, SORTED, How, Sorting, Step, read_journal, write_journal
from semishot.system.files import open_regular
from semishot.system.folder_names import folded, folder_names
from semishot.system.locks import Lock
from semishot.system.progress import track

__all__ = ["complete", "plan", "undo"]

IRRELEVANT_FOLDER = "_irrelevant"
LOCK = ".lock"
"""The lock file in OUT, while a command works there."""
BLOCK = 2**20
LONGEST = 255
"""The longest file name, in bytes."""
OF_ONE_FILE = {
    *(None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST),
    *(errno.EINVAL, errno.EILSEQ, errno.ENAMETOOLONG, errno.ELOOP),
}
"""Errors of a single file, which is reported and skipped; others, such as a full disk, are raised."""


def plan(out: Path, how: How, wanted: Sequence[tuple[Path, str | None, str]]) -> Sorting:
    """A target for each (file, class or None for irrelevant, digest); written before any file is moved."""
    names = folder_names({label for _, label, _ in wanted if label is not None}, IRRELEVANT_FOLDER)
    taken: dict[tuple[str, str], int] = {}
    steps = []
    for source, label, digest in wanted:
        folder = IRRELEVANT_FOLDER if label is None else names[label]
        name = _free_name(out / SORTED / folder, source.name, taken)
        steps.append(Step(source.parent.resolve() / source.name, folder, name, digest))
    sorting = Sorting(out, how, False, tuple(steps))
    write_journal(sorting)
    return sorting


def _free_name(folder: Path, name: str, taken: dict[tuple[str, str], int]) -> str:
    """The name, or name~2 and so on; `taken` counts how often a name was requested."""
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
    """Do the steps that are not done yet; return which files could not be sorted, and why.

    Other errors, such as a full disk, are raised, and the journal stays unfinished.
    """
    problems = []
    for step in track(sorting.steps, f"{sorting.how} files", len(sorting.steps)):
        try:
            _do(sorting.how, step.source, _ready(sorting, step), step.digest)
        except OSError as error:
            if error.errno not in OF_ONE_FILE:
                raise
            problems.append(f"{step.source}: {error.strerror or error}")
    write_journal(Sorting(sorting.out, sorting.how, True, sorting.steps))
    return problems


def _ready(sorting: Sorting, step: Step) -> Path:
    """The target; its folder is created if needed, and must not be a link."""
    target = sorting.target(step)
    for folder in (target.parent.parent, target.parent):
        if folder.is_symlink():
            raise InputError(f"{folder} is a link to elsewhere; nothing is sorted into it")
        folder.mkdir(parents=True, exist_ok=True)
    return target


def _do(how: How, source: Path, target: Path, digest: str) -> None:
    """Do one step. The work of an earlier attempt is recognized; nothing is overwritten."""
    if how == "link":
        if not (target.is_symlink() and target.readlink() == source):
            target.symlink_to(source)
        return
    if not os.path.lexists(target):
        if _digest(source) != digest:
            raise OSError("it has changed since it was read")
        _place(source, target, digest, share=how == "move")
    elif not _is(target, digest):
        raise FileExistsError(17, f"{target} exists and is another file")
    else:
        _part(target, digest).unlink(missing_ok=True)  # a kill may have come between its two names
    if how == "move" and os.path.lexists(source):
        if not _is(source, digest):
            raise OSError("it has changed since it was read")
        source.unlink()


def _part(target: Path, digest: str) -> Path:
    """The temporary name of a copy: short, and used by nothing else."""
    said = os.fsencode(target.name) + b"\0" + os.fsencode(digest)
    return target.with_name(f".semishot-{hashlib.sha256(said).hexdigest()[:32]}.part")


def _place(source: Path, target: Path, digest: str, share: bool) -> None:
    """Hard-link a file or, if that is not possible, copy it atomically."""
    if share:
        with suppress(OSError):
            os.link(source, target, follow_symlinks=False)  # never onto another file
            return
        if os.path.lexists(target):
            raise FileExistsError(17, f"{target} exists")
    part = _part(target, digest)
    part.unlink(missing_ok=True)  # left by a killed process
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
    with open_regular(source) as read, part.open("xb") as written:
        try:
            shutil.copyfileobj(read, written, BLOCK)
            written.flush()
            os.fsync(written.fileno())
        except OSError as error:
            error.filename = str(target)  # the error of a full disk has no file name
            raise
    shutil.copystat(source, part)


def undo(out: Path, below: Path | None = None) -> tuple[int, list[str]]:
    """Put all files back; return how many were put back, and which could not be, and why.

    below: the only folder that files may be put back to. Required for a journal of another user.
    """
    if read_journal(out, below) is None:
        raise InputError(f"nothing to undo in {out}: it has no {JOURNAL}")
    with Lock(out / LOCK):
        sorting = read_journal(out, below)
        return (0, []) if sorting is None else _put_back(sorting)  # another process has undone it


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
        with suppress(OSError):  # it holds other files, or does not exist
            folder.rmdir()


def _digest(path: Path) -> str:
    whole = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(BLOCK):
            whole.update(block)
    return whole.hexdigest()


def _is(path: Path, digest: str) -> bool:
    return path.is_file() and _digest(path) == digest
