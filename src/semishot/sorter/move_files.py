"""Move, copy or link files to OUT/sorted/CLASS, in a way that can be undone.

The whole plan is on disk before the first file is touched, every step can be repeated, and no step
overwrites anything. So a sorting that was killed can be completed or undone from its journal alone.
A finished sorting can be planned again: what changed is moved from where it is now, and the journal
still knows where each file came from.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from semishot.errors import InputError
from semishot.sorter.journal import JOURNAL, SORTED, How, Sorting, Step, read_journal, write_journal
from semishot.sorter.listing import STRANGER
from semishot.sorter.sorted_files import SortedFile, digest_of, find_sorted, is_file
from semishot.system.folder_names import folded, folder_names
from semishot.system.locks import Lock
from semishot.system.open_files import open_regular
from semishot.system.progress import track

__all__ = ["Undone", "Wanted", "begin", "complete", "plan", "undo"]

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


@dataclass(frozen=True)
class Wanted:
    """A file of the pile, and where it belongs."""

    source: Path
    """Where it was before anything was sorted."""
    label: str
    """A class, or `stranger`."""
    digest: str


def plan(
    out: Path, how: How, wanted: Sequence[Wanted], before: Sequence[SortedFile] = ()
) -> Sorting:
    """A target for each file, not yet written as a journal.

    before: the files of the sorting that is in OUT, where they are now. Those that are not wanted, and
    those that lie in the right folder already, stay.
    """
    names = class_folders(one.label for one in wanted)
    earlier = {(old.step.source, old.step.digest): old for old in before}
    taken: dict[tuple[str, str], int] = {}
    steps: list[Step] = []
    for one in wanted:
        source = one.source.parent.resolve() / one.source.name
        folder, there = names[one.label], earlier.pop((source, one.digest), None)
        if there is not None and there.path is not None and there.path.parent.name == folder:
            steps.append(there.at_its_place())
            continue
        name, was = _free_name(out / SORTED / folder, source.name, taken), None
        if there is not None and there.path is not None:
            was = (there.path.parent.name, there.path.name)
        steps.append(Step(source, folder, name, one.digest, was))
    kept = [old.at_its_place() for old in earlier.values()]
    return Sorting(out, how, False, (*kept, *steps))


def class_folders(labels: Iterable[str]) -> dict[str, str]:
    """The folder of each class in OUT/sorted, and of strangers."""
    classes = {label for label in labels if label != STRANGER}
    return {STRANGER: STRANGER, **folder_names(classes, STRANGER)}


def begin(sorting: Sorting) -> Sorting:
    """Write the plan, before any file is touched."""
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


def complete(sorting: Sorting, gone: Collection[Path] = ()) -> list[str]:
    """Do the steps that are not done yet; return which files could not be sorted, and why.

    Other errors, such as a full disk, are raised, and the journal stays unfinished.
    gone: sources of files sorted before that the user has taken away. They stay in the journal.
    """
    problems = []
    for step in track(sorting.steps, f"{sorting.how} files", len(sorting.steps)):
        if step.source in gone:
            continue
        try:
            target, earlier = _ready(sorting, step), sorting.earlier(step)
            if earlier is not None:
                _move_on(sorting.how, step, earlier, target)
            _do(sorting.how, step.source, target, step.digest)
        except OSError as error:
            if error.errno not in OF_ONE_FILE:
                raise
            problems.append(f"{step.source}: {error.strerror or error}")
    steps = tuple(replace(step, was=None) for step in sorting.steps)
    write_journal(Sorting(sorting.out, sorting.how, True, steps))
    _remove_empty(sorting)
    return problems


def _move_on(how: How, step: Step, earlier: Path, target: Path) -> None:
    """Move a sorted file, copy or link from one class to another; nothing is overwritten."""
    if earlier.parent.is_symlink() or not _is_sorted(how, step, earlier):
        return  # done already, or it is no longer there
    if not os.path.lexists(target):
        if how == "link":
            target.symlink_to(step.source)
        else:
            _place(earlier, target, step.digest, share=True)
    elif not _is_sorted(how, step, target):
        raise FileExistsError(17, f"{target} exists and is another file")
    earlier.unlink()


def _is_sorted(how: How, step: Step, path: Path) -> bool:
    """Whether this is the file, copy or link that a step has made."""
    if how == "link":
        return path.is_symlink() and path.readlink() == step.source
    return not path.is_symlink() and is_file(path, step.digest)


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
        if digest_of(source) != digest:
            raise OSError("it has changed since it was read")
        _place(source, target, digest, share=how == "move")
    elif not is_file(target, digest):
        raise FileExistsError(17, f"{target} exists and is another file")
    else:
        _part(target, digest).unlink(missing_ok=True)  # a kill may have come between its two names
    if how == "move" and os.path.lexists(source):
        if not is_file(source, digest):
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


@dataclass(frozen=True)
class Undone:
    """What `undo` did."""

    how: How
    count: int
    """Files moved back, or copies or links removed."""
    problems: list[str]
    """What is left, and why."""

    def line(self) -> str:
        done = {"move": "moved back", "copy": "removed", "link": "removed"}[self.how]
        what = {"move": "file", "copy": "copy", "link": "link"}[self.how]
        several = {"copy": "copies"}.get(what, f"{what}s")
        left = "" if self.how == "move" else "; your files are where they were"
        return f"{self.count:,} {what if self.count == 1 else several} {done}{left}"


def undo(out: Path, below: Path | None = None) -> Undone:
    """Move all files back, or remove all copies or links; those moved by hand in OUT/sorted too.

    What cannot be undone, such as a file that is gone or has changed, stays in the journal.
    below: the only folder that files may be put back to. Required for a journal of another user.
    """
    first = read_journal(out, below)
    if first is None:
        raise InputError(f"nothing to undo in {out}: it has no {JOURNAL}")
    with Lock(out / LOCK):
        sorting = read_journal(out, below)
        if sorting is None:  # another process has undone it
            return Undone(first.how, 0, [])
        return _put_back(sorting)


def _put_back(sorting: Sorting) -> Undone:
    problems, count, left = [], 0, []
    files = find_sorted(sorting)
    for found in files:
        step, target = found.step, found.path or sorting.target(found.step)
        try:
            for place in {target, sorting.target(step), sorting.earlier(step) or target}:
                if place.parent.is_symlink() or place.parent.parent.is_symlink():
                    raise OSError(f"{place.parent} is a link to elsewhere")
                _part(place, step.digest).unlink(missing_ok=True)
            count += _undo(sorting.how, step.source, target, step.digest)
            earlier = sorting.earlier(step)
            if earlier not in (None, target) and _is_sorted(sorting.how, step, earlier):
                earlier.unlink()  # a kill came between its two names
        except OSError as error:
            if error.errno not in OF_ONE_FILE:
                raise
            problems.append(f"{target}: {error.strerror or error}")
            left.append(step)
    _remove_empty(sorting, {one.path.parent for one in files if one.path is not None})
    if left:
        write_journal(Sorting(sorting.out, sorting.how, sorting.done, tuple(left)))
    else:
        (sorting.out / JOURNAL).unlink()
    return Undone(sorting.how, count, problems)


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
    if not is_file(target, digest):
        raise OSError("it has changed since it was sorted")
    if how == "move":
        if not os.path.lexists(source):
            source.parent.mkdir(parents=True, exist_ok=True)
            _place(target, source, digest, share=True)
        elif not is_file(source, digest):
            raise OSError(f"{source} is there again, with another content")
        _part(source, digest).unlink(missing_ok=True)  # a kill may have come between its two names
    elif not is_file(source, digest):
        raise OSError(f"it is kept: {source} is gone or has changed")
    target.unlink()
    return True


def _remove_empty(sorting: Sorting, more: Collection[Path] = ()) -> None:
    folders = {*more, *(sorting.target(step).parent for step in sorting.steps)}
    folders |= {path.parent for step in sorting.steps if (path := sorting.earlier(step))}
    for folder in (*sorted(folders), sorting.out / SORTED):
        with suppress(OSError):  # it holds other files, or does not exist
            folder.rmdir()
