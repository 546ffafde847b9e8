"""Move, copy or link files to OUT/sorted/CLASS, in a way that can be undone.

The whole plan is on disk before the first file is touched, every step can be repeated, and no step
overwrites anything. So a sorting that was killed can be completed or undone from its journal alone.
One failing file does not stop the others: it stays where it was. A sorted file that the user has moved or
changed is the user's: it is left alone, and named.
"""

import errno
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from semishot.errors import InputError, counted
from semishot.sorter.moving.journal import (
    JOURNAL,
    SORTED,
    Sorting,
    SortStep,
    read_journal,
    write_journal,
)
from semishot.sorter.moving.one_file import copy_file, is_file, move_file, remove_part
from semishot.sorter.moving.plan import in_place, is_sorted, moved_by_hand
from semishot.sorter.requests import How
from semishot.system.files import real_path, sweep
from semishot.system.locks import Lock
from semishot.system.progress import track

LOCK = ".lock"
"""The lock file in OUT, while a command works there."""
OF_ALL_FILES = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors that end the work, as the next file would meet them too: above all, a full disk."""
DONE = {"move": "moved", "copy": "copied", "link": "linked"}


@dataclass(frozen=True)
class Outcome:
    """What `complete` did."""

    how: How
    count: int
    """Files, copies or links that are in their folders of OUT/sorted now."""
    left: int
    """Files that could not be sorted, and stayed where they were."""
    gone: int
    """Files that are neither where they were nor in OUT/sorted."""
    problems: list[str]
    """Which files could not be sorted, and why."""
    undoable: bool
    """Whether there is something to undo."""

    def counts(self, again: bool = False) -> str:
        """`36 files moved, 1 stayed where it was`; `again`: some of them were there already."""
        done = "in their folders" if again else DONE[self.how]
        parts = [f"{counted(self.count, 'file')} {done}"]
        if self.left:
            parts.append(counted(self.left, "stayed where it was", "stayed where they were"))
        if self.gone:
            parts.append(counted(self.gone, "is gone", "are gone"))
        return ", ".join(parts)


@dataclass(frozen=True)
class Undone:
    """What `undo` did."""

    how: How
    count: int
    """Files moved back, or copies or links removed."""
    problems: list[str]
    """What is left, and why."""

    def line(self) -> str:
        if self.how == "move":
            return f"{counted(self.count, 'file')} moved back"
        words = {"copy": ("copy", "copies"), "link": ("link", "links")}[self.how]
        return f"{counted(self.count, *words)} removed; your files stayed where they were"


def begin(sorting: Sorting) -> Sorting:
    """Write the plan, before any file is touched.

    Links to where the pile was lead nowhere, and are removed first: the journal that is there until then
    knows them, and the sorting that follows, or the next one after a kill, makes them anew.
    """
    for path, led in sorting.stale:
        _check_folder(path.parent)
        if path.is_symlink() and path.readlink() == led:
            path.unlink()
    write_journal(sorting)
    return sorting


def complete(sorting: Sorting) -> Outcome:
    """Do the steps that are not done yet, of every file that allows it.

    A full disk ends the work: it is raised, and the journal stays unfinished.
    """
    for folder in {sorting.target(step).parent for step in sorting.steps}:
        _check_folder(folder)
    failed: dict[int, str] = {}
    for index, step in enumerate(track(sorting.steps, f"{sorting.how} files", len(sorting.steps))):
        if step.left_alone:
            continue
        try:
            _sort_one(sorting, step)
        except (OSError, InputError) as error:
            done = f"{index - len(failed):,} of {len(sorting.steps):,} files {DONE[sorting.how]}"
            _raise_if_of_all(error, f"{done}, the others stayed where they were")
            failed[index] = problem_of(step.source, error)
    return _finish(sorting, failed)


def _check_folder(folder: Path) -> None:
    """Refuse a folder of OUT/sorted, or OUT/sorted itself, that is a link."""
    for path in (folder.parent, folder):
        if path.is_symlink():
            raise InputError(
                f"{path} is a link to elsewhere; nothing is sorted into it: remove the link"
            )


def _sort_one(sorting: Sorting, step: SortStep) -> None:
    """Do one step, or what is left of it."""
    target, earlier, source = sorting.target(step), sorting.earlier(step), step.source
    _check_folder(target.parent)
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_parts(sorting, step)
    from_earlier = earlier is not None and in_place(sorting, step, earlier)
    if sorting.how == "link":
        if not is_sorted("link", step, target):
            if not source.is_file():
                raise FileNotFoundError(errno.ENOENT, "it is gone, or not a file")
            target.symlink_to(source)
        if earlier is not None and from_earlier:
            earlier.unlink()
        return
    if earlier is not None and from_earlier:
        move_file(earlier, target, step.digest)
    if sorting.how == "copy":
        copy_file(source, target, step.digest)
    elif _is_home(source):
        move_file(source, target, step.digest)
    elif not is_file(target, step.digest):
        raise OSError(BEHIND_LINK.format(source.parent))


BEHIND_LINK = (
    "{} is a link to elsewhere now: restore the folder, or name the folder where its files belong, "
    "`semishot undo OUT --below FOLDER`"
)


def _is_home(source: Path) -> bool:
    """Whether no link has come between the pile and its file since it was sorted."""
    return real_path(source.parent) == source.parent


def _remove_parts(sorting: Sorting, step: SortStep) -> None:
    for path in (sorting.target(step), sorting.earlier(step), step.source):
        if path is not None:
            remove_part(path, step.digest)


def _raise_if_of_all(error: OSError | InputError, done: str) -> None:
    """Raise an error that is not of one file, with what was done until then."""
    if isinstance(error, OSError) and error.errno in OF_ALL_FILES:
        raise OSError(error.errno, f"{error.strerror} ({done})", error.filename) from error


def problem_of(path: Path, error: Exception) -> str:
    """A line about one file; the messages of some errors begin with its path."""
    reason = str(getattr(error, "strerror", None) or error)
    return reason if reason.startswith(str(path)) else f"{path}: {reason}"


def _finish(sorting: Sorting, failed: dict[int, str]) -> Outcome:
    """Write the journal of what is in OUT/sorted, and count the rest."""
    kept, left = [], 0
    for index, step in enumerate(sorting.steps):
        earlier, target = sorting.earlier(step), sorting.target(step)
        if index in failed:
            if earlier is not None and in_place(sorting, step, earlier):
                step = replace(step, folder=earlier.parent.name, name=earlier.name)
            elif not in_place(sorting, step, target):
                left += step.source.is_file() and not (
                    sorting.how == "move" and step.source.is_symlink()
                )
                continue
            left += 1
        kept.append(replace(step, was=None))
    if kept:
        write_journal(replace(sorting, done=True, steps=tuple(kept)))
    else:
        _remove_journal(sorting.out)
    _remove_empty(sorting)
    count = len(sorting.steps) - sum(step.left_alone for step in sorting.steps) - len(failed)
    problems = list(failed.values())
    return Outcome(sorting.how, count, left, len(failed) - left, problems, bool(kept))


def undo(out: Path, below: Path | None = None) -> Undone:
    """Move all files back, or remove all copies or links.

    What cannot be undone, such as a file that is gone, has changed or was moved by hand, stays in the
    journal. below: the folder where the files belong, if the pile is not where it was.
    """
    first = read_journal(out, below)
    if first is None:
        raise InputError(f"nothing to undo in {out}: it has no {JOURNAL}")
    with Lock(out / LOCK):
        sorting = read_journal(out, below)
        if sorting is None:  # another process has undone it
            return Undone(first.how, 0, [])
        return _undo(sorting)


def _undo(sorting: Sorting) -> Undone:
    problems, count, left = [], 0, []
    targets = set(sorting.targets().values())
    for step in track(sorting.steps, "undoing", len(sorting.steps)):
        try:
            count += _take_back(sorting, step, targets)
        except (OSError, InputError) as error:
            _raise_if_of_all(error, f"{count:,} of {len(sorting.steps):,} files undone")
            problems.append(problem_of(sorting.target(step), error))
            if sorting.done or not isinstance(error, FileNotFoundError):
                left.append(step)  # else it may have vanished before it was sorted
    if left:
        write_journal(replace(sorting, steps=tuple(left)))
    else:
        _remove_journal(sorting.out)
    _remove_empty(sorting)
    return Undone(sorting.how, count, problems)


def _take_back(sorting: Sorting, step: SortStep, targets: Collection[Path]) -> bool:
    """Move one file back, or remove one copy or link; False if there is nothing to do."""
    places = [path for path in (sorting.target(step), sorting.earlier(step)) if path is not None]
    for path in places:
        if path.parent.is_symlink() or path.parent.parent.is_symlink():
            raise OSError(f"{path.parent} is a link to elsewhere")
    _remove_parts(sorting, step)
    present = [path for path in dict.fromkeys(places) if is_sorted(sorting.how, step, path)]
    for path in present:
        _put_back(sorting.how, step, path)
    if present:
        return True
    if (now := moved_by_hand(sorting, step, targets)) is not None:
        raise OSError(f"you moved it to {now}, where it stays")
    back = sorting.how != "move" or is_file(step.source, step.digest)
    if os.path.lexists(places[0]):
        if sorting.how == "move" and back:
            return False  # it was never moved, or is back, and another file lies there
        raise OSError("it has changed since it was sorted")
    if not back and not os.path.lexists(step.source):
        raise FileNotFoundError(errno.ENOENT, f"it is gone, and {step.source} is not there either")
    return False


def _put_back(how: How, step: SortStep, path: Path) -> None:
    source = step.source
    if how == "link":
        path.unlink()
    elif how == "copy":
        original = is_file(source, step.digest, links=True)
        if not original or source.samefile(path):
            raise OSError(f"it is kept: {source} is gone, has changed or leads to it")
        path.unlink()
    else:
        if not _is_home(source):
            raise OSError(BEHIND_LINK.format(source.parent))
        if os.path.lexists(source) and not is_file(source, step.digest):
            raise OSError(f"{source} exists again, with different content")
        source.parent.mkdir(parents=True, exist_ok=True)
        move_file(path, source, step.digest)


def _remove_journal(out: Path) -> None:
    (out / JOURNAL).unlink(missing_ok=True)
    sweep(out, JOURNAL)  # what a process has left that was killed while it wrote one


def _remove_empty(sorting: Sorting) -> None:
    places = [(sorting.target(step), sorting.earlier(step)) for step in sorting.steps]
    folders = {path.parent for pair in places for path in pair if path is not None}
    if not (sorting.out / SORTED).is_symlink():
        for folder in (*sorted(folders), sorting.out / SORTED):
            with suppress(OSError):  # it holds other files, or does not exist
                folder.rmdir()
